//! What a run says: rows, ratios, targets; as a table or as JSON.
//!
//! Owns the targets' names and both forms. Measures nothing.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::measure::Summary;

/// What must hold, one for each row of the table of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Goal {
    /// Durable append of 1 and of 8 events.
    DurableAppend,
    /// 64 sessions that append durably at once.
    Fanout,
    /// Buffered append.
    BufferedAppend,
    /// Next request after 2 new events.
    NextRequest,
    /// 40 live requests after 800 turns.
    LiveRequests,
    /// Replace in a surface of 100,000 nodes.
    Replace,
    /// Open of a closed session and its next request.
    Open,
    /// Full rebuild and verify of all requests.
    Rebuild,
    /// Stored size.
    Size,
    /// Memory of an open session.
    Memory,
    /// Open of a store with 100,000 sessions and a list of the newest 50.
    List,
    /// Images into the store and out of it.
    Objects,
    /// A provider's next body.
    Bodies,
}

impl Goal {
    /// Every goal, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::DurableAppend,
        Self::Fanout,
        Self::BufferedAppend,
        Self::NextRequest,
        Self::LiveRequests,
        Self::Replace,
        Self::Open,
        Self::Rebuild,
        Self::Size,
        Self::Memory,
        Self::List,
        Self::Objects,
        Self::Bodies,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DurableAppend => "durable append of 1 and of 8 events",
            Self::Fanout => "64 sessions appending durably at once",
            Self::BufferedAppend => "buffered append",
            Self::NextRequest => "next request after 2 new events",
            Self::LiveRequests => "40 live requests after 800 turns",
            Self::Replace => "replace in a surface of 100,000 nodes",
            Self::Open => "open a closed session and build its next request",
            Self::Rebuild => "full rebuild and verify of all requests from the log",
            Self::Size => "stored size",
            Self::Memory => "memory of an open session",
            Self::List => "open of a store with 100,000 sessions and listing the newest 50",
            Self::Objects => "images of 1 and 20 MB, put and get",
            Self::Bodies => "a provider's next body",
        }
    }
}

/// A bound on a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => least <= value,
        }
    }

    fn figure(self) -> f64 {
        match self {
            Self::AtMost(figure) | Self::AtLeast(figure) => figure,
        }
    }

    /// How much of what is allowed the value takes; one is all.
    fn share(self, value: f64) -> f64 {
        match self {
            Self::AtMost(most) => value / most,
            Self::AtLeast(least) => least / value,
        }
    }
}

/// One figure that a goal asks for.
#[derive(Clone, Debug, Serialize)]
struct Part {
    #[serde(skip)]
    goal: Option<Goal>,
    what: String,
    value: f64,
    target: f64,
    at: &'static str,
    unit: &'static str,
    met: bool,
    #[serde(skip)]
    share: f64,
}

/// One measured thing.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Path and size: `append/synced/1x1.2KB`.
    path: String,
    /// Who was measured.
    who: String,
    unit: &'static str,
    #[serde(flatten)]
    summary: Summary,
    /// The ratio to another one of the same path.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Ratio>,
}

#[derive(Clone, Debug, Serialize)]
struct Ratio {
    to: String,
    #[serde(flatten)]
    summary: Summary,
}

impl Row {
    /// A row without a ratio.
    pub fn new(
        path: impl Into<String>,
        who: impl Into<String>,
        unit: &'static str,
        summary: Summary,
    ) -> Self {
        Self { path: path.into(), who: who.into(), unit, summary, ratio: None }
    }

    /// With its ratio to `to`.
    #[must_use]
    pub fn against(mut self, to: impl Into<String>, summary: Summary) -> Self {
        self.ratio = Some(Ratio { to: to.into(), summary });
        self
    }
}

/// A single figure as a summary.
pub fn figure(value: f64) -> Summary {
    Summary { median: value, p10: value, p90: value, p99: value, samples: 1 }
}

/// Everything that a run found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    machine: String,
    quick: bool,
    rows: Vec<Row>,
    #[serde(skip)]
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Target<'a> {
    name: &'static str,
    /// The figure that comes closest to its bound, or goes furthest over it.
    value: Option<f64>,
    target: Option<f64>,
    met: bool,
    parts: Vec<&'a Part>,
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a Report,
    targets: Vec<Target<'a>>,
}

