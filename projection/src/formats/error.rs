//! Why a body cannot be built, and which documented rules were applied where one could.

use super::Format;

/// Why an object that a message refers to cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The object is not in the store. Put it back, or replace the node by a placeholder.
    #[error("the object is missing")]
    Missing,
    /// The object is not what the reference says. Repair the store, or replace the node.
    #[error("the object is not what its reference says: {reason}")]
    Corrupt {
        /// What differs.
        reason: String,
    },
    /// The reference cannot be read. Correct the host's block.
    #[error("the reference is not understood: {reason}")]
    Reference {
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a frozen request has no body in a format. Every variant that concerns a node names its seq.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The message is not of the shape that the formats read. Report it, or replace the node.
    #[error("node {seq} is not a message: {what}")]
    Malformed {
        /// The node.
        seq: u64,
        /// What was expected.
        what: &'static str,
    },
    /// The header is not of the shape that the formats read. Correct the header.
    #[error("the header's `{field}` {why}")]
    Header {
        /// The field, dotted.
        field: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The format has no place for the setting. Change the config, or choose another format.
    #[error("{format} cannot express `{field}`: {value}")]
    Setting {
        /// The format.
        format: Format,
        /// The config field.
        field: String,
        /// Its value, as it is spelled.
        value: String,
    },
    /// A block of a type that no format knows. Replace the node.
    #[error("node {seq}, block {index}: unknown block type `{kind}`")]
    UnknownBlock {
        /// The node.
        seq: u64,
        /// The block's index in its message.
        index: usize,
        /// The type that it names.
        kind: String,
    },
    /// A block that the format cannot carry in this place. Replace the node, or choose another format.
    #[error("node {seq}, block {index}: {format} carries no {kind} here")]
    Misplaced {
        /// The format.
        format: Format,
        /// The node.
        seq: u64,
        /// The block's index in its message.
        index: usize,
        /// The block's type.
        kind: &'static str,
    },
    /// A tool call is not answered before this node. Append a closing result before it.
    #[error("node {seq} comes before call `{call}` of node {asked} is answered")]
    Unanswered {
        /// The node that breaks the pair; the calling node where the request ends.
        seq: u64,
        /// The node that holds the call.
        asked: u64,
        /// The call's id.
        call: String,
    },
    /// A result answers no call of the message before it. Replace the node by text.
    #[error("node {seq} answers call `{call}`, which was not asked right before it")]
    Orphan {
        /// The node of the result.
        seq: u64,
        /// The call's id.
        call: String,
    },
    /// A call is answered twice. Replace one of the results.
    #[error("node {seq} answers call `{call}` a second time")]
    RepeatedResult {
        /// The node of the second result.
        seq: u64,
        /// The call's id.
        call: String,
    },
    /// A call has no id. Replace the node.
    #[error("node {seq}, block {index}: the call has no id")]
    EmptyCallId {
        /// The node.
        seq: u64,
        /// The block's index.
        index: usize,
    },
    /// A call's id was used before. Replace the node.
    #[error("node {seq} repeats call id `{call}` of node {first}")]
    RepeatedCallId {
        /// The node.
        seq: u64,
        /// The call's id, as it is sent.
        call: String,
        /// The node that used it first.
        first: u64,
    },
    /// A call names no tool. Replace the node.
    #[error("node {seq}, block {index}: the call names no tool")]
    EmptyToolName {
        /// The node.
        seq: u64,
        /// The block's index.
        index: usize,
    },
    /// An image or file cannot be read. See the source.
    #[error("node {seq}, block {index}: the object cannot be sent")]
    Object {
        /// The node.
        seq: u64,
        /// The block's index.
        index: usize,
        /// Why.
        source: ObjectError,
    },
    /// Images break the limits that were asked for. Shrink or replace the nodes.
    #[error("images over the limit ({limit}) in nodes {seqs:?}")]
    ImageLimit {
        /// The limit, in words.
        limit: String,
        /// The nodes concerned.
        seqs: Vec<u64>,
    },
    /// Nothing is left to send. Append a message.
    #[error("the request holds no message")]
    NoMessages,
}

/// A documented rule that changed or left out something (`docs/FORMATS.md` § Rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A lone surrogate became U+FFFD.
    LoneSurrogate,
    /// A blank text block was left out.
    BlankText,
    /// A message without content was left out.
    EmptyMessage,
    /// Reasoning of another provider was left out.
    ForeignReasoning,
    /// Signed reasoning of another model was left out.
    ForeignSignature,
    /// Reasoning without the signature that the provider demands was left out.
    UnsignedReasoning,
    /// Reasoning was left out, since the format has no place for it.
    ReasoningNotCarried,
    /// An in-history system prompt became user text between `<system>` tags.
    SystemAsUser,
    /// Tool arguments that are no JSON object were wrapped as `{"_raw": text}`.
    ArgumentsWrapped,
    /// Empty tool arguments became `{}`.
    ArgumentsEmpty,
    /// The error flag of a result became the text `[error] ` before it.
    ErrorAsText,
    /// A failed result without content got the text `(no output)`.
    EmptyError,
    /// Images and files of results stand in a user message after the results.
    ObjectAfterResults,
    /// Text blocks were joined by a line feed.
    TextJoined,
    /// Text that stood after a tool call stands before it.
    Reordered,
    /// Characters of a call id that the provider refuses became `_`.
    CallIdRewritten,
    /// A call without a signature got the provider's documented placeholder.
    SignaturePlaceholder,
    /// A key of a block that the format does not know was left out.
    KeyNotSent,
    /// A config field that the format does not know was left out.
    ConfigNotSent,
    /// The provider demands a token limit and the config has none: the option's default was sent.
    MaxTokensDefault,
}

