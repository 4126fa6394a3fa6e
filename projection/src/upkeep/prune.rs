//! Pruning: one tool result gives way to a shorter one.
//!
//! Owns the rewritten event: the same data in every byte but the content of the result's first block.

use rederive_engine::{Draft, NodeKind, Seq, list_items, object_member};

use super::Upkeep;
use super::error::UpkeepError;
use crate::step::message::{Object, text_block};

impl Upkeep<'_> {
    /// Replaces the content of the tool result `seq` by `text`: `compaction/prune` and the replacing
    /// `tool/result`, one atomic batch. The next barrier syncs it. Gives the new node.
    ///
    /// Later requests differ from that node on; the audit names the prune as the cause.
    ///
    /// # Errors
    ///
    /// [`UpkeepError::NoToolResult`]; [`UpkeepError::Step`].
    pub fn prune(&mut self, seq: Seq, text: &str) -> Result<Seq, UpkeepError> {
        let missing = || UpkeepError::NoToolResult { seq };
        let fold = self.conversation.fold()?;
        let node = fold.surface().get(seq).filter(|node| node.kind() == NodeKind::ToolResult);
        let node = node.ok_or_else(missing)?;
        let event = self.conversation.reader()?.event(seq)?.ok_or_else(missing)?;
        let (data, before) = (event.data(), node.text().len());
        let block = object_member(event.visible().unwrap_or_default(), "content")
            .and_then(|content| list_items(content).into_iter().next())
            .ok_or_else(missing)?;
        let content = object_member(block, "content").ok_or_else(missing)?;
        let pruned = replaced(data, content, &format!("[{}]", text_block(text)));
        let after = before + pruned.len() - data.len();
        let log = Object::new().raw("seq", seq).raw("bytesBefore", before).raw("bytesAfter", after).finish();
        let at = fold.next_seq();
        self.conversation.append(vec![
            Draft::new("compaction/prune", log),
            Draft::replace("tool/result", pruned, seq, seq).citing([seq]),
        ])?;
        Ok(at.next())
    }
}

/// `whole` with `part`, a slice of it, replaced by `new`.
fn replaced(whole: &str, part: &str, new: &str) -> String {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    let (before, rest) = whole.split_at(start);
    let behind = rest.get(part.len()..).unwrap_or_default();
    format!("{before}{new}{behind}")
}
