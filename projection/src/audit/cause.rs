//! Why a request does not extend the one before.
//!
//! Owns the causes and how they are read from what was logged between the two. Knows events and
//! headers; knows no bytes.

use rederive_engine::{
    Event, Kind, LogOnly, NodeKind, Seq, SurfaceOp, equal_by_value, list_items, members, object_member,
    string_text,
};
use serde::Serialize;

/// A reason why the prefix of a request ended, or what was declared beside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Cause {
    /// A field of the header changed: of its config, or one beside it.
    ConfigChanged {
        /// The field, as `config.model` or `adapterDefaults`.
        field: String,
    },
    /// A tool was added.
    ToolAdded {
        /// Its name.
        tool: String,
    },
    /// A tool was removed.
    ToolRemoved {
        /// Its name.
        tool: String,
    },
    /// A tool's schema or description changed.
    ToolChanged {
        /// Its name.
        tool: String,
    },
    /// The same tools stand in another order.
    ToolsReordered,
    /// The header is equal by value and was written otherwise.
    HeaderSpelling,
    /// The system prompt was rewritten in place.
    SystemPrompt {
        /// The `system/message`.
        seq: u64,
    },
    /// A range was replaced by a summary.
    Compaction {
        /// The summarising `user/message`.
        seq: u64,
    },
    /// A tool result was trimmed.
    Pruning {
        /// The rewritten `tool/result`.
        seq: u64,
    },
    /// A node whose attachment is lost or refused was replaced, by a placeholder or a smaller image.
    Attachment {
        /// The replacing event.
        seq: u64,
    },
    /// Some other node was rewritten.
    Rewrite {
        /// The replacing event.
        seq: u64,
    },
    /// The log does not say.
    Unexplained,
}

impl Cause {
    /// The cause's name without its particulars, as tables print it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ConfigChanged { .. } => "config changed",
            Self::ToolAdded { .. } => "tool added",
            Self::ToolRemoved { .. } => "tool removed",
            Self::ToolChanged { .. } => "tool changed",
            Self::ToolsReordered => "tools reordered",
            Self::HeaderSpelling => "header spelling",
            Self::SystemPrompt { .. } => "system prompt",
            Self::Compaction { .. } => "compaction",
            Self::Pruning { .. } => "pruning",
            Self::Attachment { .. } => "attachment",
            Self::Rewrite { .. } => "rewrite",
            Self::Unexplained => "unexplained",
        }
    }

    /// What is particular: the field, the tool, the event.
    pub fn detail(&self) -> String {
        match self {
            Self::ConfigChanged { field } => field.clone(),
            Self::ToolAdded { tool } | Self::ToolRemoved { tool } | Self::ToolChanged { tool } => {
                tool.clone()
            }
            Self::SystemPrompt { seq }
            | Self::Compaction { seq }
            | Self::Pruning { seq }
            | Self::Attachment { seq }
            | Self::Rewrite { seq } => format!("event {seq}"),
            Self::ToolsReordered | Self::HeaderSpelling | Self::Unexplained => String::new(),
        }
    }
}

/// What was logged since the last request that can end a prefix.
#[derive(Clone, Debug, Default)]
pub(super) struct Since {
    replaces: Vec<(Seq, Cause)>,
    compacting: bool,
    summaries: Vec<Seq>,
    pub(super) process_boundary: bool,
    pub(super) series: bool,
}

impl Since {
    pub(super) fn take(&mut self, event: &Event) {
        match event.kind() {
            Kind::LogOnly(LogOnly::SessionEndSeed) => self.process_boundary = true,
            Kind::LogOnly(LogOnly::CompactionStart) => self.compacting = true,
            Kind::LogOnly(LogOnly::CompactionEnd) => self.compacting = false,
            Kind::LogOnly(LogOnly::CompactionSummary) => self.summaries.push(event.seq()),
            Kind::LogOnly(LogOnly::RequestHeader) => {
                let reason = event.data_at(&["reason"]).and_then(string_text);
                self.series |=
                    reason.as_deref() == Some("series") || event.data_at(&["startsSeries"]).is_some();
            }
            kind => {
                if let (Some(node), Some(SurfaceOp::Replace { .. })) = (kind.node(), event.surface_op()) {
                    self.replaces.push((event.seq(), self.cause_of(event, node)));
                }
            }
        }
    }

