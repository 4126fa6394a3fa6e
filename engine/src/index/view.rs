//! Questions to the index, the same in a read and in a write transaction.

use std::ops::{ControlFlow, RangeBounds};
use std::path::Path;

use redb::{Key, ReadableTable};

use super::error::{IndexError, redb_error};
use super::rows::{
    ACTIVITY, CHILDREN, DOOMED, META, NAMES, REFERENCED, REFERENCES, SEGMENTS, SESSIONS, SegmentRow,
    SessionRow, Table, decode, hex_key,
};
use super::write::Straddling;
use crate::ids::{SegmentId, Seq, SessionKey};

/// Checked rows of tables, in either kind of transaction.
pub(crate) trait Rows {
    /// The row under `key`.
    fn get<K: Key + 'static, R: bincode::Decode<()>>(
        &self,
        table: &Table<K>,
        key: &K::SelfType<'_>,
    ) -> Result<Option<R>, IndexError>;

    /// Calls `each` for the rows of `range` until it breaks.
    fn scan<'k, K: Key + 'static, R: bincode::Decode<()>>(
        &self,
        table: &Table<K>,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        order: Order,
        each: impl FnMut(K::SelfType<'_>, R) -> ControlFlow<()>,
    ) -> Result<(), IndexError>;
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

/// An ongoing listing, newest activity first: the place behind the last session that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCursor((u64, u64));

impl PageCursor {
    /// The place behind a session in the listing.
    pub(crate) fn behind(last_activity_ms: u64, key: SessionKey) -> Self {
        Self(super::rows::activity_key(last_activity_ms, key))
    }

    /// The place as two numbers.
    pub(crate) fn parts(self) -> (u64, u64) {
        self.0
    }

    /// The place that two numbers name; any two name one.
    pub(crate) fn from_parts(parts: (u64, u64)) -> Self {
        Self(parts)
    }
}

/// One page of a listing.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) sessions: Vec<(SessionKey, SessionRow)>,
    /// Where the listing goes on; `None` where this page was not filled.
    pub(crate) next: Option<PageCursor>,
}

/// A segment as one session sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedSegment {
    /// The session that the segment belongs to: the one that was asked for, or one below it.
    pub(crate) holder: SessionKey,
    pub(crate) first: Seq,
    /// Behind the last event that the session sees of it.
    pub(crate) visible_to: Seq,
    pub(crate) row: SegmentRow,
}

impl<T: Rows> View for T {}

/// What the store asks the index.
pub(crate) trait View: Rows {
    /// The session named `name`, unless it was deleted.
    fn key_of(&self, name: &str) -> Result<Option<SessionKey>, IndexError> {
        self.get(&NAMES, &name)
    }

    /// The row of a session; deleted ones that forks still need have one too.
    fn session(&self, key: SessionKey) -> Result<Option<SessionRow>, IndexError> {
        self.get(&SESSIONS, &key.value())
    }

    /// The row of a session that was not deleted.
    fn live_session(&self, key: SessionKey) -> Result<SessionRow, IndexError> {
        self.session(key)?.filter(|row| !row.deleted).ok_or(IndexError::NoSession { key })
    }

