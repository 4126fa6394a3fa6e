//! `rederive object`: images and other objects, by content.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rederive_cas::{Digest, ImageLimits, MediaType, Objects, ObjectsOptions, Sweep, admit};
use rederive_disk::OsDisk;
use rederive_engine::Store;
use rederive_projection::StoreImages;
use rederive_projection::formats::{ImageSource, NoObjects};

use super::Context;
use crate::args::ObjectCommand;
use crate::failure::{Failure, chain};
use crate::output;

const FOLDER: &str = "objects";

/// The store's objects; makes their folder where it is missing.
fn open(store: &Store) -> Result<Objects, Failure> {
    Ok(Objects::open(Arc::new(OsDisk), store.folder().join(FOLDER), ObjectsOptions::default())?)
}

/// The store's objects, where there are any.
pub(super) fn open_existing(store: &Store) -> Result<Option<Objects>, Failure> {
    if store.folder().join(FOLDER).is_dir() { open(store).map(Some) } else { Ok(None) }
}

fn objects(store: &Store) -> Result<Objects, Failure> {
    open_existing(store)?.ok_or_else(|| Failure::Said("the store has no objects".into()))
}

pub(crate) fn run(context: &Context, command: &ObjectCommand) -> Result<ExitCode, Failure> {
    match command {
        ObjectCommand::Put { file } => put(context, file),
        ObjectCommand::Get { digest } => get(context, digest),
        ObjectCommand::Stat { digest } => stat(context, digest),
        ObjectCommand::Ls => list(context),
        ObjectCommand::Verify => verify(context),
        ObjectCommand::Gc { dry_run, grace } => collect(context, *dry_run, *grace),
    }
}

fn put(context: &Context, file: &Path) -> Result<ExitCode, Failure> {
    let store = context.write()?;
    let objects = open(&store)?;
    let bytes = std::fs::read(file).map_err(Failure::io("read", file))?;
    if MediaType::of(&bytes).is_none() {
        output::line(objects.put(&bytes)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    let image = admit(&bytes, None, name.as_deref(), &ImageLimits::default())?;
    let reference = objects.put_image(&image)?;
    output::line(format_args!("{}\n{}", reference.digest(), reference.to_block()))?;
    Ok(ExitCode::SUCCESS)
}

fn get(context: &Context, digest: &Digest) -> Result<ExitCode, Failure> {
    let bytes = objects(&context.read()?)?.get(digest)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn stat(context: &Context, digest: &Digest) -> Result<ExitCode, Failure> {
    let stat = objects(&context.read()?)?.stat(digest)?;
    if context.json {
        output::json(&serde_json::json!({
            "digest": stat.digest.to_string(),
            "bytes": stat.bytes,
            "storedBytes": stat.stored_bytes,
            "codec": format!("{:?}", stat.codec).to_lowercase(),
            "putMs": stat.put_ms,
            "path": stat.path,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["WHAT", "VALUE"]);
    table.add_row(["digest".to_owned(), stat.digest.to_string()]);
    table.add_row(["bytes".to_owned(), stat.bytes.to_string()]);
    table.add_row(["stored".to_owned(), format!("{} ({:?})", stat.stored_bytes, stat.codec).to_lowercase()]);
    table.add_row(["put".to_owned(), output::time(stat.put_ms)]);
    table.add_row(["file".to_owned(), stat.path.display().to_string()]);
    output::line(table)?;
    Ok(ExitCode::SUCCESS)
}

fn list(context: &Context) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let digests = match open_existing(&store)? {
        Some(objects) => objects.list()?,
        None => Vec::new(),
    };
    if context.json {
        output::json(&digests.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    } else {
        for digest in digests {
            output::line(digest)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(context: &Context) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let Some(objects) = open_existing(&store)? else {
        output::line("there are no objects")?;
        return Ok(ExitCode::SUCCESS);
    };
    let bar = output::bar(0, "verifying");
    let report = objects.verify(|progress| {
        bar.set_length(progress.objects_total);
        bar.set_position(progress.objects);
    })?;
    bar.finish_and_clear();
    for bad in &report.bad {
        eprintln!("rederive: {}", chain(bad));
    }
    output::line(format_args!(
        "{} objects sound, {}; {} bad",
        report.sound,
        output::size(report.sound_bytes),
        report.bad.len()
    ))?;
    Ok(if report.bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn collect(context: &Context, dry_run: bool, grace: u64) -> Result<ExitCode, Failure> {
    let store = context.change()?;
    if open_existing(&store)?.is_none() {
        output::line("there are no objects")?;
        return Ok(ExitCode::SUCCESS);
    }
    // A sweep adds the time after which an equal put renews an object to its grace.
    let refresh = Duration::from_secs(grace).min(ObjectsOptions::default().refresh);
    let options = ObjectsOptions { refresh, ..ObjectsOptions::default() };
    let objects = Objects::open(Arc::new(OsDisk), store.folder().join(FOLDER), options)?;
    let report = sweep(&store, &objects, dry_run, grace)?;
    let verb = if dry_run { "would be freed" } else { "freed" };
    output::line(format_args!(
        "{} objects {verb}, {}; {} referenced, {} too young",
        report.freed.len(),
        output::size(report.freed_bytes),
        report.referenced,
        report.young
    ))?;
    for freed in &report.freed {
        output::line(freed.digest)?;
    }
    for unreadable in &report.unreadable {
        eprintln!("rederive: left where it is: {}", chain(unreadable));
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the objects that no session references.
fn sweep(
    store: &Store,
    objects: &Objects,
    dry_run: bool,
    grace: u64,
) -> Result<rederive_cas::SweepReport, Failure> {
    let referenced = store.referenced_objects()?;
    let now_ms = (ObjectsOptions::default().clock_ms)();
    let sweep = Sweep { now_ms, grace: Duration::from_secs(grace), dry_run };
    Ok(objects.sweep(|digest| referenced.contains(digest.as_bytes()), sweep)?)
}

/// Where images come from: the store's objects, or nowhere in a store that has none.
pub(super) fn images(objects: Option<&Objects>) -> Box<dyn ImageSource + '_> {
    match objects {
        Some(objects) => Box::new(StoreImages::new(objects)),
        None => Box::new(NoObjects),
    }
}
