//! The limit: one `pwrite` and one `fdatasync` into space that was written before.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rederive_disk::{Disk, DiskFile, OpenMode, OsDisk};
use std::sync::Arc;

use super::{Commit, Held, Peer};
use crate::{BenchError, during};

/// Space that is written ahead at once.
const AHEAD: u64 = 64 * 1024 * 1024;

struct Raw {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    end: u64,
    ahead: u64,
    buffer: Vec<u8>,
}

impl Raw {
    /// Fills the next stretch with zeroes, so that a later sync carries no metadata.
    fn write_ahead(&mut self) -> Result<(), BenchError> {
        let zeroes = vec![0; 1024 * 1024];
        for at in (self.ahead..self.ahead + AHEAD).step_by(zeroes.len()) {
            self.file.write_at(&zeroes, at).map_err(during("write ahead"))?;
        }
        self.ahead += AHEAD;
        self.file.sync().map_err(during("sync what was written ahead"))
    }
}

pub(super) fn open(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    let path = folder.join("log");
    let file = OsDisk.open(&path, OpenMode::CreateNew).map_err(during("create a file"))?;
    let mut raw = Raw { path, file, end: 0, ahead: 0, buffer: Vec::new() };
    raw.write_ahead()?;
    Ok(Box::new(raw))
}

impl Peer for Raw {
    fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<(), BenchError> {
        self.buffer.clear();
        for line in batch {
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
        }
        if self.ahead < self.end + self.buffer.len() as u64 {
            self.write_ahead()?;
        }
        self.file.write_at(&self.buffer, self.end).map_err(during("write"))?;
        self.end += self.buffer.len() as u64;
        if commit == Commit::Durable {
            self.file.sync().map_err(during("sync"))?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        let file = File::options().write(true).open(&self.path).map_err(during("open a file"))?;
        file.set_len(self.end).map_err(during("cut a file"))?;
        file.sync_all().map_err(during("sync"))
    }
}

pub(super) fn read(folder: &Path) -> Result<Held, BenchError> {
    let text = fs::read(folder.join("log")).map_err(during("read a file"))?;
    Ok(lines_of(&text))
}

/// What the lines of `text` come to.
pub(super) fn lines_of(text: &[u8]) -> Held {
    let mut held = Held::nothing();
    text.split_inclusive(|&byte| byte == b'\n')
        .for_each(|line| held.take(line.strip_suffix(b"\n").unwrap_or(line)));
    held
}