    /// Sessions, the newest activity first. Costs O(limit), whatever the number of sessions.
    fn page(&self, after: Option<PageCursor>, limit: usize) -> Result<Page, IndexError> {
        use std::ops::Bound;
        let start = after.map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.0));
        let mut places = Vec::new();
        self.scan(&ACTIVITY, (start, Bound::Unbounded), Order::Ascending, |place, ()| {
            if places.len() == limit {
                return ControlFlow::Break(());
            }
            places.push(place);
            ControlFlow::Continue(())
        })?;
        let next = places.last().copied().filter(|_| places.len() == limit).map(PageCursor);
        let mut sessions = Vec::with_capacity(places.len());
        for (_, reversed) in places {
            let key = SessionKey(u64::MAX - reversed);
            sessions.push((key, self.live_session(key)?));
        }
        Ok(Page { sessions, next })
    }

    /// Every session's row, tombstones too, by key.
    fn all_sessions(&self, mut each: impl FnMut(SessionKey, SessionRow)) -> Result<(), IndexError> {
        self.scan(&SESSIONS, .., Order::Ascending, |key, row| {
            each(SessionKey(key), row);
            ControlFlow::Continue(())
        })
    }

    /// The session's own segments, ascending.
    fn own_segments(&self, key: SessionKey) -> Result<Vec<(Seq, SegmentRow)>, IndexError> {
        let mut found = Vec::new();
        let key = key.value();
        self.scan(&SEGMENTS, (key, 0)..=(key, u64::MAX), Order::Ascending, |(_, first), row| {
            found.push((Seq::new(first), row));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The segment that holds the event `seq` of the session; `None` where it is not sealed.
    fn segment_for(&self, key: SessionKey, seq: Seq) -> Result<Option<PlacedSegment>, IndexError> {
        let (mut key, mut visible_to) = (key, Seq::new(u64::MAX));
        loop {
            let Some(row) = self.session(key)? else { return Ok(None) };
            // A base is older than its fork, so that this comes to an end.
            match row.base.filter(|base| seq < base.cut && base.key < key) {
                Some(base) => {
                    visible_to = visible_to.min(base.cut);
                    key = base.key;
                }
                None => break,
            }
        }
        let mut found = None;
        let range = (key.value(), 0)..=(key.value(), seq.value());
        self.scan(&SEGMENTS, range, Order::Descending, |(_, first), row: SegmentRow| {
            found = Some((Seq::new(first), row));
            ControlFlow::Break(())
        })?;
        Ok(found.and_then(|(first, row)| {
            let visible_to = visible_to.min(first.plus(row.count));
            (seq < visible_to).then_some(PlacedSegment { holder: key, first, visible_to, row })
        }))
    }

    /// The segments that the session sees, its own and inherited ones, ascending.
    #[cfg(test)]
    fn segments(&self, key: SessionKey) -> Result<Vec<PlacedSegment>, IndexError> {
        let mut found = Vec::new();
        let (mut holder, mut visible_to) = (key, Seq::new(u64::MAX));
        loop {
            let row = self.session(holder)?.ok_or(IndexError::NoSession { key: holder })?;
            for (first, row) in
                self.own_segments(holder)?.into_iter().rev().filter(|(first, _)| *first < visible_to)
            {
                let visible_to = visible_to.min(first.plus(row.count));
                found.push(PlacedSegment { holder, first, visible_to, row });
            }
            let Some(base) = row.base.filter(|base| base.key < holder) else { break };
            visible_to = visible_to.min(base.cut);
            holder = base.key;
        }
        found.reverse();
        Ok(found)
    }

    /// The forks of the session: where each was cut, and its key.
    fn children(&self, key: SessionKey) -> Result<Vec<(Seq, SessionKey)>, IndexError> {
        let mut found = Vec::new();
        let key = key.value();
        self.scan(
            &CHILDREN,
            (key, 0, 0)..=(key, u64::MAX, u64::MAX),
            Order::Ascending,
            |(_, cut, child), ()| {
                found.push((Seq::new(cut), SessionKey(child)));
                ControlFlow::Continue(())
            },
        )?;
        Ok(found)
    }

    /// The objects that the segment references.
    fn references(&self, segment: SegmentId) -> Result<Vec<[u8; 32]>, IndexError> {
        let mut found = Vec::new();
        let id = segment.value();
        self.scan(&REFERENCES, (id, [0; 32])..=(id, [0xff; 32]), Order::Ascending, |(_, digest), ()| {
            found.push(digest);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Every object that a sealed event references, sorted, each once.
    fn referenced(&self) -> Result<Vec<[u8; 32]>, IndexError> {
        let mut found = Vec::new();
        self.scan(&REFERENCED, .., Order::Ascending, |(digest, _), ()| {
            if found.last() != Some(&digest) {
                found.push(digest);
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Every segment that a session holds, sorted.
    fn segment_ids(&self) -> Result<Vec<SegmentId>, IndexError> {
        let mut found = Vec::new();
        self.scan(&SEGMENTS, .., Order::Ascending, |_, row: SegmentRow| {
            found.push(row.id);
            ControlFlow::Continue(())
        })?;
        found.sort_unstable();
        Ok(found)
    }

    /// The segments whose files are to be removed.
    fn doomed(&self) -> Result<Vec<SegmentId>, IndexError> {
        let mut found = Vec::new();
        self.scan(&DOOMED, .., Order::Ascending, |id, ()| {
            found.push(SegmentId(id));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Segments of deleted sessions that forks see only in part, because a deletion was interrupted.
    fn straddling(&self) -> Result<Vec<Straddling>, IndexError> {
        let mut tombstones = Vec::new();
        self.all_sessions(|key, row| {
            if row.deleted {
                tombstones.push(key);
            }
        })?;
        let mut found = Vec::new();
        for key in tombstones {
            let Some(cut) = self.children(key)?.into_iter().map(|(cut, _)| cut).max() else { continue };
            for (first, row) in self.own_segments(key)? {
                if first < cut && cut < first.plus(row.count) {
                    found.push(Straddling { key, first, id: row.id, cut });
                }
            }
        }
        Ok(found)
    }

    /// A number that is kept for the whole store.
    fn meta(&self, name: &str) -> Result<Option<u64>, IndexError> {
        self.get(&META, &name)
    }

    /// Reads every row of every table.
    fn check_rows(&self) -> Result<(), IndexError> {
        self.scan(&META, .., Order::Ascending, |_, _: u64| ControlFlow::Continue(()))?;
        self.scan(&NAMES, .., Order::Ascending, |_, _: SessionKey| ControlFlow::Continue(()))?;
        self.scan(&SESSIONS, .., Order::Ascending, |_, _: SessionRow| ControlFlow::Continue(()))?;
        self.scan(&ACTIVITY, .., Order::Ascending, |_, ()| ControlFlow::Continue(()))?;
        self.scan(&SEGMENTS, .., Order::Ascending, |_, _: SegmentRow| ControlFlow::Continue(()))?;
        self.scan(&CHILDREN, .., Order::Ascending, |_, ()| ControlFlow::Continue(()))?;
        self.scan(&REFERENCES, .., Order::Ascending, |_, ()| ControlFlow::Continue(()))?;
        self.scan(&REFERENCED, .., Order::Ascending, |_, ()| ControlFlow::Continue(()))?;
        self.scan(&DOOMED, .., Order::Ascending, |_, ()| ControlFlow::Continue(()))
    }
}

/// [`Rows::get`] over an open table.
pub(super) fn get_row<K: Key + 'static, R: bincode::Decode<()>>(
    path: &Path,
    table: &Table<K>,
    open: &impl ReadableTable<K, &'static [u8]>,
    key: &K::SelfType<'_>,
) -> Result<Option<R>, IndexError> {
    match open.get(key).map_err(|error| redb_error(path, "read", error.into()))? {
        Some(value) => row(path, table, key, value.value()).map(Some),
        None => Ok(None),
    }
}

/// [`Rows::scan`] over an open table.
pub(super) fn scan_rows<'k, K: Key + 'static, R: bincode::Decode<()>>(
    path: &Path,
    table: &Table<K>,
    open: &impl ReadableTable<K, &'static [u8]>,
    range: impl RangeBounds<K::SelfType<'k>> + 'k,
    order: Order,
    mut each: impl FnMut(K::SelfType<'_>, R) -> ControlFlow<()>,
) -> Result<(), IndexError> {
    let error = |error: redb::StorageError| redb_error(path, "read", error.into());
    let mut rows = open.range::<K::SelfType<'k>>(range).map_err(error)?;
    loop {
        let next = match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        };
        let Some(next) = next else { return Ok(()) };
        let (key, value) = next.map_err(error)?;
        let found = row(path, table, &key.value(), value.value())?;
        if each(key.value(), found).is_break() {
            return Ok(());
        }
    }
}

fn row<K: Key + 'static, R: bincode::Decode<()>>(
    path: &Path,
    table: &Table<K>,
    key: &K::SelfType<'_>,
    value: &[u8],
) -> Result<R, IndexError> {
    decode(table, key, value).map_err(|what| IndexError::Damaged {
        path: path.to_owned(),
        table: Some(super::rows::static_name(table)),
        key: Some(hex_key::<K>(key)),
        what: what.to_owned(),
    })
}
