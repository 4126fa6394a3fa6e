//! One module a command, or a few that belong together.

mod append;
mod audit;
mod body;
mod doctor;
mod export;
mod import;
mod list;
mod object;
mod replay;
mod rm;
mod show;
mod tail;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rederive_engine::{SessionId, Store, StoreOptions, TypeRegistry};

use crate::args::{Args, Command};
use crate::failure::Failure;

/// What every command knows.
pub(crate) struct Context {
    store: Option<PathBuf>,
    json: bool,
    lock_timeout: Duration,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let context = Context {
        store: args.store,
        json: args.json,
        lock_timeout: Duration::from_millis(args.lock_timeout),
    };
    match args.command {
        Command::Replay { files } => replay::run(&context, &files),
        Command::Import { paths } => import::run(&context, &paths),
        Command::Ls { limit, after, page } => list::sessions(&context, limit, after.as_deref(), page),
        Command::Tail { id, follow, from } => tail::run(&context, &id, follow, from),
        Command::Gc => rm::sweep(&context),
        Command::Doctor { repair: None } => doctor::look(&context),
        Command::Doctor { repair: Some(into) } => doctor::repair(&context, &into),
        Command::Stats { inline } => list::stats(&context, inline),
        Command::Log { id, from, kind } => show::log(&context, &id, from, kind.as_deref()),
        Command::Messages { id, at, closed } => show::messages(&context, &id, at, closed),
        Command::Request(request) => body::run(&context, &request),
        Command::Audit { id, html, provider, prices } => {
            audit::run(&context, &id, html.as_deref(), provider, prices.as_deref())
        }
        Command::Diff { id, a, b } => audit::diff(&context, &id, a, b),
        Command::Fork { id, at, name } => audit::fork(&context, &id, at, name),
        Command::Object { command } => object::run(&context, &command),
        Command::Verify { id, all: _ } => verify::run(&context, id.as_deref()),
        Command::Export { id } => export::run(&context, &id),
        Command::Rm { ids } => rm::run(&context, &ids),
        Command::Append { id, durability } => append::run(&context, &id, durability),
    }
}

impl Context {
    fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.store {
            return Ok(folder.clone());
        }
        let platform = directories::ProjectDirs::from("", "", "rederive");
        let folder = platform.map(|folders| folders.data_dir().join("store"));
        folder.ok_or_else(|| Failure::Said("there is no data folder here: name one with --store".into()))
    }

    /// Opens the store for reading.
    fn read(&self) -> Result<Store, Failure> {
        Ok(Store::open_read_only_with(self.folder()?, self.options())?)
    }

    /// Opens the store for writing; makes it where it is missing.
    fn write(&self) -> Result<Store, Failure> {
        Ok(Store::open_or_create_with(self.folder()?, self.options())?)
    }

    /// Opens the store for writing where there is one.
    fn change(&self) -> Result<Store, Failure> {
        Ok(Store::open_with(self.folder()?, self.options())?)
    }

    fn options(&self) -> StoreOptions {
        options().lock_timeout(self.lock_timeout)
    }
}

fn open_or_create(folder: &Path) -> Result<Store, Failure> {
    Ok(Store::open_or_create_with(folder, options())?)
}

/// The command knows the types that the reference harness adds to the format.
fn options() -> StoreOptions {
    StoreOptions::default().register_types(&TypeRegistry::harness())
}

fn session_id(text: &str) -> Result<SessionId, Failure> {
    SessionId::new(text).ok_or_else(|| Failure::Said("a session's name has 1 to 512 bytes".into()))
}

/// The names of all sessions, newest activity first.
fn all_sessions(store: &Store) -> Result<Vec<SessionId>, Failure> {
    let mut ids: Vec<SessionId> = Vec::new();
    let mut place = None;
    loop {
        let page = store.sessions_page(place, 1000)?;
        ids.extend(page.sessions().iter().map(|info| info.id().clone()));
        place = page.next();
        if place.is_none() {
            return Ok(ids);
        }
    }
}
