//! A frozen request as the formats see it.

use super::{MessageView, RequestView};
use crate::request::Request;

/// A request, with the name of the tree of sessions that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct TreeRequest<'a> {
    request: &'a Request,
    tree_id: &'a str,
}

impl Request {
    /// The request as a format takes it; `tree_id` is the name of the session at the root of the
    /// tree of forks, which is stable for them all.
    pub fn in_tree<'a>(&'a self, tree_id: &'a str) -> TreeRequest<'a> {
        TreeRequest { request: self, tree_id }
    }
}

impl RequestView for TreeRequest<'_> {
    fn header(&self) -> &str {
        self.request.header().text()
    }

    fn len(&self) -> usize {
        self.request.message_count()
    }

    fn message(&self, index: usize) -> MessageView<'_> {
        self.request.message_node(index).map_or(MessageView { seq: 0, text: "" }, |node| MessageView {
            seq: node.seq().value(),
            text: node.text(),
        })
    }

    fn tree_id(&self) -> &str {
        self.tree_id
    }
}
