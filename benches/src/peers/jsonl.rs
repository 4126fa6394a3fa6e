//! A file of lines that grows, with `fsync`: what most hosts have.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use bytes::Bytes;

use super::{Commit, Held, Peer, raw};
use crate::{BenchError, during};

struct Jsonl {
    file: File,
    buffer: Vec<u8>,
}

pub(super) fn open(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    let file = File::options().append(true).create_new(true).open(folder.join("log.jsonl"));
    Ok(Box::new(Jsonl { file: file.map_err(during("create a file"))?, buffer: Vec::new() }))
}

impl Peer for Jsonl {
    fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<(), BenchError> {
        self.buffer.clear();
        for line in batch {
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
        }
        self.file.write_all(&self.buffer).map_err(during("write"))?;
        if commit == Commit::Durable {
            self.file.sync_all().map_err(during("sync"))?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.file.sync_all().map_err(during("sync"))
    }
}

pub(super) fn read(folder: &Path) -> Result<Held, BenchError> {
    let text = fs::read(folder.join("log.jsonl")).map_err(during("read a file"))?;
    Ok(raw::lines_of(&text))
}
