//! Images in requests: which objects a request needs, whether they are there and may be sent, and
//! the placeholder that takes the place of one that is not.
//!
//! Owns the step from a node's text to references and back. The bytes stay in the object store; the
//! canonical bytes of a request carry references alone, whose digests pin them.

use rederive_cas::policy::{RouteLimits, RouteRefusal, check_request};
use rederive_cas::{
    GetError, ImageRef, MessageReferenceError, Objects, ResolveError, placeholder, references,
};
use rederive_engine::{
    AppendError, Draft, Durability, Fold, JournalError, NodeKind, Reader, Seq, Session, StoreError,
    list_items, members, object_member,
};

use crate::formats::{ImageSource, Object, ObjectError};
use crate::request::Request;
use crate::step::message::{is_type, spliced};

/// What every placeholder's text begins with; the audit knows a replaced attachment by it.
pub(crate) const PLACEHOLDER_MARK: &str = "[image removed: ";

/// Why a request's images cannot be sent. Nothing was sent; the named node can be replaced by
/// [`quarantine`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A node references an image in a form that is not understood. Correct what logs it.
    #[error("node {seq}: {source}")]
    Reference {
        /// The node.
        seq: Seq,
        /// What is wrong with the reference.
        source: MessageReferenceError,
    },
    /// The object of a node is missing, damaged, or not what the reference says.
    #[error("node {seq}: image {}: {source}", image.digest())]
    Object {
        /// The node.
        seq: Seq,
        /// The image.
        image: Box<ImageRef>,
        /// Missing, corrupt and different are told apart here.
        source: ResolveError,
    },
    /// The provider would refuse the request as a whole; all nodes concerned are named.
    #[error(transparent)]
    Route(#[from] RouteRefusal),
}

/// The images that `request` shows, each use with its node, in order.
///
/// # Errors
///
/// [`ImageError::Reference`].
pub fn images(request: &Request) -> Result<Vec<(Seq, ImageRef)>, ImageError> {
    let mut found = Vec::new();
    for message in request.messages() {
        // Most messages have no attachment; finding that out costs one search.
        if !message.text().contains("attachment") {
            continue;
        }
        let of_message = references(message.text())
            .map_err(|source| ImageError::Reference { seq: message.seq(), source })?;
        found.extend(of_message.into_iter().map(|image| (message.seq(), image)));
    }
    Ok(found)
}

/// Checks the images of `request` before it is sent: each object is there and is what its reference
/// says, and the request as a whole keeps the limits of its route, where they are given.
///
/// # Cost
///
/// Reads and hashes every object.
///
/// # Errors
///
/// An [`ImageError`] that names the node.
pub fn check(request: &Request, objects: &Objects, limits: Option<&RouteLimits>) -> Result<(), ImageError> {
    let found = images(request)?;
    if let Some(limits) = limits {
        let by_seq: Vec<(u64, ImageRef)> =
            found.iter().map(|(seq, image)| (seq.value(), image.clone())).collect();
        check_request(&by_seq, limits)?;
    }
    for (seq, image) in found {
        if let Err(source) = objects.get_verified(&image) {
            return Err(ImageError::Object { seq, image: Box::new(image), source });
        }
    }
    Ok(())
}

/// How many image blocks `request` shows, references of any form; `earlier` is the request before it
/// with its own count, so that only what is new is looked at.
pub(crate) fn count(request: &Request, earlier: Option<&Request>, counted: Option<usize>) -> usize {
    let (shared, so_far) = match (earlier, counted) {
        (Some(earlier), Some(counted)) => {
            let shared = request.unchanged_since(earlier);
            if shared >= earlier.message_count() { (shared, counted) } else { (0, 0) }
        }
        _ => (0, 0),
    };
    let new = shared..request.message_count();
    so_far
        + new
            .filter_map(|index| request.message(index))
            .map(|message| blocks_of(message.text()))
            .sum::<usize>()
}

fn blocks_of(message: &str) -> usize {
    if !message.contains("\"image\"") {
        return 0;
    }
    let mut found = 0;
    for block in list_items(object_member(message, "content").unwrap_or_default()) {
        found += if is_type(block, "image") { 1 } else { blocks_of(block) };
    }
    found
}

/// The object store as a source of images for provider bodies. Every object is verified, each time.
#[derive(Clone, Copy, Debug)]
pub struct StoreImages<'a> {
    objects: &'a Objects,
}

impl<'a> StoreImages<'a> {
    /// Images from `objects`.
    pub fn new(objects: &'a Objects) -> Self {
        Self { objects }
    }
}

