//! Provider formats: from a frozen request to the bytes of a provider's API.
//!
//! A format is a pure, versioned function of the request: the same log gives the same bytes on
//! every machine and in every run. [`body`] is that function without a cache; [`BodyBuilder`] is
//! the same fold with its pieces kept, so that the next body costs what is new in it. What a
//! provider cannot express is a [`FormatError`] that names the node, or a documented [`Rule`] that
//! the body lists; nothing is dropped in silence. `docs/FORMATS.md` states every rule.
//!
//! Numbers, key order and escapes reach the provider as they were logged; only lone surrogates
//! become U+FFFD. With an unchanged header each body without its last bytes (the envelope) and
//! without cache breakpoints is a prefix of the next one's.
//!
//! This module knows no engine: a request comes in as a [`RequestView`], objects through
//! [`ImageSource`].

mod anthropic;
mod body; // its two drivers
pub mod cache;
mod error; // what can go wrong, what was applied
mod fold; // the one mapping
mod gemini;
pub mod import;
mod json;
mod message; // what is read
mod openai_chat;
mod openai_responses;
mod settings;
mod view;
mod wire; // what is recorded of a body

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use body::{Body, BodyBuilder, body};
pub use cache::CacheRules;
pub use error::{Applied, FormatError, ObjectError, Rule};
pub use view::TreeRequest;

pub use wire::{WireError, WireRecord};

use fold::Route;
use message::Header;
use settings::Settings;

/// What a format needs to know of a frozen request.
pub trait RequestView {
    /// The verbatim text of `data.header`.
    fn header(&self) -> &str;
    /// The number of messages.
    fn len(&self) -> usize;
    /// Whether there is no message.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The message at `index`, in surface order; `index` is less than [`RequestView::len`].
    fn message(&self, index: usize) -> MessageView<'_>;
    /// A stable id of the session tree (the root session's), for `prompt_cache_key`.
    fn tree_id(&self) -> &str;
}

/// One message of a request.
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'a> {
    /// The node's seq.
    pub seq: u64,
    /// The verbatim JSON text of the message.
    pub text: &'a str,
}

/// What stands behind a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// The bytes, which go into the body in base64.
    Bytes {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The content.
        bytes: Bytes,
    },
    /// An address that the provider fetches.
    Url {
        /// The media type.
        media_type: String,
        /// The address.
        url: String,
    },
}

/// Where images and files come from.
pub trait ImageSource {
    /// The object behind `reference`: the JSON text of the block's `attachment`, or of the whole
    /// block where it has none. The same reference must always give the same object.
    ///
    /// # Errors
    ///
    /// [`ObjectError`], by which the request fails before it is sent.
    fn resolve(&self, reference: &str) -> Result<Object, ObjectError>;
}

/// A source without objects: every reference is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObjects;

impl ImageSource for NoObjects {
    fn resolve(&self, _reference: &str) -> Result<Object, ObjectError> {
        Err(ObjectError::Missing)
    }
}

/// The wire format of a provider's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The canonical request bytes of the design.
    Canonical,
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and its dialects.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// OpenAI Responses.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Gemini `generateContent`.
    Gemini,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 5] =
        [Self::Canonical, Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini];

    /// The name in commands and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Canonical => "canonical",
            Self::Anthropic => "anthropic",
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
            Self::Gemini => "gemini",
        }
    }

    /// The version of the mapping: any change of the bytes that it gives raises it.
    pub const fn version(self) -> u32 {
        1
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name is no format's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}`: canonical, anthropic, openai-chat, openai-responses or gemini")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// Whose reading of OpenAI Chat Completions is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// OpenAI's own.
    #[serde(rename = "openai")]
    OpenAi,
    #[serde(rename = "deepseek")]
    /// DeepSeek's: plain string contents, `reasoning_content`, `max_tokens`.
    DeepSeek,
}

/// How long a cache entry shall live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// The provider's default (Anthropic: five minutes).
    Default,
    /// One hour (Anthropic).
    Hour,
}

/// Limits on the images of one request; none unless set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageLimits {
    /// The most images.
    pub count_max: Option<usize>,
    /// The most bytes of one image, before base64.
    pub bytes_max: Option<usize>,
    /// `(count, side)`: with more than `count` images no side may be longer than `side` pixels.
    pub side_max_over: Option<(usize, u32)>,
}

/// What a body depends on beside the request. Part of the record of a dispatch.
#[expect(clippy::struct_excessive_bools, reason = "independent options, set by name")]
#[derive(Clone, Debug, PartialEq)]
pub struct BodyOptions {
    format: Format,
    dialect: Option<Dialect>,
    stream: bool,
    system_as_user: bool,
    max_tokens_default: u64,
    breakpoints: bool,
    head_lifetime: Lifetime,
    cache_key: bool,
    digest: bool,
    images: ImageLimits,
    rules: Arc<CacheRules>,
}

