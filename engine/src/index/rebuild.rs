//! A fresh index from the segment files alone.
//!
//! What only the index knew is lost: sessions of which nothing was sealed, owners, and that a
//! session was deleted while forks share its segments (it comes back as far as they share it).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rederive_disk::Disk;

use super::rows::{SegmentRow, SessionRow};
use super::view::View;
use super::{Index, IndexError, IndexOptions};
use crate::event::HeaderLine;
use crate::fold::Checkpoint;
use crate::ids::{SegmentId, Seq, SessionKey};
use crate::segment::{SegmentError, SegmentMeta, SegmentReader, list_segments, segment_path};

/// What a rebuild found.
#[derive(Debug, Default)]
pub(crate) struct Rebuilt {
    pub(crate) sessions: u64,
    pub(crate) segments: u64,
    /// Segments that do not read.
    pub(crate) damaged: Vec<SegmentError>,
    /// Segments that no session takes in: replaced by a merged one, or behind a gap.
    pub(crate) left_over: Vec<SegmentId>,
    /// Sessions whose log has a gap, and the first seq that is missing.
    pub(crate) gaps: Vec<(SessionKey, Seq)>,
    /// Files that are no segments.
    pub(crate) others: Vec<PathBuf>,
}

struct Found {
    row: SegmentRow,
    meta: SegmentMeta,
    end: Checkpoint,
    references: Vec<[u8; 32]>,
}

impl Index {
    /// Makes the index at `path`, where none may be, from the segments under `folder`.
    ///
    /// Keys below `next_key` are not given out again, whatever the segments say: name one above
    /// all that the journals mention. Reads the small sections of every segment.
    pub(crate) fn rebuild(
        disk: &Arc<dyn Disk>,
        path: &Path,
        folder: &Path,
        options: &IndexOptions,
        next_key: SessionKey,
    ) -> Result<(Self, Rebuilt), IndexError> {
        let mut rebuilt = Rebuilt::default();
        let files = list_segments(disk.as_ref(), folder)?;
        rebuilt.others = files.others;
        let mut sessions: BTreeMap<SessionKey, BTreeMap<(Seq, SegmentId), Found>> = BTreeMap::new();
        let mut next_segment = SegmentId(1);
        for (id, _) in files.segments {
            next_segment = next_segment.max(SegmentId(id.value().saturating_add(1)));
            match read(disk.as_ref(), folder, id) {
                Ok((key, first, found)) => {
                    sessions.entry(key).or_default().insert((first, id), found);
                }
                Err(error) => rebuilt.damaged.push(error),
            }
        }
        let index = Self::create(disk, path, options)?;
        let highest = sessions.keys().next_back().map_or(1, |key| key.value().saturating_add(1));
        index.write(|tx| {
            tx.raise_numbers(next_key.max(SessionKey(highest)), next_segment)?;
            for (key, segments) in &sessions {
                let Some(row) = session_row(*key, segments.values(), &mut rebuilt) else { continue };
                let (mut due, mut row) = (row.sealed_to, row);
                let mut taken = Vec::new();
                loop {
                    // A merged segment was written later than what it replaced.
                    let next = segments.range((due, SegmentId(0))..=(due, SegmentId(u64::MAX))).next_back();
                    let Some(((first, id), found)) = next else { break };
                    tx.add_segment(*key, *first, found.row, &found.references)?;
                    due = first.plus(found.row.count);
                    row.stored_bytes += found.row.stored_bytes;
                    row.references += found.references.len() as u64;
                    row.last_segment = Some(*id);
                    row.types.clone_from(&found.meta.types);
                    row.events = found.end.next.value();
                    row.line_bytes = found.end.counters.line_bytes;
                    row.settlements = found.end.counters.settlements;
                    row.last_activity_ms = found.end.counters.last_activity_ms.max(row.created_at_ms);
                    if !row.deleted {
                        row.title.clone_from(&found.end.title);
                    }
                    taken.push(*id);
                }
                row.sealed_to = due;
                rebuilt.segments += taken.len() as u64;
                if segments.keys().any(|(first, _)| *first > due) {
                    rebuilt.gaps.push((*key, due));
                }
                let all = segments.keys().map(|(_, id)| *id);
                rebuilt.left_over.extend(all.filter(|id| !taken.contains(id)));
                // A name that was deleted and given again belongs to the later session. What the
                // earlier one shared may be needed by a fork that does not read today.
                if let Some(earlier) = tx.key_of(&row.id)? {
                    tx.bury(earlier)?;
                }
                tx.insert_session(*key, &row)?;
                rebuilt.sessions += 1;
            }
            Ok(())
        })?;
        Ok((index, rebuilt))
    }
}

