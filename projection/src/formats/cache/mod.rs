//! Prompt caching: the providers' rules as dated data, where breakpoints go, what a request can
//! expect to read, and what it costs.
//!
//! Owns `rules.json`, which changes every few months and holds a date and a source a line; a host
//! can bring its own table. Knows no clock and no network: time and usage come in as arguments.

mod expect; // what the next request can read
mod model; // a provider's cache in small, to check plans against
pub(super) mod plan; // where breakpoints go
mod price; // what that costs

use std::sync::{Arc, OnceLock};

use serde::Deserialize;

use super::{BodyOptions, Format, json};

pub use expect::{Context, Expectation, Footprint, MissReason, Segment, SegmentKind, expected_cached};
pub use model::{CacheModel, Unreached, check_reach};
pub use price::{Price, PriceTable, Usage};

/// How a provider's cache works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Nothing is known.
    #[default]
    None,
    /// At most four breakpoints, found within twenty blocks.
    Anthropic,
    /// The longest common prefix, in steps of tokens.
    OpenaiImplicit,
    /// Breakpoints on content parts, and the tail by itself.
    OpenaiExplicit,
    /// Prefix units at both ends of each request.
    Deepseek,
    /// The common prefix, without a guarantee.
    Gemini,
}

/// How a model takes the reasoning effort on the Anthropic wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// `output_config.effort` alone.
    #[default]
    Plain,
    /// Adaptive thinking, and `output_config.effort`.
    Adaptive,
    /// A thinking budget in tokens.
    Budget,
}

fn yes() -> bool {
    true
}

fn any() -> String {
    "*".to_owned()
}

/// What is known of the models that a pattern names, with date and source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRule {
    wire: String,
    #[serde(default = "any")]
    provider: String,
    model: String,
    pub(super) mechanism: Mechanism,
    #[serde(default)]
    min_tokens: u64,
    #[serde(default)]
    granularity_tokens: u64,
    #[serde(default)]
    lifetime_s: u64,
    #[serde(default)]
    cache_key: bool,
    #[serde(default = "yes")]
    pub(super) sampling: bool,
    #[serde(default)]
    pub(super) effort: Effort,
    #[serde(default)]
    pub(super) system_in_history: bool,
    as_of: String,
    source: String,
    #[serde(default)]
    disputed: Vec<Disputed>,
}

/// A figure of another source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disputed {
    /// The other minimum, in tokens.
    pub min_tokens: Option<u64>,
    /// The other step, in tokens.
    pub granularity_tokens: Option<u64>,
    /// The source's date.
    pub as_of: String,
    /// The source.
    pub source: String,
}

impl ModelRule {
    /// The mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The shortest prefix that is cached, in tokens, by the newest source.
    pub fn min_tokens(&self) -> u64 {
        self.min_tokens
    }

    /// The least minimum that any source names: below it a breakpoint surely does nothing.
    pub fn min_tokens_least(&self) -> u64 {
        let others = self.disputed.iter().filter_map(|other| other.min_tokens);
        others.fold(self.min_tokens, u64::min)
    }

    /// How long an entry lives unless it is used, in seconds, at least.
    pub fn lifetime_s(&self) -> u64 {
        match self.mechanism {
            Mechanism::Anthropic if self.lifetime_s == 0 => 300,
            _ => self.lifetime_s,
        }
    }

    /// The date and the source of the line.
    pub fn source(&self) -> (&str, &str) {
        (&self.as_of, &self.source)
    }

    /// What other sources say.
    pub fn disputed(&self) -> &[Disputed] {
        &self.disputed
    }

    pub(super) fn unknown() -> Self {
        Self {
            wire: any(),
            provider: any(),
            model: any(),
            mechanism: Mechanism::None,
            min_tokens: 0,
            granularity_tokens: 0,
            lifetime_s: 0,
            cache_key: false,
            sampling: true,
            effort: Effort::Plain,
            system_in_history: false,
            as_of: String::new(),
            source: String::new(),
            disputed: Vec::new(),
        }
    }
}

/// A dated table of model rules; the first line that fits is the one that counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRules {
    date: String,
    rules: Vec<ModelRule>,
}

/// The table is not of the form of `rules.json`. Correct it.
#[derive(Debug, thiserror::Error)]
#[error("the table of cache rules cannot be read")]
pub struct TableError(#[from] serde_json::Error);

impl CacheRules {
    /// The table that is built in.
    pub fn built_in() -> Arc<Self> {
        static TABLE: OnceLock<Arc<CacheRules>> = OnceLock::new();
        // A test holds that the table reads; an unreadable one would know no model.
        let read = || Arc::new(Self::parse(include_str!("rules.json")).unwrap_or_default());
        Arc::clone(TABLE.get_or_init(read))
    }

    /// Reads a table.
    ///
    /// # Errors
    ///
    /// [`TableError`]: it is not of the form of the built-in one.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        Ok(serde_json::from_str(text)?)
    }

    /// The day on which the table was last checked.
    pub fn date(&self) -> &str {
        &self.date
    }

    /// The lines.
    pub fn lines(&self) -> &[ModelRule] {
        &self.rules
    }

    /// What is known of a model on a wire.
    pub fn find(&self, format: Format, provider: &str, model: &str) -> ModelRule {
        let fits = |rule: &&ModelRule| {
            rule.wire == format.name() && glob(&rule.provider, provider) && glob(&rule.model, model)
        };
        self.rules.iter().find(fits).cloned().unwrap_or_else(ModelRule::unknown)
    }
}

/// Whether `text` fits `pattern`, in which a `*` at the end stands for anything.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => pattern == text,
    }
}

/// The cache fields of OpenAI's wires: a key for the session tree, and the mode.
pub(super) fn put_openai_fields(out: &mut Vec<u8>, rule: &ModelRule, options: &BodyOptions, tree_id: &str) {
    if options.cache_key && rule.cache_key {
        out.extend_from_slice(b",\"prompt_cache_key\":");
        if tree_id.len() <= 64 {
            json::put_string(out, tree_id);
        } else {
            json::put_string(out, blake3::hash(tree_id.as_bytes()).to_hex().as_str());
        }
    }
    if options.breakpoints && rule.mechanism == Mechanism::OpenaiExplicit {
        out.extend_from_slice(b",\"prompt_cache_options\":{\"mode\":\"implicit\"}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_built_in_table_has_a_date_and_a_source() {
        let table = CacheRules::built_in();
        assert!(table.date() >= "2026-12-01");
        for line in table.lines() {
            let (date, source) = line.source();
            assert!(date.len() == 10 && !source.is_empty(), "{line:?}");
            let format = Format::ALL.into_iter().find(|format| format.name() == line.wire);
            assert!(format.is_some(), "{line:?}");
        }
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let table = CacheRules::built_in();
        let find = |format, provider, model| table.find(format, provider, model);
        let opus = find(Format::Anthropic, "anthropic", "claude-opus-4-8-20260601");
        assert_eq!((opus.min_tokens(), opus.min_tokens_least()), (1_024, 1_024));
        assert_eq!(opus.disputed()[0].min_tokens, Some(4_096));
        assert_eq!(find(Format::Anthropic, "deepseek-x", "m").mechanism(), Mechanism::Deepseek);
        assert_eq!(find(Format::OpenAiChat, "openai", "gpt-5.6-mini").mechanism(), Mechanism::OpenaiExplicit);
        assert_eq!(find(Format::OpenAiChat, "openai", "gpt-5.5").mechanism(), Mechanism::OpenaiImplicit);
        assert_eq!(find(Format::Canonical, "p", "m").mechanism(), Mechanism::None);
    }
}
