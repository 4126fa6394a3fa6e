//! The `rederive` command: keeps event logs of agent conversations and rebuilds every request.
//!
//! Owns arguments, tables, progress and exit codes; what it does is in the libraries. It alone
//! prints: results to standard output, what went wrong and what to do about it to standard error.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

mod args;
mod commands;
mod failure;
mod output;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    match commands::run(args) {
        Ok(code) => code,
        // The reader of a pipe has seen enough.
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rederive: {failure}");
            if let Some(advice) = failure.advice() {
                eprintln!("{advice}");
            }
            ExitCode::from(failure.code())
        }
    }
}
