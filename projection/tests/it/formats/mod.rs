//! Provider formats.

mod caching;
mod extension;
mod golden;
mod imported;
mod logs;
mod pairing;
mod records;
mod sample;
mod strict;