    fn cause_of(&self, event: &Event, node: NodeKind) -> Cause {
        let seq = event.seq().value();
        let cites_summary = event.source_event_seqs().iter().any(|seq| self.summaries.contains(seq));
        // A placeholder, or a smaller variant, which alone says what the original measured.
        let attachment = event.visible().is_some_and(|text| {
            text.contains(crate::images::PLACEHOLDER_MARK)
                || (event.source_event_seqs().len() == 1 && text.contains("\"originalWidth\""))
        });
        match node {
            NodeKind::System => Cause::SystemPrompt { seq },
            _ if attachment => Cause::Attachment { seq },
            NodeKind::ToolResult => Cause::Pruning { seq },
            _ if cites_summary || self.compacting || event.source_event_seqs().len() > 1 => {
                Cause::Compaction { seq }
            }
            _ => Cause::Rewrite { seq },
        }
    }

    /// The causes of a break at the message whose node is `seq`, or of the surface as a whole.
    pub(super) fn surface_causes(&self) -> Vec<Cause> {
        if self.replaces.is_empty() {
            return vec![Cause::Unexplained];
        }
        self.replaces.iter().map(|(_, cause)| cause.clone()).collect()
    }

    /// A new count from here: what is still open stays open.
    pub(super) fn restart(&mut self) {
        *self = Self {
            compacting: self.compacting,
            summaries: std::mem::take(&mut self.summaries),
            ..Self::default()
        };
    }
}

/// What differs between two headers, by value.
pub(super) fn header_causes(old: &str, new: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut fields: Vec<String> = members(old).into_iter().chain(members(new)).map(|(key, _)| key).collect();
    fields.sort();
    fields.dedup();
    for field in fields {
        let (a, b) = (object_member(old, &field), object_member(new, &field));
        if same(a, b) {
            continue;
        }
        match field.as_str() {
            "tools" => tool_causes(a.unwrap_or("[]"), b.unwrap_or("[]"), &mut causes),
            "config" => config_causes(a.unwrap_or("{}"), b.unwrap_or("{}"), &mut causes),
            _ => causes.push(Cause::ConfigChanged { field }),
        }
    }
    if causes.is_empty() {
        causes.push(Cause::HeaderSpelling);
    }
    causes
}

fn same(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => equal_by_value(a, b),
        (None, None) => true,
        _ => false,
    }
}

fn config_causes(old: &str, new: &str, causes: &mut Vec<Cause>) {
    let mut fields: Vec<String> = members(old).into_iter().chain(members(new)).map(|(key, _)| key).collect();
    fields.sort();
    fields.dedup();
    for field in fields {
        if !same(object_member(old, &field), object_member(new, &field)) {
            causes.push(Cause::ConfigChanged { field: format!("config.{field}") });
        }
    }
}

fn tool_causes(old: &str, new: &str, causes: &mut Vec<Cause>) {
    let named = |tools| -> Vec<(String, &str)> {
        list_items(tools)
            .into_iter()
            .map(|tool| {
                let name =
                    object_member(tool, "name").and_then(string_text).map(std::borrow::Cow::into_owned);
                (name.unwrap_or_default(), tool)
            })
            .collect()
    };
    let (old, new) = (named(old), named(new));
    let find = |list: &[(String, &'_ str)], name: &str| list.iter().position(|(other, _)| other == name);
    let before = causes.len();
    for (name, _) in old.iter().filter(|(name, _)| find(&new, name).is_none()) {
        causes.push(Cause::ToolRemoved { tool: name.clone() });
    }
    for (name, tool) in &new {
        match find(&old, name).and_then(|at| old.get(at)) {
            None => causes.push(Cause::ToolAdded { tool: name.clone() }),
            Some((_, was)) if !equal_by_value(was, tool) => {
                causes.push(Cause::ToolChanged { tool: name.clone() });
            }
            Some(_) => {}
        }
    }
    let kept = |list: &[(String, &str)], other: &[(String, &str)]| -> Vec<String> {
        list.iter().filter(|(name, _)| find(other, name).is_some()).map(|(name, _)| name.clone()).collect()
    };
    if kept(&old, &new) != kept(&new, &old) || causes.len() == before {
        causes.push(Cause::ToolsReordered);
    }
}
