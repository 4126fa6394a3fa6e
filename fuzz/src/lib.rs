//! What the tests and benches of every crate share: a slow model that is right, and seeded logs.
//!
//! ```
//! use rederive_fuzz::Model;
//! let mut model = Model::new();
//! model.push_line(r#"{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}"#)?;
//! let refusal = model.push_line(r#"{"type":"turn/end","seq":2,"time":1,"data":{"turn":1}}"#);
//! assert_eq!(refusal.map_err(|refusal| refusal.rule), Err("seq"));
//! # Ok::<(), rederive_fuzz::Refusal>(())
//! ```
//! Depends on no other crate of the workspace, so that a fault there cannot hide itself here.

mod json; // reading order, not the alphabet
mod model;
pub mod workload;

pub use json::{Json, JsonError, Kind};
pub use model::{Expected, Model, NextExpected, Refusal, RefusedExpected, RequestExpected, fold};
