//! What the model is sent: frozen messages, incremental requests, reconstruction and audit.

pub mod formats;
mod frozen; // reading order, not the alphabet
mod projector;
mod rebuild;
mod request;

pub use frozen::{FrozenMessage, project, project_event};
pub use projector::{ProjectError, Projector};
pub use rebuild::{Rebuilder, Settled, canonical_bytes, digest_of};
pub use request::{NotADigest, Request, RequestDigest};
