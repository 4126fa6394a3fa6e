//! Tables, sizes, times and progress bars.

use std::io::{IsTerminal, Write};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

/// A table with these columns; those that begin with `#` are numbers.
pub(crate) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(columns.iter().map(|name| name.trim_start_matches('#')));
    for (index, name) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if name.starts_with('#') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// Prints one line, or several.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints `value` as one JSON document, indented.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Said(error.to_string()))?;
    line(text)
}

/// A size in bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// A time in milliseconds since the epoch, as date and time in UTC.
pub(crate) fn time(ms: u64) -> String {
    let (days, seconds) = (ms / 86_400_000, ms / 1000 % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The date `days` after 1970-01-01. After "chrono-Compatible Low-Level Date Algorithms" by
/// Howard Hinnant, `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Text of one line for a table cell: no control characters, at most `most` characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut out: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    if text.chars().count() > most {
        out.pop();
        out.push('…');
    }
    out
}

/// A progress bar over `total` steps; invisible where standard error is no terminal.
pub(crate) fn bar(total: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(time(1_700_000_000_123), "2023-11-14 22:13:20");
    }

    #[test]
    fn cells_are_one_line() {
        assert_eq!(short("a\nb\u{fffd}", 9), "a b\u{fffd}");
        assert_eq!(short("abcdef", 4), "abc…");
    }
}
