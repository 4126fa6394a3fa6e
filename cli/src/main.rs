//! The `rederive` command.
fn main() {}
