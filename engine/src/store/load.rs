//! Loading a fold from sealed segments.
//!
//! Owns the way from a checkpoint to a fold: the live nodes' texts from the blocks that hold them,
//! and nothing else. Costs what the model sees, whatever the log's length.

use std::ops::Range;

use super::Shared;
use super::error::StoreError;
use crate::event::{Event, line};
use crate::fold::{Checkpoint, Fold, Header};
use crate::ids::{SegmentId, Seq, SessionKey};
use crate::segment::{SegmentError, SegmentReader, VisibleText, restore, segment_path};

/// Where some of a session's events are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) id: SegmentId,
    pub(crate) first: Seq,
    /// The seq behind the last event that belongs to the session: the segment's end, or a fork's cut.
    pub(crate) end: Seq,
}

impl Shared {
    /// Opens the segment of `stretch`.
    pub(crate) fn segment(&self, stretch: Stretch) -> Result<SegmentReader, StoreError> {
        let path = segment_path(&self.segments, stretch.id);
        Ok(SegmentReader::open(self.disk.as_ref(), &path, stretch.id)?)
    }

    /// Opens the segment that holds the session's event `seq`; `None` where it is not sealed.
    pub(crate) fn segment_with(
        &self,
        key: SessionKey,
        seq: Seq,
    ) -> Result<Option<(Stretch, SegmentReader)>, StoreError> {
        let Some(stretch) = self.stretch_with(key, seq)? else { return Ok(None) };
        match self.segment(stretch) {
            // Merged with another one by its owner since the index was read.
            Err(StoreError::Segment(SegmentError::Missing { .. })) => {}
            opened => return Ok(Some((stretch, opened?))),
        }
        let Some(stretch) = self.stretch_with(key, seq)? else { return Ok(None) };
        Ok(Some((stretch, self.segment(stretch)?)))
    }

    /// The session's fold right before its event `upto`, all of which before it is sealed.
    pub(crate) fn load(&self, key: SessionKey, upto: Seq) -> Result<Fold, StoreError> {
        let fold = match upto.previous() {
            None => return Ok(Fold::default()),
            Some(last) => {
                let Some((stretch, segment)) = self.segment_with(key, last)? else {
                    return Err(self.gap(last, upto));
                };
                if segment.end_seq() == upto {
                    return self.restore(key, segment.checkpoint()?);
                }
                // The log is cut inside this segment: go on from the end of the one before.
                let mut fold = self.load(key, stretch.first)?;
                take_all(&mut fold, segment.events(stretch.first..upto)?);
                fold
            }
        };
        if fold.next_seq() != upto {
            return Err(self.gap(fold.next_seq(), upto));
        }
        Ok(fold)
    }

    fn restore(&self, key: SessionKey, checkpoint: Checkpoint) -> Result<Fold, StoreError> {
        let mut wanted: Vec<(Seq, usize)> =
            checkpoint.nodes.iter().enumerate().map(|(index, node)| (node.seq, index)).collect();
        // The header's text stands among the visible texts; it comes behind the nodes' here.
        wanted.extend(checkpoint.header.map(|seq| (seq, checkpoint.nodes.len())));
        wanted.sort_unstable();
        let mut texts: Vec<Option<VisibleText>> = Vec::new();
        texts.resize_with(checkpoint.nodes.len() + 1, || None);
        let mut rest = wanted.as_slice();
        while let Some((first, _)) = rest.first() {
            let Some((stretch, segment)) = self.segment_with(key, *first)? else {
                return Err(self.gap(*first, first.next()));
            };
            let here = rest.partition_point(|(seq, _)| *seq < stretch.end);
            let (batch, later) = rest.split_at(here);
            let seqs: Vec<Seq> = batch.iter().map(|(seq, _)| *seq).collect();
            for (text, (_, index)) in segment.visible(&seqs)?.into_iter().zip(batch) {
                if let Some(slot) = texts.get_mut(*index) {
                    *slot = Some(text);
                }
            }
            rest = later;
        }
        let header = checkpoint.header.zip(texts.pop().flatten());
        let header = header.map(|(seq, text)| Header { seq, text: text.text.into() });
        Ok(restore(checkpoint, texts.into_iter().flatten().collect(), header))
    }

    fn gap(&self, from: Seq, to: Seq) -> StoreError {
        StoreError::Gap { from, to, path: self.segments.clone() }
    }

    /// The sealed events of `range`, from the segment that holds the first of them.
    pub(crate) fn sealed_events(&self, key: SessionKey, range: Range<Seq>) -> Result<Vec<Event>, StoreError> {
        let Some((stretch, segment)) = self.segment_with(key, range.start)? else {
            return Err(self.gap(range.start, range.end));
        };
        Ok(segment.events(range.start..range.end.min(stretch.end))?)
    }
}

/// Folds events that were admitted before.
pub(crate) fn take_all(fold: &mut Fold, events: impl IntoIterator<Item = Event>) {
    for event in events {
        let mut undo = fold.begin();
        fold.take(&event, line::length(&event), &mut undo);
    }
}