impl Report {
    /// A report of nothing yet, from the machine that is described so.
    pub fn new(machine: String, quick: bool) -> Self {
        Self { machine, quick, ..Self::default() }
    }

    /// Adds a row.
    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a figure that `goal` asks for.
    pub fn goal(&mut self, goal: Goal, what: &str, unit: &'static str, value: f64, bound: Bound) {
        let at = match bound {
            Bound::AtMost(_) => "most",
            Bound::AtLeast(_) => "least",
        };
        self.parts.push(Part {
            goal: Some(goal),
            what: what.to_owned(),
            value,
            target: bound.figure(),
            at,
            unit,
            met: bound.holds(value),
            share: bound.share(value),
        });
    }

    fn targets(&self) -> Vec<Target<'_>> {
        let targets = Goal::ALL.into_iter().map(|goal| {
            let parts: Vec<&Part> = self.parts.iter().filter(|part| part.goal == Some(goal)).collect();
            let worst = parts.iter().max_by(|a, b| a.share.total_cmp(&b.share));
            Target {
                name: goal.name(),
                value: worst.map(|part| part.value),
                target: worst.map(|part| part.target),
                met: !parts.is_empty() && parts.iter().all(|part| part.met),
                parts,
            }
        });
        targets.collect()
    }

    /// Whether every target that was measured is met.
    pub fn all_met(&self) -> bool {
        self.parts.iter().all(|part| part.met)
    }

    /// The report as JSON; the targets come last.
    ///
    /// # Errors
    ///
    /// None that a report of numbers could cause.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&Whole { report: self, targets: self.targets() })
    }

    /// The report as tables.
    pub fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["path", "", "median", "10–90 %", "ratio", "10–90 %", "to"]);
        for row in &self.rows {
            let (ratio, spread, to) = row.ratio.as_ref().map_or_else(Default::default, |ratio| {
                let of = &ratio.summary;
                (
                    format!("{}x", short(of.median)),
                    format!("{}–{}", short(of.p10), short(of.p90)),
                    ratio.to.clone(),
                )
            });
            let of = &row.summary;
            let range =
                if of.samples > 1 { format!("{}–{}", short(of.p10), short(of.p90)) } else { String::new() };
            let median = format!("{} {}", short(of.median), row.unit);
            table.add_row([row.path.clone(), row.who.clone(), median, range, ratio, spread, to]);
        }
        right(&mut table, &[2, 3, 4, 5]);
        let mut targets = Table::new();
        targets.load_style(UTF8_FULL_CONDENSED);
        targets.set_header(["target", "figure", "value", "at", "bound", "met"]);
        for target in self.targets() {
            let mut name = target.name;
            for part in target.parts {
                targets.add_row([
                    name.to_owned(),
                    part.what.clone(),
                    format!("{} {}", short(part.value), part.unit),
                    format!("at {}", part.at),
                    format!("{} {}", short(part.target), part.unit),
                    if part.met { "yes" } else { "NO" }.to_owned(),
                ]);
                name = "";
            }
        }
        right(&mut targets, &[2, 4]);
        format!("{}\n{table}\n{targets}", self.machine)
    }
}

fn right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// A number with three digits that count.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_when_each_of_its_figures_is() {
        let mut report = Report::new("a machine".to_owned(), true);
        report.goal(Goal::Size, "steps", "x", 0.5, Bound::AtMost(0.6));
        report.goal(Goal::Size, "long", "x", 0.9, Bound::AtMost(0.6));
        report.goal(Goal::Rebuild, "rebuild", "MB/s", 500.0, Bound::AtLeast(400.0));
        let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
        let targets = json["targets"].as_array().unwrap();
        assert_eq!(targets.len(), Goal::ALL.len());
        let of = |goal: Goal| targets.iter().find(|target| target["name"] == goal.name()).unwrap();
        assert_eq!((&of(Goal::Size)["value"], &of(Goal::Size)["met"]), (&0.9.into(), &false.into()));
        assert_eq!(of(Goal::Rebuild)["met"], true);
        assert_eq!(of(Goal::List)["met"], false, "what was not measured is not met");
        assert!(report.to_text().contains("stored size"));
    }
}
