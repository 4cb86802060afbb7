//! Checks that what clients saw of a key-value store is linearizable, key by key (linearizability is local:
//! Herlihy and Wing 1990, theorem 1).
//!
//! Two checkers that share no code:
//!
//! - [`search`] believes values only. It looks for an order by depth-first search and remembers what it has tried
//!   (Wing and Gong 1993; Lowe 2017). For histories of some thousand operations with few at a time.
//! - [`versions`] believes the versions that the store gave to its writes, which order them. It takes a sort, so that
//!   millions are no problem.
#![allow(missing_docs, reason = "only our own tests and measurements use it")]
#![forbid(unsafe_code)]

pub mod search;
pub mod versions;

use std::collections::BTreeMap;
use std::fmt;

/// One operation. Times are of one clock. Every value is written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub key: u64,
    pub start: u64,
    /// `None` if its client never learned how it ended: it may have been done at any time since, or never.
    pub end: Option<u64>,
    pub what: What,
}

/// What was asked for, and how it ended. Of an operation without an end, only what was asked for counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Get(Seen),
    Put {
        value: u64,
        version: u64,
    },
    /// Writes a value in place of one version.
    Replace {
        value: u64,
        /// The version that it replaces, and the value that was read with it.
        only: (u64, u64),
        ended: Replaced,
    },
    Delete(Deleted),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Value { value: u64, version: u64 },
    Nothing(Absence),
}

/// How a store knows that there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The deletion of this version says so.
    Deleted {
        version: u64,
    },
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    Stored {
        version: u64,
    },
    /// Another version was there.
    Other {
        version: u64,
    },
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    Done { version: u64 },
    Nothing(Absence),
}

/// No order of the operations of a key explains what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub key: u64,
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}: {}", self.key, self.reason)
    }
}

/// Checks with both.
///
/// # Errors
/// The first fault.
pub fn check(history: &[Event]) -> Result<(), Fault> {
    versions::check(history)?;
    search::check(history)
}

fn by_key(history: &[Event]) -> BTreeMap<u64, Vec<Event>> {
    let mut keys: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for event in history {
        keys.entry(event.key).or_default().push(*event);
    }
    keys
}
