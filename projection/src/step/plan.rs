//! The plan of a step: system prompt, tools and call config, as plain values.
//!
//! Owns how a header's text is made from them, and when one is owed. The host passes the whole plan
//! in every step; what changed is found by comparing values.

use rederive_engine::{Fold, equal_by_value, is_json_object, members, object_member, string_text};

use super::error::StepError;
use super::message::{Object, string};
use crate::formats::BodyOptions;

/// The settings of a model call: provider, model and whatever else the host sets, in order.
///
/// ```
/// use rederive_projection::step::CallConfig;
///
/// let config = CallConfig::new("p", "m").set("temperature", "0.20");
/// assert_eq!(config.to_json(), r#"{"provider":"p","model":"m","temperature":0.20}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallConfig {
    members: Vec<(String, String)>,
}

impl CallConfig {
    /// The settings of calls to `model` of `provider`.
    pub fn new(provider: &str, model: &str) -> Self {
        Self { members: vec![("provider".to_owned(), string(provider)), ("model".to_owned(), string(model))] }
    }

    /// Sets `key` to the JSON value `value`, kept verbatim.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        match self.members.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.members.push((key.to_owned(), value.to_owned())),
        }
        self
    }

    /// Leaves `key` out.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Self {
        self.members.retain(|(name, _)| name != key);
        self
    }

    /// The verbatim value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The settings as one JSON object.
    pub fn to_json(&self) -> String {
        let members: Vec<String> =
            self.members.iter().map(|(key, value)| format!("{}:{value}", string(key))).collect();
        format!("{{{}}}", members.join(","))
    }

    /// The provider's name, as text.
    pub fn provider(&self) -> String {
        self.text("provider")
    }

    /// The model's name, as text.
    pub fn model(&self) -> String {
        self.text("model")
    }

    fn text(&self, key: &str) -> String {
        self.get(key).and_then(string_text).unwrap_or_default().into_owned()
    }

    /// The settings that a host set itself, from a logged header: its config without the members that
    /// `adapterDefaults` marks.
    pub(super) fn explicit(header: &str) -> Option<Self> {
        let defaults = members(object_member(header, "adapterDefaults").unwrap_or("{}"));
        let is_default = |key: &str| defaults.iter().any(|(name, value)| name == key && *value == "true");
        let members = members(object_member(header, "config")?)
            .into_iter()
            .filter(|(key, _)| !is_default(key))
            .map(|(key, value)| (key, value.to_owned()))
            .collect();
        Some(Self { members })
    }
}

/// What a step sends beside the conversation: system prompt, tools, call config, and what the route
/// can do.
///
/// ```
/// use rederive_projection::step::{CallConfig, Plan};
///
/// let plan = Plan::new("Be brief.", CallConfig::new("p", "m"))
///     .tools([r#"{"name":"read","parameters":{"type":"object"}}"#])
///     .adapter_default("maxTokens", "8192");
/// # let _ = plan;
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    system: String,
    config: CallConfig,
    defaults: Vec<(String, String)>,
    tools: Vec<String>,
    reads_updates: bool,
    context_window: Option<u64>,
    pub(super) wire: Option<BodyOptions>,
}

impl Plan {
    /// A plan without tools, for a route that takes a system prompt at the head alone. An empty
    /// `system` means no prompt.
    pub fn new(system: impl Into<String>, config: CallConfig) -> Self {
        Self {
            system: system.into(),
            config,
            defaults: Vec::new(),
            tools: Vec::new(),
            reads_updates: false,
            context_window: None,
            wire: None,
        }
    }

