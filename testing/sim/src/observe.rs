//! Watching a run: a log of what links did, a fingerprint, a capture.
use crate::{Fate, Frame};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'a> {
    pub(crate) at: Duration,
    pub(crate) kind: EventKind,
    /// The frame as it was at that time.
    pub(crate) frame: &'a Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A node offered the frame to the link, with this outcome.
    Offered(Fate),
    Arrived,
}

/// Receives every event on links.
pub(crate) trait Observer {
    fn event(&mut self, event: &Event<'_>);
}

/// A shared observer, so that the caller can read it after the run.
impl<O: Observer> Observer for Rc<RefCell<O>> {
    fn event(&mut self, event: &Event<'_>) {
        self.borrow_mut().event(event);
    }
}
