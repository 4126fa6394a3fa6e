//! Pruning: one tool result gives way to a shorter one.
//!
//! Owns the rewritten event: the same data in every byte but the content of the result's first block.

use rederive_engine::{Draft, Durability, NodeKind, Seq, list_items, object_member};

use super::Upkeep;
use super::error::UpkeepError;
use crate::step::message::{Object, spliced, text_block};

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
        let reader = self.conversation.reader()?;
        let mut pruned_at = seq;
        self.conversation.append_made(Durability::Buffered, |fold| {
            let node = fold.surface().get(seq).filter(|node| node.kind() == NodeKind::ToolResult);
            let before = node.ok_or_else(missing)?.text().len();
            let event = reader.event(seq)?.ok_or_else(missing)?;
            let data = event.data();
            let block = object_member(event.visible().unwrap_or_default(), "content")
                .and_then(|content| list_items(content).into_iter().next())
                .ok_or_else(missing)?;
            let content = object_member(block, "content").ok_or_else(missing)?;
            let pruned = spliced(data, content, &format!("[{}]", text_block(text)));
            let after = before + pruned.len() - data.len();
            let log = Object::new().raw("seq", seq).raw("bytesBefore", before).raw("bytesAfter", after);
            pruned_at = fold.next_seq().next();
            Ok::<_, UpkeepError>(vec![
                Draft::new("compaction/prune", log.finish()),
                Draft::replace("tool/result", pruned, seq, seq).citing([seq]),
            ])
        })?;
        Ok(pruned_at)
    }
}
