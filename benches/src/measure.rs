//! Samples and what is said of them: medians, spread, ratios.
//!
//! Owns the statistics. Machines are noisy, so whoever compares two things measures them in turns
//! (A B C A B C …) and takes the median of the ratios inside the rounds: what disturbs a round
//! disturbs both sides of its ratio.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

/// A median and where the middle of the samples lies, all in the samples' unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Half of the samples are below.
    pub median: f64,
    /// A tenth of the samples is below.
    pub p10: f64,
    /// Nine tenths are below.
    pub p90: f64,
    /// Ninety-nine hundredths are below.
    pub p99: f64,
    /// How many samples there were.
    pub samples: usize,
}

/// Numbers of one unit, in the order in which they were measured.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// No samples yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sample.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds a duration, in microseconds.
    pub fn push_micros(&mut self, took: Duration) {
        self.0.push(micros(took));
    }

    /// Adds every sample of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// The median; zero where there is no sample.
    pub fn median(&self) -> f64 {
        self.summary().median
    }

    /// What is said of the samples. O(n log n).
    pub fn summary(&self) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        Summary {
            median: quantile(&sorted, 0.5),
            p10: quantile(&sorted, 0.1),
            p90: quantile(&sorted, 0.9),
            p99: quantile(&sorted, 0.99),
            samples: sorted.len(),
        }
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// The value below which the share `part` of `sorted` lies, between its two neighbours.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = part * as_f64(last);
    let below = place.floor();
    #[expect(clippy::cast_sign_loss, reason = "a place is between zero and the last index")]
    let index = below as usize;
    let low = sorted.get(index).copied().unwrap_or_default();
    let high = sorted.get(index + 1).copied().unwrap_or(low);
    low + (high - low) * (place - below)
}

/// A count as a number to divide with.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
pub fn as_f64(count: usize) -> f64 {
    count as f64
}

/// A number of bytes as a number to divide with.
#[expect(clippy::cast_precision_loss, reason = "bytes of a benchmark are far below 2^53")]
pub fn bytes_f64(bytes: u64) -> f64 {
    bytes as f64
}

/// A duration in microseconds.
pub fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

/// Runs `work` and gives how long it took, with what it gave.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let made = black_box(work());
    (start.elapsed(), made)
}

/// What several things cost, measured in turns: one row of rounds for each.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// For each thing, its samples round by round.
    lanes: Vec<Vec<Samples>>,
}

impl Rounds {
    /// Rounds of `lanes` things.
    pub fn new(lanes: usize) -> Self {
        Self { lanes: vec![Vec::new(); lanes] }
    }

    /// Adds what the thing at `lane` gave in the round that is on.
    pub fn push(&mut self, lane: usize, round: Samples) {
        if let Some(rounds) = self.lanes.get_mut(lane) {
            rounds.push(round);
        }
    }

    /// Every sample of the thing at `lane`.
    pub fn all(&self, lane: usize) -> Summary {
        let mut all = Samples::new();
        for round in self.lanes.get(lane).into_iter().flatten() {
            all.extend(round);
        }
        all.summary()
    }

    /// The ratio of the thing at `lane` to the one at `base`: one ratio of medians a round.
    pub fn ratio(&self, lane: usize, base: usize) -> Summary {
        let (Some(of), Some(to)) = (self.lanes.get(lane), self.lanes.get(base)) else {
            return Summary::default();
        };
        of.iter().zip(to).map(|(of, to)| of.median() / to.median()).collect::<Samples>().summary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        let summary = (1..=5).map(f64::from).collect::<Samples>().summary();
        assert_eq!((summary.p10, summary.median, summary.p90), (1.4, 3.0, 4.6));
        assert!(Samples::new().summary().median.abs() < f64::EPSILON);
    }

    #[test]
    fn a_slow_round_does_not_move_a_ratio() {
        let mut rounds = Rounds::new(2);
        for slow in [1.0, 1.0, 50.0, 1.0] {
            rounds.push(0, [2.0 * slow].into_iter().collect());
            rounds.push(1, [slow].into_iter().collect());
        }
        assert!((rounds.ratio(0, 1).p90 - 2.0).abs() < f64::EPSILON);
    }
}
