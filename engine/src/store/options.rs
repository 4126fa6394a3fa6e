//! How a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::types::TypeRegistry;

/// Gives the time in milliseconds since the epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How a store is opened. Every limit has a default that suits an agent host.
///
/// ```
/// use rederive_engine::StoreOptions;
///
/// let options = StoreOptions::default().event_bytes_max(1 << 20).register_type("my-host/progress");
/// ```
#[derive(Clone)]
pub struct StoreOptions {
    pub(crate) event_bytes_max: u64,
    pub(crate) batch_bytes_max: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) journal_switch_bytes: u64,
    pub(crate) idle_seal: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) zstd_level: i32,
    pub(crate) types: TypeRegistry,
    pub(crate) clock: Clock,
    pub(crate) seal_inline: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            event_bytes_max: crate::EVENT_BYTES_MAX_DEFAULT,
            batch_bytes_max: crate::EVENT_BYTES_MAX_DEFAULT,
            segment_bytes: 1024 * 1024,
            journal_switch_bytes: 8 * 1024 * 1024,
            idle_seal: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(10),
            zstd_level: 3,
            types: TypeRegistry::new(),
            clock: Arc::new(system_time_ms),
            seal_inline: false,
        }
    }
}

fn system_time_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

impl StoreOptions {
    /// Largest admitted event, in bytes of its line. Default 64 MiB; from 1 to 1 GiB.
    #[must_use]
    pub fn event_bytes_max(mut self, bytes: u64) -> Self {
        self.event_bytes_max = bytes.clamp(1, 1 << 30);
        self
    }

    /// Largest admitted batch, in bytes of its lines. Default 64 MiB; from 1 to 1 GiB.
    #[must_use]
    pub fn batch_bytes_max(mut self, bytes: u64) -> Self {
        self.batch_bytes_max = bytes.clamp(1, 1 << 30);
        self
    }

    /// From how many bytes of unsealed lines on a session is sealed. Default 1 MiB; at least 4 KiB.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.max(4096);
        self
    }

    /// From how many bytes on appends leave one journal file for the other. Default 8 MiB.
    #[must_use]
    pub fn journal_switch_bytes(mut self, bytes: u64) -> Self {
        self.journal_switch_bytes = bytes;
        self
    }

    /// After how much quiet a session with an unsealed tail is sealed. Default 5 s.
    #[must_use]
    pub fn idle_seal(mut self, quiet: Duration) -> Self {
        self.idle_seal = quiet;
        self
    }

    /// How long to wait for another process to let go of the index. Default 10 s.
    #[must_use]
    pub fn lock_timeout(mut self, longest: Duration) -> Self {
        self.lock_timeout = longest;
        self
    }

    /// Level of zstd for segments, from 1 (fastest) to 19. Default 3.
    #[must_use]
    pub fn zstd_level(mut self, level: i32) -> Self {
        self.zstd_level = level.clamp(1, 19);
        self
    }

    /// Registers the log-only type `name`; a name that belongs to the format, or is no usable name,
    /// changes nothing.
    #[must_use]
    pub fn register_type(mut self, name: &str) -> Self {
        self.types.register(name);
        self
    }

    /// Registers every type of `types`.
    #[must_use]
    pub fn register_types(mut self, types: &TypeRegistry) -> Self {
        self.types.merge(types);
        self
    }

    /// Takes the time from `clock` instead of the system.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Seals on the threads that ask for it and never by itself, so that a run can be repeated. For
    /// tests.
    #[doc(hidden)]
    #[must_use]
    pub fn seal_inline(mut self) -> Self {
        self.seal_inline = true;
        self
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("event_bytes_max", &self.event_bytes_max)
            .field("segment_bytes", &self.segment_bytes)
            .field("idle_seal", &self.idle_seal)
            .finish_non_exhaustive()
    }
}
