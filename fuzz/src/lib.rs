//! Placeholder of the crate's face.
