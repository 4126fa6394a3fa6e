//! Content-addressed objects that are verified on every read, and images from admission to the
//! request.
//!
//! What it writes: `docs/FORMAT.md` § Objects.

mod digest;
mod objects;

pub use digest::{DIGEST_PREFIX, Digest, DigestError};
pub use objects::{
    Codec, Damage, DiskError, Freed, GetError, ObjectStat, Objects, ObjectsOptions, PutError, Sweep,
    SweepReport, VerifyProgress, VerifyReport,
};