impl ImageSource for StoreImages<'_> {
    fn resolve(&self, reference: &str) -> Result<Object, ObjectError> {
        let block = if object_member(reference, "type").is_some() {
            reference.to_owned()
        } else {
            format!("{{\"type\":\"image\",\"attachment\":{reference}}}")
        };
        let image = ImageRef::from_block(&block)
            .map_err(|error| ObjectError::Reference { reason: error.to_string() })?;
        match self.objects.get_verified(&image) {
            Ok(bytes) => {
                Ok(Object::Bytes { media_type: image.media_type().to_string(), bytes: bytes.into() })
            }
            Err(ResolveError::Get(GetError::Missing { .. })) => Err(ObjectError::Missing),
            Err(error) => Err(ObjectError::Corrupt { reason: error.to_string() }),
        }
    }
}

/// Why a node was not quarantined. The session is as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuarantineError {
    /// The node is not on the surface now.
    #[error("event {seq} is not on the surface")]
    NotOnSurface {
        /// The event.
        seq: Seq,
    },
    /// The node is neither a user message nor a tool result, and cannot be rewritten.
    #[error("node {seq} is neither a user message nor a tool result")]
    Kind {
        /// The node.
        seq: Seq,
    },
    /// The node shows no image that was asked for.
    #[error("node {seq} shows no such image")]
    NoImage {
        /// The node.
        seq: Seq,
    },
    /// The node's event could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The replacement could not be appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The replacement could not be synced.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Replaces the images of the node `seq` for which `is_bad` gives a reason by placeholders: one logged
/// replace of that node, synced. Earlier requests still say what they were.
///
/// # Errors
///
/// A [`QuarantineError`].
pub fn quarantine(
    session: &mut Session,
    seq: Seq,
    is_bad: impl Fn(&ImageRef) -> Option<String>,
) -> Result<Seq, QuarantineError> {
    let by = |image: &ImageRef| is_bad(image).map(|why| placeholder(image, &why));
    let (fold, reader) = (session.fold(), session.reader());
    let draft = replacement(&fold, &reader, seq, &by)?;
    session.append(vec![draft], Durability::Synced)?.wait()?;
    Ok(fold.next_seq())
}

/// The event that puts other blocks in the place of images of the node `seq`: those that `by` gives,
/// each a verbatim JSON object.
pub(crate) fn replacement(
    fold: &Fold,
    reader: &Reader,
    seq: Seq,
    by: &impl Fn(&ImageRef) -> Option<String>,
) -> Result<Draft, QuarantineError> {
    let node = fold.surface().get(seq).ok_or(QuarantineError::NotOnSurface { seq })?;
    let (kind, is_result) = match node.kind() {
        NodeKind::User => ("user/message", false),
        NodeKind::ToolResult => ("tool/result", true),
        NodeKind::System | NodeKind::Assistant => return Err(QuarantineError::Kind { seq }),
    };
    let (message, changed) = with_images_replaced(node.text(), by);
    if changed == 0 {
        return Err(QuarantineError::NoImage { seq });
    }
    let data = if is_result {
        let event = reader.event(seq)?.ok_or(QuarantineError::NotOnSurface { seq })?;
        // The message alone is rewritten; everything around it in the data stays as it is.
        spliced(event.data(), event.visible().unwrap_or_default(), &message)
    } else {
        message
    };
    Ok(Draft::replace(kind, data, seq, seq).citing([seq]))
}

/// The object `raw` with its image blocks, at any depth of `content`, replaced where `by` gives others.
fn with_images_replaced(raw: &str, by: &impl Fn(&ImageRef) -> Option<String>) -> (String, usize) {
    let Some(content) = object_member(raw, "content") else { return (raw.to_owned(), 0) };
    let mut changed = 0;
    let mut blocks = Vec::new();
    for block in list_items(content) {
        if is_type(block, "image") {
            let other = ImageRef::from_block(block).ok().and_then(|image| by(&image));
            changed += usize::from(other.is_some());
            blocks.push(other.unwrap_or_else(|| block.to_owned()));
        } else if members(block).iter().any(|(key, _)| key == "content") {
            let (inner, more) = with_images_replaced(block, by);
            changed += more;
            blocks.push(inner);
        } else {
            blocks.push(block.to_owned());
        }
    }
    if changed == 0 {
        return (raw.to_owned(), 0);
    }
    (spliced(raw, content, &format!("[{}]", blocks.join(","))), changed)
}
