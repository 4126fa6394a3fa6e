//! Lines in zstd frames, one frame a batch, with `fsync`: as the reference harness writes them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use bytes::Bytes;

use super::{Commit, Held, Peer, raw};
use crate::{BenchError, during};

/// zstd's default level.
const LEVEL: i32 = 3;

struct Framed {
    file: File,
    packer: zstd::bulk::Compressor<'static>,
    buffer: Vec<u8>,
}

pub(super) fn open(folder: &Path) -> Result<Box<dyn Peer>, BenchError> {
    let file = File::options().append(true).create_new(true).open(folder.join("log.jsonl.zst"));
    Ok(Box::new(Framed {
        file: file.map_err(during("create a file"))?,
        packer: zstd::bulk::Compressor::new(LEVEL).map_err(during("make a compressor"))?,
        buffer: Vec::new(),
    }))
}

impl Peer for Framed {
    fn append(&mut self, batch: &[Bytes], commit: Commit) -> Result<(), BenchError> {
        self.buffer.clear();
        for line in batch {
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
        }
        let frame = self.packer.compress(&self.buffer).map_err(during("compress"))?;
        self.file.write_all(&frame).map_err(during("write"))?;
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
    let file = fs::read(folder.join("log.jsonl.zst")).map_err(during("read a file"))?;
    let text = zstd::stream::decode_all(&*file).map_err(during("decompress"))?;
    Ok(raw::lines_of(&text))
}
