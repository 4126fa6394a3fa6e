//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use rederive_cas::Digest;
use rederive_projection::RequestRef;
use rederive_projection::formats::Format;

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
    /// How long to wait for a process that holds the store's index, in milliseconds.
    #[arg(long, global = true, default_value_t = 10_000, value_name = "MS")]
    pub(crate) lock_timeout: u64,
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
    /// Write the exact bytes of a request, or a provider's body of it; nothing is sent.
    Request(RequestArgs),
    /// Say of each request how it relates to the one before, and why.
    Audit {
        /// The session.
        id: String,
        /// Write one page that draws the requests to this file.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Say what the prompt cache of a provider with this format should have given.
        #[arg(long, value_name = "FORMAT")]
        provider: Option<Format>,
        /// Count what each request cost by this table of prices (JSON; see docs/FORMATS.md).
        #[arg(long, value_name = "FILE", requires = "provider")]
        prices: Option<PathBuf>,
    },
    /// Compare two requests: header and messages.
    Diff {
        /// The session.
        id: String,
        /// The earlier request: SEQ, TURN.STEP or TURN.STEP.ATTEMPT.
        a: RequestRef,
        /// The later one.
        b: RequestRef,
    },
    /// Make a session that shares another one's events up to a cut.
    Fork {
        /// The parent.
        id: String,
        /// The last event that the child inherits; it must not stand inside an open turn.
        #[arg(long, value_name = "SEQ")]
        at: u64,
        /// The child's name [default: made from the parent's].
        #[arg(long = "as", value_name = "ID")]
        name: Option<String>,
    },
    /// Images and other objects, by content.
    Object {
        #[command(subcommand)]
        command: ObjectCommand,
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
    Stats {
        /// Read every event, and count images that a host still logs as base64 text.
        #[arg(long)]
        inline: bool,
    },
}

/// Which request, and in which form.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct RequestArgs {
    /// The session.
    pub(crate) id: String,
    /// The request that this event settled or dispatched.
    #[arg(long, value_name = "SEQ", group = "which")]
    pub(crate) seq: Option<u64>,
    /// The request of this turn, step and attempt.
    #[arg(long, value_name = "T.S[.A]", group = "which")]
    pub(crate) step: Option<RequestRef>,
    /// The request that would be sent now.
    #[arg(long, group = "which")]
    pub(crate) next: bool,
    /// With the closers that the next writer appends where a crash left a turn open.
    #[arg(long, requires = "next")]
    pub(crate) closed: bool,
    /// As the body of this provider's API.
    #[arg(long, value_name = "FORMAT", default_value = "canonical")]
    pub(crate) format: Format,
    /// Fail unless every image is there and is what its reference says, within the provider's limits.
    #[arg(long)]
    pub(crate) resolve: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ObjectCommand {
    /// Store a file; print its digest and, of an image, the content block that references it.
    Put {
        /// The file.
        file: PathBuf,
    },
    /// Write an object's bytes, verified.
    Get {
        /// Its digest.
        digest: Digest,
    },
    /// Show what is stored of an object.
    Stat {
        /// Its digest.
        digest: Digest,
    },
    /// List objects.
    Ls,
    /// Check every object.
    Verify,
    /// Remove objects that no session references.
    Gc {
        /// Show what would be removed, and remove nothing.
        #[arg(long)]
        dry_run: bool,
        /// Never remove what is younger than so many seconds; of what is put again and again, what was
        /// put first counts for up to an hour.
        #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
        grace: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// The operating system has it: it survives the end of the process.
    Buffered,
    /// The disk has it: it survives a power cut.
    Synced,
}
