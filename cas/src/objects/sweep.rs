//! Removal of what nobody references.
//!
//! Owns the rule of what may go: not referenced, and older than the grace, or left behind by a put
//! that died. Puts hold the store's lock shared for as long as they last, a sweep holds it alone
//! while it removes; so an object that a put found or wrote a moment ago is never removed under it,
//! and a temporary file that is seen under the lock is nobody's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rederive_disk::{DiskFile, OpenMode};

use super::{DiskError, GetError, LOCK_FILE, Objects, TEMPORARY_FOLDER, VARIANTS_FOLDER, during, wait};
use crate::digest::Digest;

/// What a sweep may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The time now, in ms since the epoch.
    pub now_ms: u64,
    /// For how long after its last put an object stays without a reference: at least the longest
    /// time between a put and the append of the event that references it.
    pub grace: Duration,
    /// Whether to say what would be removed, and remove nothing.
    pub dry_run: bool,
}

/// An object that was removed, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The object.
    pub digest: Digest,
    /// The length of its file.
    pub stored_bytes: u64,
}

/// What a sweep did, or would do.
#[derive(Debug, Default)]
#[must_use]
pub struct SweepReport {
    /// Objects that were removed, or would be.
    pub freed: Vec<Freed>,
    /// Bytes of files that were freed, leftovers included.
    pub freed_bytes: u64,
    /// Files that are no objects, removed or to be removed: temporary files of puts that died, and
    /// remembered variants once an object was freed, since one of them may be of it.
    pub leftovers: Vec<PathBuf>,
    /// Objects that are referenced.
    pub referenced: u64,
    /// Objects that are not referenced, and younger than the grace.
    pub young: u64,
    /// Objects that could not be looked at and stay, each with its reason.
    pub unreadable: Vec<GetError>,
    /// Whether puts held the lock all the time, so that the rest was left for another sweep.
    pub busy: bool,
}

impl Objects {
    /// Removes the objects for which `is_referenced` says no and which were put longer ago than the
    /// grace (plus [`ObjectsOptions::refresh`](super::ObjectsOptions::refresh), since an equal put
    /// renews the time of older objects only), and what dead puts left.
    ///
    /// An object that is damaged and not referenced goes as well. `is_referenced` is asked once for
    /// each object, under the lock.
    ///
    /// # Cost
    ///
    /// Lists every shard; reads a header for each object without a reference. Holds the lock while
    /// it works on one shard.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: what was removed until then is gone; sweep again.
    pub fn sweep(
        &self,
        mut is_referenced: impl FnMut(&Digest) -> bool,
        sweep: Sweep,
    ) -> Result<SweepReport, DiskError> {
        let mut report = SweepReport::default();
        let digests = self.list()?;
        for shard in digests.chunk_by(|a, b| a.as_bytes().first() == b.as_bytes().first()) {
            let Some(_alone) = self.lock_alone(sweep.dry_run)? else {
                report.busy = true;
                return Ok(report);
            };
            let freed_before = report.freed.len();
            for digest in shard {
                self.sweep_one(digest, &mut is_referenced, sweep, &mut report)?;
            }
            if !sweep.dry_run && freed_before < report.freed.len() {
                let path = shard.first().map(|digest| self.path(digest)).unwrap_or_default();
                let folder = path.parent().unwrap_or(&self.folder);
                self.disk.sync_folder(folder).map_err(during("sync", folder))?;
            }
        }
        self.sweep_leftovers(sweep, &mut report)?;
        Ok(report)
    }

    fn sweep_one(
        &self,
        digest: &Digest,
        is_referenced: &mut impl FnMut(&Digest) -> bool,
        sweep: Sweep,
        report: &mut SweepReport,
    ) -> Result<(), DiskError> {
        if is_referenced(digest) {
            report.referenced += 1;
            return Ok(());
        }
        let path = self.path(digest);
        let stored_bytes = match self.stat(digest) {
            Ok(stat) => {
                let age = Duration::from_millis(sweep.now_ms.saturating_sub(stat.put_ms));
                if age < sweep.grace.saturating_add(self.options.refresh) {
                    report.young += 1;
                    return Ok(());
                }
                stat.stored_bytes
            }
            Err(GetError::Missing { .. }) => return Ok(()),
            Err(GetError::Corrupt { .. }) => {
                let file = self.disk.open(&path, OpenMode::Read).map_err(during("open", &path))?;
                file.len().map_err(during("read", &path))?
            }
            Err(error) => {
                report.unreadable.push(error);
                return Ok(());
            }
        };
        if !sweep.dry_run {
            self.disk.remove(&path).map_err(during("remove", &path))?;
        }
        report.freed.push(Freed { digest: *digest, stored_bytes });
        report.freed_bytes += stored_bytes;
        Ok(())
    }

    fn sweep_leftovers(&self, sweep: Sweep, report: &mut SweepReport) -> Result<(), DiskError> {
        // Alone in a dry run too: otherwise the files of living puts would be counted.
        let Some(_alone) = self.lock_alone(false)? else {
            report.busy = true;
            return Ok(());
        };
        self.sweep_folder(&self.folder.join(TEMPORARY_FOLDER), sweep, report)?;
        // A remembered variant holds the name of its image, which is gone with the image. All of
        // them go: what is still asked for is made and remembered again.
        let variants = self.folder.join(VARIANTS_FOLDER);
        if !report.freed.is_empty() && self.disk.exists(&variants).map_err(during("open", &variants))? {
            self.sweep_folder(&variants, sweep, report)?;
        }
        Ok(())
    }

    fn sweep_folder(&self, folder: &Path, sweep: Sweep, report: &mut SweepReport) -> Result<(), DiskError> {
        let mut is_changed = false;
        for entry in self.disk.list(folder).map_err(during("list", folder))? {
            let path = folder.join(&entry.name);
            if !sweep.dry_run {
                self.disk.remove(&path).map_err(during("remove", &path))?;
                is_changed = true;
            }
            report.leftovers.push(path);
            report.freed_bytes += entry.bytes;
        }
        if is_changed {
            self.disk.sync_folder(folder).map_err(during("sync", folder))?;
        }
        Ok(())
    }

    /// Keeps puts out until the returned handle is dropped; `None` where they do not let go. A dry
    /// run needs no lock.
    #[expect(clippy::option_option, reason = "the outer one: whether it may go on; the inner: with a lock")]
    fn lock_alone(&self, dry_run: bool) -> Result<Option<Option<Arc<dyn DiskFile>>>, DiskError> {
        if dry_run {
            return Ok(Some(None));
        }
        let path = self.folder.join(LOCK_FILE);
        let lock = self.disk.open(&path, OpenMode::Create).map_err(during("open", &path))?;
        let is_locked = wait(|| lock.try_lock()).map_err(during("lock", &path))?;
        Ok(is_locked.then_some(Some(lock)))
    }
}