impl BodyOptions {
    /// The defaults: no streaming, cache breakpoints and cache key where the model has them.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            dialect: None,
            stream: false,
            system_as_user: false,
            max_tokens_default: 8_192,
            breakpoints: true,
            head_lifetime: Lifetime::Default,
            cache_key: true,
            digest: false,
            images: ImageLimits::default(),
            rules: CacheRules::built_in(),
        }
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the stable head's entry is asked to live for an hour.
    pub fn is_hourly(&self) -> bool {
        self.head_lifetime == Lifetime::Hour
    }

    /// Asks for a streamed answer. Default: no.
    #[must_use]
    pub fn stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Names the dialect of Chat Completions. Default: by the provider's name (`deepseek…`).
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Sends in-history system prompts as user text, also where the model takes them in place.
    /// Default: no.
    #[must_use]
    pub fn system_as_user(mut self, always: bool) -> Self {
        self.system_as_user = always;
        self
    }

    /// The token limit where the provider demands one and the config has none. Default 8,192.
    #[must_use]
    pub fn max_tokens_default(mut self, tokens: u64) -> Self {
        self.max_tokens_default = tokens;
        self
    }

    /// Places cache breakpoints where the model has them. Default: yes.
    #[must_use]
    pub fn breakpoints(mut self, place: bool) -> Self {
        self.breakpoints = place;
        self
    }

    /// The lifetime of the stable head's entry. Default: the provider's.
    #[must_use]
    pub fn head_lifetime(mut self, lifetime: Lifetime) -> Self {
        self.head_lifetime = lifetime;
        self
    }

    /// Sends a cache key for the session tree where the model takes one. Default: yes.
    #[must_use]
    pub fn cache_key(mut self, send: bool) -> Self {
        self.cache_key = send;
        self
    }

    /// Keeps a running digest, so that [`Body::digest`] costs what is new; the pure [`body`] passes
    /// it over. Default: no.
    #[must_use]
    pub fn digest(mut self, keep: bool) -> Self {
        self.digest = keep;
        self
    }

    /// Limits on images, over the whole request. Default: none.
    #[must_use]
    pub fn images(mut self, limits: ImageLimits) -> Self {
        self.images = limits;
        self
    }

    /// The dated rules of models. Default: [`CacheRules::built_in`].
    #[must_use]
    pub fn rules(mut self, rules: Arc<CacheRules>) -> Self {
        self.rules = rules;
        self
    }
}

/// The bytes before the first node: what depends on the header alone.
#[derive(Debug, Default)]
struct Head {
    bytes: Vec<u8>,
    rules: Vec<Applied>,
    /// Where a marker on the last tool would go.
    last_tool: Option<usize>,
}

impl Head {
    fn build(header_text: &str, tree_id: &str, options: &BodyOptions) -> Result<(Self, Route), FormatError> {
        let mut head = Self::default();
        let format = options.format;
        if format == Format::Canonical {
            head.bytes = [b"{\"header\":", header_text.as_bytes(), b",\"messages\":["].concat();
            return Ok((head, Route::canonical()));
        }
        let header = Header::read(header_text, &mut head.rules)?;
        let settings = Settings::read(&header, &mut head.rules)?;
        let by_name =
            if header.provider.starts_with("deepseek") { Dialect::DeepSeek } else { Dialect::OpenAi };
        let route = Route {
            format,
            dialect: options.dialect.unwrap_or(by_name),
            provider: header.provider.clone().into_owned(),
            model: header.model.clone().into_owned(),
            rule: options.rules.find(format, &header.provider, &header.model),
            system_as_user: options.system_as_user,
        };
        match format {
            Format::Anthropic => anthropic::head(&route, &header, &settings, options, &mut head)?,
            Format::OpenAiChat => openai_chat::head(&route, &header, &settings, options, tree_id, &mut head)?,
            Format::OpenAiResponses => {
                openai_responses::head(&route, &header, &settings, options, tree_id, &mut head)?;
            }
            Format::Gemini => gemini::head(&header, &settings, options, &mut head)?,
            Format::Canonical => {}
        }
        Ok((head, route))
    }

    /// The token limit, or the default with its rule.
    fn max_tokens(&mut self, settings: &Settings<'_>, options: &BodyOptions) -> String {
        settings.max_tokens.map_or_else(
            || {
                let detail = Some(options.max_tokens_default.to_string());
                self.rules.push(Applied { seq: None, rule: Rule::MaxTokensDefault, detail });
                options.max_tokens_default.to_string()
            },
            str::to_owned,
        )
    }
}
