//! Content-addressed objects that are verified on every read, and images from admission to the
//! request.
//!
//! ```
//! use std::sync::Arc;
//! use rederive_cas::{ImageLimits, Objects, ObjectsOptions, admit};
//!
//! # let folder = tempfile::tempdir()?;
//! # let pixel = include_bytes!("../tests/it/images/pixel.gif").as_slice();
//! let disk = Arc::new(rederive_disk::OsDisk);
//! let objects = Objects::open(disk, folder.path().join("objects"), ObjectsOptions::default())?;
//! let admitted = admit(pixel, None, Some("/home/someone/pixel.gif"), &ImageLimits::default())?;
//! let image = objects.put_image(&admitted)?; // durable: now it may be logged
//! assert_eq!(image.name(), Some("pixel.gif"));
//! assert_eq!(objects.get_verified(&image)?, pixel);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - An object is there whole or not at all, whatever dies while it is put, and it is what its name
//!   says or it is not read.
//! - An image is measured before anything of it is stored, and a request before it is sent.
//! - Missing, damaged, refused and unreadable are different errors.
//!
//! What it writes: `docs/FORMAT.md` § Objects.

mod digest;
mod images;
mod json;
pub mod lift;
#[cfg(feature = "normalise")]
pub mod normalise;
mod objects;
pub mod policy;

pub use digest::{DIGEST_PREFIX, Digest, DigestError};
pub use images::{
    Admitted, BatchRefusal, Candidate, ImageLimits, ImageRef, ImageRefusal, MediaType, MediaTypeError,
    MessageReferenceError, NAME_BYTES_MAX, ReferenceError, ResolveError, admit, admit_batch, display_name,
    placeholder, references,
};
pub use objects::{
    Codec, Damage, DiskError, Freed, GetError, ObjectStat, Objects, ObjectsOptions, PutError, Sweep,
    SweepReport, VerifyProgress, VerifyReport,
};