impl Rule {
    /// The rule's name, as documents and tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoneSurrogate => "lone-surrogate",
            Self::BlankText => "blank-text",
            Self::EmptyMessage => "empty-message",
            Self::ForeignReasoning => "foreign-reasoning",
            Self::ForeignSignature => "foreign-signature",
            Self::UnsignedReasoning => "unsigned-reasoning",
            Self::ReasoningNotCarried => "reasoning-not-carried",
            Self::SystemAsUser => "system-as-user",
            Self::ArgumentsWrapped => "arguments-wrapped",
            Self::ArgumentsEmpty => "arguments-empty",
            Self::ErrorAsText => "error-as-text",
            Self::EmptyError => "empty-error",
            Self::ObjectAfterResults => "object-after-results",
            Self::TextJoined => "text-joined",
            Self::Reordered => "reordered",
            Self::CallIdRewritten => "call-id-rewritten",
            Self::SignaturePlaceholder => "signature-placeholder",
            Self::KeyNotSent => "key-not-sent",
            Self::ConfigNotSent => "config-not-sent",
            Self::MaxTokensDefault => "max-tokens-default",
        }
    }

    /// Every rule.
    pub const ALL: &'static [Self] = &[
        Self::LoneSurrogate,
        Self::BlankText,
        Self::EmptyMessage,
        Self::ForeignReasoning,
        Self::ForeignSignature,
        Self::UnsignedReasoning,
        Self::ReasoningNotCarried,
        Self::SystemAsUser,
        Self::ArgumentsWrapped,
        Self::ArgumentsEmpty,
        Self::ErrorAsText,
        Self::EmptyError,
        Self::ObjectAfterResults,
        Self::TextJoined,
        Self::Reordered,
        Self::CallIdRewritten,
        Self::SignaturePlaceholder,
        Self::KeyNotSent,
        Self::ConfigNotSent,
        Self::MaxTokensDefault,
    ];
}

/// A rule, and where it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The node; `None` for the header.
    pub seq: Option<u64>,
    /// The rule.
    pub rule: Rule,
    /// The block's index, a key or a field, where that says more.
    pub detail: Option<String>,
}
