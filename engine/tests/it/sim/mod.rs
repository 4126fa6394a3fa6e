//! A seeded workload on a simulated disk, and what must be true of the store after a loss of power,
//! a kill or a failed operation.
//!
//! Owns what is known of each session: what was handed to the store, how much of it was visible and
//! how much was acknowledged as synced. Compares what a store gives with the naive model.

mod history;
mod lines;
mod random;
mod run;

pub(crate) use history::{Floor, History, Log};
pub(crate) use lines::{check_against_model, model_of, read_all};
pub(crate) use random::{Named, Random, in_parallel, is_long, seeds};
pub(crate) use run::{FOLDER, Mode, Outcome, options, run};
