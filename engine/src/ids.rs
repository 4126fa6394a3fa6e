//! Numbers and names that must not be mixed up.
//!
//! Owns the newtypes of the engine. Knows nothing else.

use std::fmt;
use std::sync::Arc;

/// Position of an event in its session's log: contiguous, from zero, never reused.
///
/// Eight bytes on disk, little-endian (FORMAT.md § Numbers).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, bincode::Encode, bincode::Decode,
)]
pub struct Seq(u64);

impl Seq {
    /// The first event of every log.
    pub const FIRST: Self = Self(0);

    /// The position `value` events behind the first.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The plain number.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The position after this one; stays at the end where the numbers end.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The position before this one; `None` before the first.
    pub fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// The position `events` further on.
    #[must_use]
    pub const fn plus(self, events: u64) -> Self {
        Self(self.0.saturating_add(events))
    }

    /// How many events lie between `earlier` (inclusive) and this position (exclusive); zero where
    /// `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many replaces a surface has seen.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, bincode::Encode, bincode::Decode,
)]
pub struct Generation(u64);

impl Generation {
    /// A surface that has seen `replaces` replaces.
    pub const fn new(replaces: u64) -> Self {
        Self(replaces)
    }

    /// The plain number.
    pub const fn value(self) -> u64 {
        self.0
    }

    #[must_use]
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a node stands on the surface: the seq of the append that first took the place.
///
/// A replacing node inherits the place of the first node that it shadows, so places stay in
/// surface order for ever and no replace renumbers anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, bincode::Encode, bincode::Decode)]
pub struct Place(pub(crate) u64);

impl Place {
    /// The plain number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// The name of a session, as its host chose it: any text of 1 to 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Longest name, in bytes.
    pub const BYTES_MAX: usize = 512;

    /// Takes `name` as a session's name; `None` where it is empty or longer than
    /// [`SessionId::BYTES_MAX`].
    pub fn new(name: &str) -> Option<Self> {
        (!name.is_empty() && name.len() <= Self::BYTES_MAX).then(|| Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The store's own number for a session: given once, never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, bincode::Encode, bincode::Decode)]
pub struct SessionKey(pub(crate) u64);

impl SessionKey {
    /// The plain number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a segment file: given once, never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, bincode::Encode, bincode::Decode)]
pub struct SegmentId(pub(crate) u64);

impl SegmentId {
    /// The plain number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
