//! One-shot calls: requests to a model that are not the conversation's.
//!
//! Owns their type, which is never taken for a [`Request`], and their bytes: those of a request with
//! a header of its own. A summarising call is one; a host may make others.

use rederive_engine::{Refusal, Replay, TypeRegistry};

use crate::formats::{Body, BodyOptions, FormatError, ImageSource, body};
use crate::projector::{ProjectError, Projector};
use crate::request::{Request, RequestDigest};
use crate::step::CallConfig;

/// A call to a model beside the conversation: its own config, its own messages, no tools.
///
/// The same config and messages always give the same bytes.
///
/// ```
/// use rederive_projection::OneShot;
/// use rederive_projection::step::{CallConfig, message};
///
/// let call = OneShot::new(&CallConfig::new("p", "small"), &[message::user("q", "Name this chat.")])?;
/// assert!(call.to_vec().starts_with(br#"{"header":{"config":{"provider":"p","model":"small"}}"#));
/// # Ok::<(), rederive_projection::OneShotError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShot {
    request: Request,
}

/// Why a one-shot call cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OneShotError {
    /// A message or setting breaks a rule of the log's format; the seq is its place in the call.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It has no header; report it.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

impl OneShot {
    /// A call with `config` that sends `messages`, each a verbatim JSON object of role `user`,
    /// `assistant` or `system`.
    ///
    /// # Errors
    ///
    /// [`OneShotError::Refused`].
    pub fn new(config: &CallConfig, messages: &[String]) -> Result<Self, OneShotError> {
        let mut log = Replay::new(TypeRegistry::new());
        let mut seq = 0;
        let mut push = |kind: &str, data: &str, op: &str| {
            let line = format!("{{\"type\":\"{kind}\",\"seq\":{seq},\"time\":0,\"data\":{data}{op}}}");
            seq += 1;
            log.push_line(&line)
        };
        let header = format!("{{\"header\":{{\"config\":{}}},\"reason\":\"initial\"}}", config.to_json());
        push("request/header", &header, "")?;
        for message in messages {
            let role = rederive_engine::object_member(message, "role").unwrap_or_default();
            let (kind, data) = match role {
                "\"assistant\"" => ("assistant/message", format!("{{\"message\":{message}}}")),
                "\"system\"" => ("system/message", format!("{{\"message\":{message}}}")),
                _ => ("user/message", message.clone()),
            };
            push(kind, &data, ",\"surfaceOp\":\"append\"")?;
        }
        Ok(Self { request: Projector::new().request(log.fold())? })
    }

    /// The digest of the bytes.
    pub fn digest(&self) -> RequestDigest {
        self.request.digest()
    }

    /// Length of the bytes.
    pub fn bytes(&self) -> u64 {
        self.request.bytes()
    }

    /// How many messages the call carries.
    pub fn message_count(&self) -> usize {
        self.request.message_count()
    }

    /// The bytes, in the canonical form of a request.
    pub fn to_vec(&self) -> Vec<u8> {
        self.request.to_vec()
    }

    /// The provider's body of the call. It sends no cache key of the conversation.
    ///
    /// # Errors
    ///
    /// A [`FormatError`].
    pub fn body(&self, options: &BodyOptions, images: &dyn ImageSource) -> Result<Body, FormatError> {
        body(&self.request.in_tree(""), &options.clone().cache_key(false), images)
    }
}
