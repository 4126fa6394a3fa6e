//! What a dispatch records of the body that was sent, and what it takes to make that body again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Body, BodyOptions, CacheRules, Dialect, Format, Lifetime};

/// The record of a body: `wire` of a `request/dispatch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireRecord {
    format: Format,
    version: u32,
    digest: String,
    bytes: usize,
    options: Recorded,
    /// The root of the tree of forks, after which the cache key is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tree: Option<String>,
}

/// The options that shape the bytes. Limits refuse or pass, so they are not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent options, each with a name")]
struct Recorded {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dialect: Option<Dialect>,
    stream: bool,
    system_as_user: bool,
    max_tokens_default: u64,
    breakpoints: bool,
    head_lifetime: Lifetime,
    cache_key: bool,
    /// The date of the table of model rules.
    rules: String,
}

/// Why a recorded body cannot be made again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The record is not of the form that is written. Report it.
    #[error("the record of the body cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// The format has another version now. Check with the release that wrote it.
    #[error("{format} version {recorded} was recorded, and this is version {known}")]
    Version {
        /// The format.
        format: Format,
        /// The version that was recorded.
        recorded: u32,
        /// The version that is known.
        known: u32,
    },
    /// The table of model rules has another date. Check with the table of that day.
    #[error("the model rules of {recorded} were used, and these are of {known}")]
    Rules {
        /// The date that was recorded.
        recorded: String,
        /// The date of the table that was given.
        known: String,
    },
}

impl WireRecord {
    /// The record of a body that was made with `options`. Cost: that of [`Body::digest`].
    pub fn of(body: &Body, options: &BodyOptions) -> Self {
        Self {
            format: body.format(),
            version: body.format().version(),
            digest: format!("blake3:{}", body.digest().to_hex()),
            bytes: body.len(),
            options: Recorded {
                dialect: options.dialect,
                stream: options.stream,
                system_as_user: options.system_as_user,
                max_tokens_default: options.max_tokens_default,
                breakpoints: options.breakpoints,
                head_lifetime: options.head_lifetime,
                cache_key: options.cache_key,
                rules: options.rules.date().to_owned(),
            },
            tree: None,
        }
    }

    /// Records the tree that the body was made for. Which tree a session belongs to is not in its own
    /// log, and cannot be found out for ever: ancestors may be deleted.
    #[must_use]
    pub fn in_tree(mut self, tree_id: &str) -> Self {
        self.tree = Some(tree_id.to_owned());
        self
    }

    /// The tree that the body was made for, where it was recorded.
    pub fn tree(&self) -> Option<&str> {
        self.tree.as_deref()
    }

    /// The record as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`WireError::Unreadable`].
    pub fn parse(text: &str) -> Result<Self, WireError> {
        Ok(serde_json::from_str(text)?)
    }

    /// The options that make the body again, with the table of model rules of that day.
    ///
    /// # Errors
    ///
    /// [`WireError::Version`], [`WireError::Rules`]: the bytes cannot be expected to be the same.
    pub fn options(&self, rules: &Arc<CacheRules>) -> Result<BodyOptions, WireError> {
        let (format, recorded, known) = (self.format, self.version, self.format.version());
        if recorded != known {
            return Err(WireError::Version { format, recorded, known });
        }
        if self.options.rules != rules.date() {
            let (recorded, known) = (self.options.rules.clone(), rules.date().to_owned());
            return Err(WireError::Rules { recorded, known });
        }
        let mut options = BodyOptions::new(format)
            .stream(self.options.stream)
            .system_as_user(self.options.system_as_user)
            .max_tokens_default(self.options.max_tokens_default)
            .breakpoints(self.options.breakpoints)
            .head_lifetime(self.options.head_lifetime)
            .cache_key(self.options.cache_key)
            .rules(Arc::clone(rules));
        options.dialect = self.options.dialect;
        Ok(options)
    }

    /// Whether `body` is the one that was recorded.
    pub fn matches(&self, body: &Body) -> bool {
        self.format == body.format()
            && self.bytes == body.len()
            && self.digest == format!("blake3:{}", body.digest().to_hex())
    }
}
