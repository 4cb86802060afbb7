//! The `catchment` command.
fn main() {}
