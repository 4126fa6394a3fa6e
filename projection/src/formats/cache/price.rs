//! What a request costs, by a table that the host gives.

use serde::Deserialize;

/// Prices of the models that a pattern names, in millionths of a currency unit for a million
/// tokens (3,000,000 is 3.00 for a million tokens).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The model; a `*` at the end stands for anything.
    pub model: String,
    /// Input that is neither read from the cache nor written to it.
    pub input: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Input written to the cache.
    pub cache_write: u64,
    /// Output.
    pub output: u64,
}

/// A dated list of prices; the first line that fits counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// The day of the prices.
    pub date: String,
    /// The lines.
    pub prices: Vec<Price>,
}

/// Tokens of one request, as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input that is neither read from the cache nor written to it.
    pub input: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Input written to the cache.
    pub cache_write: u64,
    /// Output.
    pub output: u64,
}

impl PriceTable {
    /// The price of `usage`, in millionths of the currency unit, rounded down; `None` where no
    /// line names the model, or the sum is beyond counting.
    pub fn cost(&self, model: &str, usage: Usage) -> Option<u64> {
        let price = self.prices.iter().find(|price| super::glob(&price.model, model))?;
        let terms = [
            (usage.input, price.input),
            (usage.cache_read, price.cache_read),
            (usage.cache_write, price.cache_write),
            (usage.output, price.output),
        ];
        let sum: u128 = terms.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        u64::try_from(sum / 1_000_000).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_costs_a_tenth_and_a_write_a_quarter_more() {
        let text = r#"{"date":"2026-12-01","prices":[{"model":"m-*","input":3000000,"cache_read":300000,"cache_write":3750000,"output":15000000}]}"#;
        let table: PriceTable = serde_json::from_str(text).unwrap();
        let usage = Usage { input: 1_000, cache_read: 100_000, cache_write: 2_000, output: 100 };
        assert_eq!(table.cost("m-1", usage), Some(3_000 + 30_000 + 7_500 + 1_500));
        assert_eq!(table.cost("other", usage), None);
    }
}
