//! Importing a log: straight into segments, whole or not at all.
//!
//! Owns the staging of an import. Lines pass the same door as every event; the session exists only
//! once its last line was admitted and everything is durable.

use std::io::BufRead;

use bytes::Bytes;

use super::error::StoreError;
use super::{Store, catalog};
use crate::admission::{Door, Origin, Refusal, Rule};
use crate::event::line::Form;
use crate::event::{Event, HeaderLine};
use crate::fold::Fold;
use crate::ids::{Seq, SessionId};

/// Why a log was not imported. The store is as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A line breaks a rule. Correct the log.
    #[error("line {line}: {refusal}")]
    Refused {
        /// The line, counted from one; the header line is the first.
        line: u64,
        /// The rule that it breaks.
        refusal: Refusal,
    },
    /// There is no line at all.
    #[error("the log is empty: a session header is due")]
    Empty,
    /// The log could not be read. Mend what it names, then retry.
    #[error("cannot read line {line}")]
    Read {
        /// The line, counted from one.
        line: u64,
        /// What the reader said.
        source: std::io::Error,
    },
    /// The store could not take it: the session exists, or something could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    id: SessionId,
    events: u64,
    bytes: u64,
}

impl Imported {
    /// The session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// How many events it has.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes of its lines.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Store {
    /// Imports the log that `lines` gives: a header line, then one event a line.
    ///
    /// An empty last line is no event; any other empty line is refused.
    ///
    /// # Cost
    ///
    /// One pass; memory for what the model sees at the log's end and for one segment.
    ///
    /// # Errors
    ///
    /// An [`ImportError`]; nothing of the log is left behind. After an [`crate::IndexError::Io`] of the
    /// last commit the whole session may be there or not: look for it before importing again.
    pub fn import(&self, lines: impl BufRead) -> Result<Imported, ImportError> {
        let core = &self.inner.core;
        core.check_writable()?;
        let mut staged = catalog::Staged::new(core);
        match self.stage(lines, &mut staged) {
            Ok(imported) => Ok(imported),
            Err(error) => {
                staged.discard();
                Err(error)
            }
        }
    }

    fn stage(
        &self,
        mut lines: impl BufRead,
        staged: &mut catalog::Staged<'_>,
    ) -> Result<Imported, ImportError> {
        let core = &self.inner.core;
        let limit = core.options.event_bytes_max;
        let mut buffer = Vec::new();
        let mut number = 1;
        if !read_line(&mut lines, &mut buffer, number, limit)? {
            return Err(ImportError::Empty);
        }
        let refused = |line| move |refusal| ImportError::Refused { line, refusal };
        let text = std::str::from_utf8(&buffer)
            .map_err(|_| Refusal::new(Rule::Json, Seq::FIRST, "", "not UTF-8"))
            .map_err(refused(number))?;
        let header_line = HeaderLine::read(text).map_err(refused(number))?;
        catalog::check_name_is_free(core, header_line.id())?;
        staged.begin(&header_line, &core.options.types)?;
        let door = Door {
            types: &core.options.types,
            origin: Origin::Store,
            form: Form::Log,
            now_ms: 0,
            event_bytes_max: limit,
        };
        let mut fold = Fold::default();
        let mut tail: Vec<Event> = Vec::new();
        let mut tail_bytes = 0;
        loop {
            number += 1;
            if !read_line(&mut lines, &mut buffer, number, limit)? {
                break;
            }
            let line = Bytes::copy_from_slice(&buffer);
            let mut undo = fold.begin();
            let event = door.enter_line(&line, &mut fold, &mut undo).map_err(refused(number))?;
            tail_bytes += line.len() as u64;
            tail.push(event);
            if tail_bytes >= core.options.segment_bytes {
                staged.push(&tail, &fold)?;
                tail.clear();
                tail_bytes = 0;
            }
        }
        if !tail.is_empty() {
            staged.push(&tail, &fold)?;
        }
        staged.commit(&header_line)?;
        Ok(Imported {
            id: header_line.id().clone(),
            events: fold.next_seq().value(),
            bytes: fold.line_bytes(),
        })
    }
}

/// Reads one line without its line feed; `false` at the end. A line over `limit` is not read whole.
fn read_line(
    lines: &mut impl BufRead,
    buffer: &mut Vec<u8>,
    number: u64,
    limit: u64,
) -> Result<bool, ImportError> {
    buffer.clear();
    loop {
        let chunk = match lines.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(ImportError::Read { line: number, source }),
        };
        if chunk.is_empty() {
            return Ok(!buffer.is_empty());
        }
        let (part, ended) = match memchr::memchr(b'\n', chunk) {
            Some(at) => (at, true),
            None => (chunk.len(), false),
        };
        buffer.extend_from_slice(chunk.get(..part).unwrap_or_default());
        lines.consume(part + usize::from(ended));
        // One byte more than the limit is enough for the door to refuse the line by its size.
        if buffer.len() as u64 > limit {
            return Ok(true);
        }
        if ended {
            return Ok(true);
        }
    }
}
