//! Memory of an open session: the most that a process of its own had resident.
//!
//! A child process opens the store, the session and its next request, and prints what the kernel
//! counted (`VmHWM` of `/proc/self/status`) before and after. Where the system has no such count,
//! nothing is reported.

use std::fs;
use std::path::Path;
use std::process::Command;

use rederive_engine::{SessionId, Store};
use rederive_fuzz::workload::{self, Lines};
use rederive_projection::Projector;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::open::Closed;
use crate::data::SEED;
use crate::measure::{as_f64, bytes_f64};
use crate::peers;
use crate::report::{Bound, Goal, Report, Row, figure};
use crate::{BenchError, during};

/// What a child process prints.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Resident {
    /// Bytes of the live messages.
    pub live_bytes: u64,
    /// Most that was resident before the store was opened, in bytes.
    pub before: u64,
    /// Most that was resident once the request stood, in bytes.
    pub after: u64,
}

/// The work of the child process.
///
/// # Errors
///
/// [`BenchError::Failed`].
pub fn child(folder: &Path, id: &str) -> Result<Resident, BenchError> {
    let id = SessionId::new(id).ok_or_else(|| BenchError::Unfit("no session name".into()))?;
    let before = peak_bytes()?;
    let store = Store::open(folder).map_err(during("open a store"))?;
    let session = store.open_session(&id).map_err(during("open a session"))?;
    let fold = session.fold();
    let request = Projector::new().request(&fold).map_err(during("build a request"))?;
    let after = peak_bytes()?;
    let live_bytes = request.bytes();
    session.close().map_err(during("close a session"))?;
    Ok(Resident { live_bytes, before, after })
}

/// The most that this process ever had resident, in bytes.
fn peak_bytes() -> Result<u64, BenchError> {
    let status = fs::read_to_string("/proc/self/status").map_err(during("read /proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map(|kb| kb * 1024).ok_or_else(|| BenchError::Unfit("the kernel does not count VmHWM".into()))
}

/// Fills `report` with the memory of open sessions; `program` makes the child process.
///
/// # Errors
///
/// A [`BenchError`].
pub fn run(settings: &Settings, report: &mut Report, program: &Path) -> Result<(), BenchError> {
    if !Path::new("/proc/self/status").exists() {
        return Ok(());
    }
    let steps = settings.pick(2_000, 200);
    one(settings, report, program, "steps", workload::steps(SEED, steps))?;
    let long = settings.pick(workload::long(SEED), workload::long_of(SEED, 1_500, 100, 200));
    one(settings, report, program, "long", long)
}

fn one(
    settings: &Settings,
    report: &mut Report,
    program: &Path,
    name: &str,
    lines: Lines,
) -> Result<(), BenchError> {
    let closed = Closed::of(settings, lines)?;
    let output = Command::new(program)
        .args(["--child-memory", closed.id().as_str()])
        .arg("--folder")
        .arg(closed.folder())
        .output()
        .map_err(during("start a child process"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BenchError::Unfit(format!("the child process failed: {said}")));
    }
    let resident: Resident =
        serde_json::from_slice(&output.stdout).map_err(during("read what the child printed"))?;
    let grew = bytes_f64(resident.after.saturating_sub(resident.before));
    let live = bytes_f64(resident.live_bytes);
    let own = peers::REDERIVE.name;
    report.row(Row::new(format!("memory/{name}/live_messages"), own, "MB", figure(live / 1e6)));
    report.row(Row::new(
        format!("memory/{name}/log_text"),
        own,
        "MB",
        figure(as_f64(closed.text().len()) / 1e6),
    ));
    report.row(
        Row::new(format!("memory/{name}/open_session"), own, "MB", figure(grew / 1e6))
            .against("live messages", figure(grew / live)),
    );
    let bound = 1.5 * live + 4.0 * 1024.0 * 1024.0;
    report.goal(Goal::Memory, name, "of 1.5x live + 4 MiB", grew / bound, Bound::AtMost(1.0));
    Ok(())
}
