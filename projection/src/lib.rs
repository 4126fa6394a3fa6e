//! Placeholder of the crate's face.

pub mod formats;