    /// The tools, each a JSON object with a `name`, in the order in which the model is to see them.
    #[must_use]
    pub fn tools<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.tools = tools.into_iter().map(Into::into).collect();
        self
    }

    /// A setting that the provider's adapter brings where the host set none: it is sent, and marked
    /// as the adapter's, so that a later adapter may bring another one.
    #[must_use]
    pub fn adapter_default(mut self, key: &str, value: &str) -> Self {
        self.defaults.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Says that the route reads system messages within the history, so that a changed prompt is
    /// appended and keeps the prefix.
    #[must_use]
    pub fn reads_system_updates(mut self) -> Self {
        self.reads_updates = true;
        self
    }

    /// The model's context window in tokens, which `request/context` records.
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.context_window = Some(tokens);
        self
    }

    /// Builds the provider's body with the request and records its digest in the dispatch. A request
    /// that has no body in this format is refused before anything is written.
    #[must_use]
    pub fn wire(mut self, options: BodyOptions) -> Self {
        self.wire = Some(options);
        self
    }

    /// The system prompt.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// Whether the route reads system messages within the history.
    pub fn is_reading_system_updates(&self) -> bool {
        self.reads_updates
    }

    /// The settings that the host set.
    pub fn config(&self) -> &CallConfig {
        &self.config
    }

    pub(super) fn check(&self) -> Result<(), StepError> {
        let mut names = Vec::with_capacity(self.tools.len());
        for (index, tool) in self.tools.iter().enumerate() {
            let name = object_member(tool, "name").filter(|_| is_json_object(tool)).and_then(string_text);
            let Some(name) = name else {
                return Err(StepError::Tool { index, why: "it is no JSON object with a name" });
            };
            if names.contains(&name) {
                return Err(StepError::Tool { index, why: "another tool has the same name" });
            }
            names.push(name);
        }
        Ok(())
    }

    /// The header that the plan asks for: the text of the one in force where the two are equal by
    /// value.
    pub(super) fn header(&self, fold: &Fold) -> HeaderText {
        let mut config = self.config.clone();
        let mut marks = Vec::new();
        for (key, value) in &self.defaults {
            if config.get(key).is_none() {
                config = config.set(key, value);
                marks.push(format!("{}:true", string(key)));
            }
        }
        let defaults = if marks.is_empty() { String::new() } else { format!("{{{}}}", marks.join(",")) };
        let tools = if self.tools.is_empty() { String::new() } else { format!("[{}]", self.tools.join(",")) };
        let some = |text: String| (!text.is_empty()).then_some(text);
        let text = Object::new()
            .raw("config", config.to_json())
            .maybe("adapterDefaults", some(defaults))
            .maybe("tools", some(tools))
            .finish();
        match fold.header() {
            Some(header) if equal(header.text(), &text) => {
                HeaderText { text: header.text().to_owned(), changed: false }
            }
            _ => HeaderText { text, changed: true },
        }
    }

    /// The data of the `request/context` that describes the route.
    pub(super) fn route(&self) -> String {
        let update = self.reads_updates.then_some("\"in-history\"");
        Object::new()
            .text("provider", &self.config.provider())
            .text("model", &self.config.model())
            .maybe("contextWindow", self.context_window)
            .maybe("systemPromptUpdate", update)
            .finish()
    }
}

/// The text of the header that a step needs.
pub(super) struct HeaderText {
    pub(super) text: String,
    /// Whether it differs by value from the one in force, or there is none.
    pub(super) changed: bool,
}

/// Whether two headers are equal by value over config, adapter defaults and tools in order.
fn equal(a: &str, b: &str) -> bool {
    ["config", "adapterDefaults", "tools"].into_iter().all(|key| {
        match (object_member(a, key), object_member(b, key)) {
            (Some(a), Some(b)) => equal_by_value(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    })
}

/// Why a header is written, and whether it starts a series; `None` where none is owed.
pub(super) fn header_event(fold: &Fold, header: &HeaderText, starts_series: bool) -> Option<String> {
    let reason = match (fold.header(), fold.last_marker()) {
        (None, _) => "initial",
        (Some(in_force), Some(marker)) if in_force.seq() < marker => "resume",
        _ if header.changed => "change",
        _ if starts_series => "series",
        _ => return None,
    };
    let series = (starts_series && reason != "series").then_some(true);
    Some(
        Object::new()
            .raw("header", &header.text)
            .text("reason", reason)
            .maybe("startsSeries", series)
            .finish(),
    )
}
