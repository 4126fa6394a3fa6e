//! The types of events: which reach the surface, which are only logged, which are refused.
//!
//! Owns the table of types of the V3 format. Knows no payloads.

use std::fmt;
use std::sync::Arc;

/// The type of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `system/message`: a system prompt, or an update of one.
    SystemMessage,
    /// `user/message`: what a user or a plugin says; its data is the message.
    UserMessage,
    /// `assistant/message`: a settled answer of a model.
    AssistantMessage,
    /// `tool/result`: what a tool gave back.
    ToolResult,
    /// A log-only type of the format.
    LogOnly(LogOnly),
    /// A type that the host registered, or one that is ignorable: it means nothing to the engine.
    Foreign(Arc<str>),
}

macro_rules! log_only {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A log-only type of the format: it never reaches the surface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum LogOnly { $($(#[$doc])* $variant,)* }

        impl LogOnly {
            /// Every log-only type, in the order of their codes on disk.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The type's name in a log.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

log_only! {
    /// `turn/start`: a turn opens.
    TurnStart = "turn/start",
    /// `turn/end`: a turn closes.
    TurnEnd = "turn/end",
    /// `step/start`: a step opens.
    StepStart = "step/start",
    /// `step/end`: a step closes.
    StepEnd = "step/end",
    /// `assistant/attempt`: a model attempt of which nothing became visible.
    AssistantAttempt = "assistant/attempt",
    /// `tool/call`: a tool is about to run.
    ToolCall = "tool/call",
    /// `request/header`: call config, tools and adapter defaults from here on.
    RequestHeader = "request/header",
    /// `request/context`: the route changed.
    RequestContext = "request/context",
    /// `request/dispatch`: a request left; its digest, bytes and messages.
    RequestDispatch = "request/dispatch",
    /// `session/end-seed`: what stands before was inherited, or written before a resume.
    SessionEndSeed = "session/end-seed",
    /// `compaction/start`: a compaction was begun.
    CompactionStart = "compaction/start",
    /// `compaction/summary`: the summarising call answered.
    CompactionSummary = "compaction/summary",
    /// `compaction/end`: a compaction is complete.
    CompactionEnd = "compaction/end",
    /// `compaction/prune`: a tool result was trimmed.
    CompactionPrune = "compaction/prune",
    /// `agent/inbox/spliced`: the inbox changed.
    InboxSpliced = "agent/inbox/spliced",
    /// `todo/write`: the agent's list of things to do.
    TodoWrite = "todo/write",
    /// `session/title`: the session's title.
    SessionTitle = "session/title",
    /// `llm/retry`: a model call is tried again.
    LlmRetry = "llm/retry",
}

impl Kind {
    /// The type named `name`.
    pub fn from_name(name: &str) -> Self {
        match name {
            "system/message" => Self::SystemMessage,
            "user/message" => Self::UserMessage,
            "assistant/message" => Self::AssistantMessage,
            "tool/result" => Self::ToolResult,
            _ => LogOnly::from_name(name).map_or_else(|| Self::Foreign(name.into()), Self::LogOnly),
        }
    }

    /// The type's name in a log.
    pub fn name(&self) -> &str {
        match self {
            Self::SystemMessage => "system/message",
            Self::UserMessage => "user/message",
            Self::AssistantMessage => "assistant/message",
            Self::ToolResult => "tool/result",
            Self::LogOnly(log_only) => log_only.name(),
            Self::Foreign(name) => name,
        }
    }

    /// The kind of node that an event of this type is on the surface; `None` for log-only types.
    pub fn node(&self) -> Option<NodeKind> {
        match self {
            Self::SystemMessage => Some(NodeKind::System),
            Self::UserMessage => Some(NodeKind::User),
            Self::AssistantMessage => Some(NodeKind::Assistant),
            Self::ToolResult => Some(NodeKind::ToolResult),
            Self::LogOnly(_) | Self::Foreign(_) => None,
        }
    }

    /// Whether an event of this type settles a model attempt.
    pub fn settles(&self) -> bool {
        matches!(self, Self::AssistantMessage | Self::LogOnly(LogOnly::AssistantAttempt))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a node of the surface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, bincode::Encode, bincode::Decode)]
pub enum NodeKind {
    /// From a `system/message`.
    System,
    /// From a `user/message`.
    User,
    /// From an `assistant/message`.
    Assistant,
    /// From a `tool/result`.
    ToolResult,
}
