//! The bodies of one session's requests, each made from the pieces of the one before.
//!
//! Owns what the formats do not know: which leading messages a request shares with the last one.

use crate::formats::{Body, BodyBuilder, BodyOptions, FormatError, ImageSource};
use crate::request::Request;

/// Makes provider bodies of one session's requests in their order.
///
/// ```
/// # use rederive_engine::{Replay, TypeRegistry};
/// use rederive_projection::formats::{BodyOptions, Format, NoObjects};
/// use rederive_projection::{Bodies, Projector};
///
/// # let mut log = Replay::new(TypeRegistry::new());
/// # log.push_line(r#"{"type":"user/message","seq":0,"time":1,"data":{"role":"user","content":[{"type":"text","text":"Hi"}]},"surfaceOp":"append"}"#)?;
/// # log.push_line(r#"{"type":"request/header","seq":1,"time":2,"data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}}"#)?;
/// let request = Projector::new().request(log.fold())?;
/// let body = Bodies::new().next(&request, "chat-1", &BodyOptions::new(Format::OpenAiChat), &NoObjects)?;
/// assert!(body.to_vec().starts_with(b"{"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Bodies {
    builder: BodyBuilder,
    /// The request of which the builder knows the pieces.
    last: Option<Request>,
}

impl Bodies {
    /// A maker that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The body of `request`, a later request of the session than the one before; `tree_id` is the name
    /// of the session at the root of the tree of forks.
    ///
    /// # Cost
    ///
    /// That of [`BodyBuilder::next`]: what is new.
    ///
    /// # Errors
    ///
    /// A [`FormatError`]; the next request may have a body again.
    pub fn next(
        &mut self,
        request: &Request,
        tree_id: &str,
        options: &BodyOptions,
        images: &dyn ImageSource,
    ) -> Result<Body, FormatError> {
        let unchanged = self.last.as_ref().map_or(0, |last| request.unchanged_since(last));
        self.last = Some(request.clone());
        self.builder.next(&request.in_tree(tree_id), unchanged, options, images)
    }
}
