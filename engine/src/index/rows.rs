//! The tables and their rows.
//!
//! A value is a version byte, the row in bincode, and eight bytes of BLAKE3 over table, key, version
//! and row: redb trusts its file, so a row says itself whether it is right. Bytes: FORMAT.md § Index.

use redb::{Key, TableDefinition};

use crate::ids::{SegmentId, Seq, SessionKey};
use crate::segment::Base;

/// A table whose values are checked rows.
pub(super) type Table<K> = TableDefinition<'static, K, &'static [u8]>;

/// What is counted once for the whole store.
pub(super) const META: Table<&'static str> = TableDefinition::new("meta.v1");
/// Session names.
pub(super) const NAMES: Table<&'static str> = TableDefinition::new("names.v1");
/// Sessions by key.
pub(super) const SESSIONS: Table<u64> = TableDefinition::new("sessions.v1");
/// Sessions by activity, the newest first: both numbers counted down from 2⁶⁴ - 1.
pub(super) const ACTIVITY: Table<(u64, u64)> = TableDefinition::new("activity.v1");
/// Segments by session and first seq.
pub(super) const SEGMENTS: Table<(u64, u64)> = TableDefinition::new("segments.v1");
/// Forks: parent, cut, child.
pub(super) const CHILDREN: Table<(u64, u64, u64)> = TableDefinition::new("children.v1");
/// Objects by the segment that references them.
pub(super) const REFERENCES: Table<(u64, [u8; 32])> = TableDefinition::new("references.v1");
/// The same the other way round.
pub(super) const REFERENCED: Table<([u8; 32], u64)> = TableDefinition::new("referenced.v1");
/// Segments whose files are to be removed.
pub(super) const DOOMED: Table<u64> = TableDefinition::new("doomed.v1");

/// Who writes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Owner {
    /// The owner's journal.
    pub slot: u32,
    /// The owner's process id.
    pub pid: u32,
}

/// What the index knows of a session.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct SessionRow {
    pub(crate) id: String,
    /// The verbatim header line, without a line feed.
    pub(crate) header_line: String,
    pub(crate) created_at_ms: u64,
    pub(crate) cwd: Option<String>,
    /// The name of the session that this one was made from, as the header line says.
    pub(crate) parent: Option<String>,
    pub(crate) base: Option<Base>,
    pub(crate) owner: Option<Owner>,
    /// Behind the last sealed event; the cut, or zero, where nothing was sealed.
    pub(crate) sealed_to: Seq,
    pub(crate) last_segment: Option<SegmentId>,
    pub(crate) title: Option<String>,
    /// Events, inherited ones too, as far as sealed.
    pub(crate) events: u64,
    pub(crate) line_bytes: u64,
    /// Bytes of the session's own segment files.
    pub(crate) stored_bytes: u64,
    pub(crate) last_activity_ms: u64,
    pub(crate) settlements: u64,
    /// References to objects from the session's own segments; one object in two segments counts
    /// twice.
    pub(crate) references: u64,
    pub(crate) types: Vec<String>,
    /// A tombstone: deleted, while forks still share its segments.
    pub(crate) deleted: bool,
}

/// What the index knows of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct SegmentRow {
    pub(crate) id: SegmentId,
    pub(crate) count: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) stored_bytes: u64,
}

const ROW_VERSION: u8 = 1;
const CHECKSUM_LEN: usize = 8;
/// The most that a row claims while it is read.
const ROW_BYTES_MAX: usize = 256 << 20;

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<ROW_BYTES_MAX>()
}

/// The value that stores `row` under `key`.
pub(super) fn encode<K: Key>(table: &Table<K>, key: &K::SelfType<'_>, row: &impl bincode::Encode) -> Vec<u8> {
    use redb::TableHandle;
    let mut value = vec![ROW_VERSION];
    // Writing plain records to memory has no way to fail.
    value.extend(bincode::encode_to_vec(row, config()).unwrap_or_default());
    let checksum = checksum(table.name(), K::as_bytes(key).as_ref(), &value);
    value.extend_from_slice(&checksum);
    value
}

/// The row that `value` stores under `key`; the text says what is wrong with it.
pub(super) fn decode<K: Key, R: bincode::Decode<()>>(
    table: &Table<K>,
    key: &K::SelfType<'_>,
    value: &[u8],
) -> Result<R, &'static str> {
    use redb::TableHandle;
    let split = value.len().checked_sub(CHECKSUM_LEN).and_then(|at| value.split_at_checked(at));
    let (row, claimed) = split.ok_or("the row is too short")?;
    if checksum(table.name(), K::as_bytes(key).as_ref(), row) != claimed {
        return Err("the row's checksum differs");
    }
    let (version, row) = row.split_first().ok_or("the row is too short")?;
    if *version != ROW_VERSION {
        return Err("the row's version is unknown");
    }
    match bincode::decode_from_slice(row, config()) {
        Ok((decoded, used)) if used == row.len() => Ok(decoded),
        _ => Err("the row does not read"),
    }
}

pub(super) fn hex_key<K: Key>(key: &K::SelfType<'_>) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in K::as_bytes(key).as_ref() {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn checksum(table: &str, key: &[u8], row: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = blake3::Hasher::new();
    for part in [table.as_bytes(), key] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.update(row);
    let mut out = [0; CHECKSUM_LEN];
    for (to, from) in out.iter_mut().zip(hasher.finalize().as_bytes()) {
        *to = *from;
    }
    out
}

/// The key of `activity.v1`.
pub(super) fn activity_key(last_activity_ms: u64, key: SessionKey) -> (u64, u64) {
    (u64::MAX - last_activity_ms, u64::MAX - key.value())
}

/// The names of all tables.
pub(super) const TABLES: [&str; 9] = [
    "meta.v1",
    "names.v1",
    "sessions.v1",
    "activity.v1",
    "segments.v1",
    "children.v1",
    "references.v1",
    "referenced.v1",
    "doomed.v1",
];

/// The table's name, for errors.
pub(super) fn static_name<K: Key>(table: &Table<K>) -> &'static str {
    use redb::TableHandle;
    TABLES.iter().copied().find(|name| *name == table.name()).unwrap_or_default()
}
