//! A key-value store in registered memory: clients read and write it over verbs, one-sided.
#![forbid(unsafe_code)]
pub mod item;
pub mod layout;
pub mod memory;
pub mod operation;
pub mod store;
