//! Seeds: small numbers that choose everything.

/// SplitMix64, which is enough to choose operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number under `bound`; zero for a bound of zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// Whether the long form of a test was asked for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("REDERIVE_LONG").is_some_and(|value| value != "0" && !value.is_empty())
}

/// The seeds of a test: `few`, or `many` with `REDERIVE_LONG=1`, or as many as `REDERIVE_SEEDS`
/// says. `REDERIVE_SEED` takes that one alone.
pub(crate) fn seeds(few: u64, many: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("REDERIVE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("REDERIVE_SEEDS").unwrap_or(if is_long() { many } else { few })).collect(),
    }
}

/// Runs `check` on each case, on two threads; the cases are independent of each other.
pub(crate) fn in_parallel<C: Sync, R: Send>(cases: &[C], check: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            results.push(check(case));
        }
        results
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut results = work();
        results.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results
    })
}

/// Names the case in which a test panics, wherever that is.
pub(crate) struct Named(pub(crate) String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case: {}", self.0);
        }
    }
}
