//! Rederive and its peers in one run: a table of figures and ratios, and the targets.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the command alone prints")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rederive_benches::paths::{
    Settings, append, bodies, live, many, memory, objects, open, rebuild, size, wear,
};
use rederive_benches::report::Report;
use rederive_benches::{BenchError, during};

/// Measures Rederive beside what a host would use instead.
#[derive(Debug, Parser)]
#[command(about, version)]
struct Arguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Small sizes and few rounds.
    #[arg(long)]
    quick: bool,
    /// Measure only these paths.
    #[arg(long, value_delimiter = ',', value_parser = PATHS)]
    only: Vec<String>,
    /// Where logs and stores go; the disk that holds it is what is measured.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Open this session of the store in the folder, and print what is resident.
    #[arg(long, hide = true)]
    child_memory: Option<String>,
}

const PATHS: [&str; 10] =
    ["append", "live", "open", "rebuild", "size", "memory", "many", "wear", "objects", "bodies"];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("compare: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprint!(": {error}");
                cause = error.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
    if let Some(id) = &arguments.child_memory {
        let resident = memory::child(&folder, id)?;
        println!("{}", serde_json::to_string(&resident).map_err(during("print"))?);
        return Ok(());
    }
    let settings = Settings { quick: arguments.quick, folder };
    let mut report = Report::new(machine(), arguments.quick);
    for path in PATHS {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == path) {
            continue;
        }
        eprintln!("measuring {path}");
        match path {
            "append" => append::run(&settings, &mut report)?,
            "live" => live::run(&settings, &mut report)?,
            "open" => open::run(&settings, &mut report)?,
            "rebuild" => rebuild::run(&settings, &mut report)?,
            "size" => size::run(&settings, &mut report)?,
            "memory" => {
                let program = std::env::current_exe().map_err(during("find this program"))?;
                memory::run(&settings, &mut report, &program)?;
            }
            "many" => many::run(&settings, &mut report)?,
            "objects" => objects::run(&settings, &mut report)?,
            "bodies" => bodies::run(&settings, &mut report)?,
            _ => wear::run(&settings, &mut report)?,
        }
    }
    if arguments.json {
        println!("{}", report.to_json().map_err(during("print"))?);
    } else {
        println!("{}", report.to_text());
    }
    Ok(())
}

/// Processor, cores and system, as far as they can be found out.
fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(": ").map(|(_, name)| name.to_owned())
    });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = cpu.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!("{cpu}, {cores} cores, {}", std::env::consts::OS)
}
