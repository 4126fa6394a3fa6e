//! The rules' names and the error that names one.

use std::fmt;

use crate::ids::{Seq, SessionId};

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A rule of admission.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule { $($(#[$doc])* $variant,)* }

        impl Rule {
            /// Every rule, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The rule's name, as documents and tools print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

rules! {
    /// The text is one JSON object, in UTF-8.
    Json = "json",
    /// No deeper than 128 levels.
    JsonDepth = "json-depth",
    /// No object has one key twice, at any depth.
    JsonDuplicateKey = "json-duplicate-key",
    /// The envelope has its keys and no others, each of its form.
    Envelope = "envelope",
    /// The log's header is of the version that is read here.
    Version = "version",
    /// The seq is the next one.
    Seq = "seq",
    /// The type is known, registered, or ignorable.
    UnknownType = "unknown-type",
    /// Surface types say how they reach the surface; log-only types say nothing of it.
    SurfaceMetadata = "surface-metadata",
    /// The operation is `append` or a replace of nodes that are on the surface, in its order.
    SurfaceOp = "surface-op",
    /// Citations are earlier events, each once, and cover what is shadowed.
    SourceSeqs = "source-seqs",
    /// The leading system prompt is replaced only by another, alone.
    SystemHead = "system-head",
    /// A tool result is rewritten in its content alone.
    ToolRewrite = "tool-rewrite",
    /// A failed tool result says so to the model.
    ToolError = "tool-error",
    /// A request header is complete and canonical.
    Header = "header",
    /// Nothing of older formats.
    Legacy = "legacy",
    /// A surface message has a content array; an assistant message names its provider and model.
    Payload = "payload",
    /// Some types are written by the store alone.
    Reserved = "reserved",
    /// Events and batches stay under the configured limit.
    TooLarge = "too-large",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an event was refused. Log, surface and header are as before; correct the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    inner: Box<Inner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    rule: Rule,
    session: Option<SessionId>,
    seq: Seq,
    field: String,
    offset: Option<usize>,
    why: String,
}

impl Refusal {
    pub(crate) fn new(rule: Rule, seq: Seq, field: &str, why: &str) -> Self {
        let inner = Inner { rule, session: None, seq, field: field.into(), offset: None, why: why.into() };
        Self { inner: Box::new(inner) }
    }

    pub(crate) fn at(mut self, offset: usize) -> Self {
        self.inner.offset = Some(offset);
        self
    }

    pub(crate) fn in_session(mut self, session: &SessionId) -> Self {
        self.inner.session = Some(session.clone());
        self
    }

    /// The rule that the event breaks.
    pub fn rule(&self) -> Rule {
        self.inner.rule
    }

    /// The session that the event was meant for, where it was known.
    pub fn session(&self) -> Option<&SessionId> {
        self.inner.session.as_ref()
    }

    /// The seq that the event would have had.
    pub fn seq(&self) -> Seq {
        self.inner.seq
    }

    /// The field that is at fault; empty where it is the text as a whole.
    pub fn field(&self) -> &str {
        &self.inner.field
    }

    /// Where in the event's line the fault was found, in bytes from its start; `None` where the
    /// line as such is well-formed.
    pub fn offset(&self) -> Option<usize> {
        self.inner.offset
    }

    /// What is wrong, in words.
    pub fn why(&self) -> &str {
        &self.inner.why
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { rule, session, seq, field, offset, why } = &*self.inner;
        write!(f, "seq {seq} refused by rule {rule}: ")?;
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        f.write_str(why)?;
        if let Some(offset) = offset {
            write!(f, ", at column {}", offset + 1)?;
        }
        if let Some(session) = session {
            write!(f, ", in session {session}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
