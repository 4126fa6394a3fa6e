//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Keeps the event logs of agent conversations and rebuilds every request a model was sent.
#[derive(Debug, Parser)]
#[command(name = "rederive", version, max_term_width = 100)]
pub(crate) struct Args {
    /// The store's folder [default: the platform's data folder].
    #[arg(long, global = true, env = "REDERIVE_STORE", value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Import logs into a throwaway store, rebuild each request by two paths, and compare.
    Replay {
        /// Logs, one event a line.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Import logs; a refused log leaves nothing behind and the others go on.
    Import {
        /// Logs, or folders of logs.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// List sessions, newest activity first.
    Ls {
        /// How many at most.
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: usize,
        /// Go on behind this session of an earlier list.
        #[arg(long, value_name = "ID", conflicts_with = "page")]
        after: Option<String>,
        /// Go on at the place that an earlier list named.
        #[arg(long, value_name = "PLACE")]
        page: Option<rederive_engine::ListPlace>,
    },
    /// Show a session's events as they come, one line of the log each.
    Tail {
        /// The session.
        id: String,
        /// Wait for more, until interrupted.
        #[arg(long, short)]
        follow: bool,
        /// From this seq on [default: the last ten events].
        #[arg(long, value_name = "SEQ")]
        from: Option<u64>,
    },
    /// Show a session's events.
    Log {
        /// The session.
        id: String,
        /// From this seq on.
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        from: u64,
        /// Only events of this type.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
    },
    /// Show what the model sees, or saw.
    Messages {
        /// The session.
        id: String,
        /// As it stood right before this event.
        #[arg(long, value_name = "SEQ")]
        at: Option<u64>,
        /// With the closers that the next writer appends where a crash left a turn open.
        #[arg(long, conflicts_with = "at")]
        closed: bool,
    },
    /// Write the exact bytes of a request.
    Request {
        /// The session.
        id: String,
        /// The request that this event settled or dispatched.
        #[arg(long, value_name = "SEQ", conflicts_with = "next")]
        seq: Option<u64>,
        /// The request that would be sent now.
        #[arg(long)]
        next: bool,
        /// The next request as it is once an interrupted turn is closed.
        #[arg(long, requires = "next")]
        closed: bool,
    },
    /// Rebuild every request from the log and compare.
    Verify {
        /// The session.
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// Every session.
        #[arg(long, conflicts_with = "id")]
        all: bool,
    },
    /// Write a session's log, byte for byte as it came.
    Export {
        /// The session.
        id: String,
    },
    /// Delete sessions.
    Rm {
        /// The sessions.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Append events, one a line of standard input; print each seq once it is durable.
    Append {
        /// The session; it is created where it is missing.
        id: String,
        /// What an acknowledged line has reached.
        #[arg(long, value_enum, default_value_t = DurabilityArg::Synced)]
        durability: DurabilityArg,
    },
    /// Remove what is left of deleted sessions: files, journal space, freed pages of the index.
    Gc,
    /// Look the store over and change nothing; says what is damaged and exits with 1 where
    /// something is.
    Doctor {
        /// Save what can be read into a new store in this folder, and list what was lost.
        #[arg(long, value_name = "DIR")]
        repair: Option<PathBuf>,
    },
    /// Show what the store holds, in numbers.
    Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// The operating system has it: it survives the end of the process.
    Buffered,
    /// The disk has it: it survives a power cut.
    Synced,
}
