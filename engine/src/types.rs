//! The log-only types that a host registers when it opens a store.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::event::Kind;

/// Names of log-only types that the host knows and the format does not.
///
/// The registration is stored with each session that the host writes, so that a later reader knows
/// the types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeRegistry {
    names: BTreeSet<Arc<str>>,
}

/// The log-only types that the reference harness itself adds to the format.
const HARNESS_TYPES: &[&str] = &[
    "approval/asked",
    "approval/decided",
    "approval/policy",
    "command/done",
    "command/run",
    "goal/change",
    "hook/invoked",
    "hook/result",
    "image/offload",
    "llm/retry-started",
    "permission/preset",
    "plan/mode",
    "request/tool-update",
    "sandbox/mode",
    "session-log-deepseek/delivery-accepted",
    "session/title-llm-request",
    "subagent/catalog",
    "subagent/descriptor",
    "tool-workflow/agent-end",
    "tool-workflow/agent-start",
    "tool-workflow/run-end",
    "tool-workflow/run-start",
    "tool/code-dispatch",
    "tool/code-dispatch-start",
];

impl TypeRegistry {
    /// A registry without types.
    pub fn new() -> Self {
        Self::default()
    }

    /// The types that the reference harness adds to the format: what an importer of its logs needs.
    pub fn harness() -> Self {
        let mut registry = Self::default();
        for name in HARNESS_TYPES {
            registry.names.insert((*name).into());
        }
        registry
    }

    /// Adds the log-only type `name`; `false` where the name is empty, belongs to the format, or is
    /// longer than 256 bytes.
    pub fn register(&mut self, name: &str) -> bool {
        let usable = !name.is_empty()
            && name.len() <= 256
            && name != "session"
            && name != "request/header-delta"
            && matches!(Kind::from_name(name), Kind::Foreign(_));
        if usable {
            self.names.insert(name.into());
        }
        usable
    }

    /// Whether `name` is registered.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The registered names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.names.extend(other.names.iter().cloned());
    }
}
