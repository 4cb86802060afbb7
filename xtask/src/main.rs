//! The recipes of this repository.
fn main() {}
