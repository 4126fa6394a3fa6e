//! Attachments: images that a provider does not take give way to smaller ones, or to placeholders.

use rederive_cas::{ImageRef, placeholder};
use rederive_engine::{Durability, Seq};

use super::Upkeep;
use super::error::UpkeepError;

impl Upkeep<'_> {
    /// Replaces the images of the node `seq` for which `is_bad` gives a reason by placeholders: one
    /// logged replace of that node, durable on return. Gives the new node.
    ///
    /// # Errors
    ///
    /// [`UpkeepError::Images`], [`UpkeepError::Step`].
    pub fn quarantine(
        &mut self,
        seq: Seq,
        is_bad: impl Fn(&ImageRef) -> Option<String>,
    ) -> Result<Seq, UpkeepError> {
        self.replace_images(seq, |image| is_bad(image).map(|why| placeholder(image, &why)))
    }

    /// Replaces the images of the node `seq` for which `by` gives another block, such as that of a
    /// smaller variant: one logged replace of that node, durable on return. Gives the new node.
    /// Earlier requests still say what they were.
    ///
    /// # Errors
    ///
    /// [`UpkeepError::Images`], [`UpkeepError::Step`].
    pub fn replace_images(
        &mut self,
        seq: Seq,
        by: impl Fn(&ImageRef) -> Option<String>,
    ) -> Result<Seq, UpkeepError> {
        let reader = self.conversation.reader()?;
        let mut node = seq;
        self.conversation.append_made(Durability::Synced, |fold| {
            node = fold.next_seq();
            Ok::<_, UpkeepError>(vec![crate::images::replacement(fold, &reader, seq, &by)?])
        })?;
        Ok(node)
    }
}
