//! What a source has to do with its controller: it is small while that is nothing, as most sources are idle.
use super::entry::{Entry, Key};
use crate::admission::wire::ControllerRecord;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// What a source said last of the rate of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    pub(super) revision: u32,
    /// Something was answered to it.
    pub(super) answered: bool,
    pub(super) wanted_bps: u64,
}

#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) entries: BTreeMap<Key, Entry>,
    /// By device: what it said last of its rate.
    pub(super) wishes: BTreeMap<u32, Wish>,
    /// Those that are to be sent.
    pub(super) ready: Vec<Key>,
    /// Answers about transfers that are not kept.
    pub(super) answers: Vec<ControllerRecord>,
    /// Entries whose requests the controller is not told yet.
    pub(super) held: usize,
}

impl Tasks {
    const NONE: Self = Self {
        entries: BTreeMap::new(),
        wishes: BTreeMap::new(),
        ready: Vec::new(),
        answers: Vec::new(),
        held: 0,
    };

    fn is_empty(&self) -> bool {
        let Self { entries, wishes, ready, answers, held: _ } = self;
        entries.is_empty() && wishes.is_empty() && ready.is_empty() && answers.is_empty()
    }
}

/// The tasks of a source. They take memory from the first change on, until [`rest`](Self::rest).
#[derive(Debug, Default)]
pub(super) struct Work(Option<Box<Tasks>>);

impl Work {
    /// Needs little memory again if there is nothing to do; returns whether there is nothing.
    pub(super) fn rest(&mut self) -> bool {
        let is_empty = self.is_empty();
        if is_empty {
            self.0 = None;
        }
        is_empty
    }
}

impl Deref for Work {
    type Target = Tasks;

    fn deref(&self) -> &Tasks {
        static NONE: Tasks = Tasks::NONE;
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Work {
    fn deref_mut(&mut self) -> &mut Tasks {
        self.0.get_or_insert_default()
    }
}
