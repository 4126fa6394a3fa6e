//! What the model is sent: frozen messages, incremental requests, reconstruction and audit.
//!
//! ```
//! use rederive_engine::{Replay, TypeRegistry};
//! use rederive_projection::{Projector, canonical_bytes, digest_of};
//!
//! let mut log = Replay::new(TypeRegistry::new());
//! log.push_line(r#"{"type":"user/message","seq":0,"time":1,"data":{"role":"user","content":[]},"surfaceOp":"append"}"#)?;
//! log.push_line(r#"{"type":"request/header","seq":1,"time":2,"data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}}"#)?;
//! let request = Projector::new().request(log.fold())?;
//! assert_eq!(request.digest(), digest_of(&canonical_bytes(log.fold())?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audit;
mod bodies;
mod diff;
pub mod formats;
mod frozen; // reading order, not the alphabet
mod images;
mod one_shot;
mod pairing;
mod projector;
mod rebuild;
mod reconstruct;
mod relation;
mod request;
pub mod step;
pub mod upkeep;

pub use bodies::Bodies;
pub use diff::{Diff, FieldDiff, MessageDiff, diff};
pub use frozen::{FrozenMessage, project, project_event};
pub use images::{ImageError, QuarantineError, StoreImages, check as check_images, images, quarantine};
pub use one_shot::{OneShot, OneShotError};
pub use projector::{ProjectError, Projector};
pub use rebuild::{Rebuilder, Settled, canonical_bytes, digest_of};
pub use reconstruct::{
    Mismatch, NotARequest, ReconstructError, RequestRef, Verified, reconstruct, verify, verify_with_bodies,
};
pub use relation::Relation;
pub use request::{NotADigest, Request, RequestDigest};

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