impl Index {
    /// Corrects a rebuilt index by the rows of the old one, which is sound: sessions that were
    /// deleted go again, and sessions of which nothing was sealed come back.
    pub(crate) fn reconcile(&self, known: &BTreeMap<SessionKey, SessionRow>) -> Result<(), IndexError> {
        self.write(|tx| {
            let mut rebuilt = BTreeMap::new();
            tx.all_sessions(|key, row| {
                rebuilt.insert(key, row);
            })?;
            for (key, row) in known.iter().filter(|(key, row)| !row.deleted && !rebuilt.contains_key(key)) {
                let start = row.base.map_or(Seq::FIRST, |base| base.cut);
                let fresh = SessionRow {
                    owner: None,
                    sealed_to: start,
                    last_segment: None,
                    events: start.value(),
                    stored_bytes: 0,
                    references: 0,
                    ..row.clone()
                };
                // The name may belong to what the segments gave back of a deleted session.
                if let Some(earlier) = tx.key_of(&row.id)? {
                    tx.delete_session(earlier)?;
                }
                tx.insert_session(*key, &fresh)?;
            }
            for (key, row) in &rebuilt {
                let is_known = known.get(key).is_some_and(|known| !known.deleted);
                if !row.deleted && !is_known && tx.session(*key)?.is_some_and(|row| !row.deleted) {
                    tx.delete_session(*key)?;
                }
            }
            Ok(())
        })
    }
}

fn read(disk: &dyn Disk, folder: &Path, id: SegmentId) -> Result<(SessionKey, Seq, Found), SegmentError> {
    let reader = SegmentReader::open(disk, &segment_path(folder, id), id)?;
    let (stored_bytes, raw_bytes) = reader.stored_and_raw_bytes();
    let found = Found {
        row: SegmentRow { id, count: reader.count(), raw_bytes, stored_bytes },
        meta: reader.meta()?,
        end: reader.checkpoint()?,
        references: reader.references()?,
    };
    Ok((reader.key(), reader.first_seq(), found))
}

/// The row of a session before its first segment.
fn session_row<'a>(
    key: SessionKey,
    mut segments: impl Iterator<Item = &'a Found>,
    rebuilt: &mut Rebuilt,
) -> Option<SessionRow> {
    let meta = &segments.next()?.meta;
    let base = meta.base.filter(|base| base.key < key);
    let sealed_to = base.map_or(Seq::FIRST, |base| base.cut);
    if meta.header_line.is_empty() {
        // Of a deleted session, kept because forks share it.
        return Some(SessionRow {
            id: String::new(),
            header_line: String::new(),
            created_at_ms: 0,
            cwd: None,
            parent: None,
            base,
            owner: None,
            sealed_to,
            last_segment: None,
            title: None,
            events: sealed_to.value(),
            line_bytes: 0,
            stored_bytes: 0,
            last_activity_ms: 0,
            settlements: 0,
            references: 0,
            types: Vec::new(),
            deleted: true,
        });
    }
    let Ok(header) = HeaderLine::read(&meta.header_line) else {
        rebuilt.gaps.push((key, Seq::FIRST));
        return None;
    };
    Some(SessionRow {
        id: header.id().as_str().to_owned(),
        header_line: meta.header_line.clone(),
        created_at_ms: header.created_at_ms(),
        cwd: header.cwd().map(str::to_owned),
        parent: header.parent_session().map(str::to_owned),
        base,
        owner: None,
        sealed_to,
        last_segment: None,
        title: None,
        events: sealed_to.value(),
        line_bytes: 0,
        stored_bytes: 0,
        last_activity_ms: header.created_at_ms(),
        settlements: 0,
        references: 0,
        types: meta.types.clone(),
        deleted: false,
    })
}
