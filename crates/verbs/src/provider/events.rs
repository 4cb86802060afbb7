//! Events of a device, queued for the application.
use crate::AsyncEvent;
use crate::sync::Mutex;
use std::collections::VecDeque;

/// A bounded queue of events, in case the application does not take them; the oldest are dropped.
#[derive(Debug)]
pub struct EventQueue {
    events: Mutex<VecDeque<AsyncEvent>>,
    most: usize,
}

impl EventQueue {
    /// Creates an empty queue that keeps at most this many.
    pub fn new(most: usize) -> Self {
        Self { events: Mutex::default(), most }
    }

    /// Adds an event; a full queue loses its oldest one.
    pub fn add(&self, event: AsyncEvent) {
        let mut events = self.events.lock();
        if events.len() == self.most {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Takes the oldest event.
    pub fn take(&self) -> Option<AsyncEvent> {
        self.events.lock().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_kept_in_order() {
        let queue = EventQueue::new(2);
        assert!(queue.take().is_none());
        for qpn in 1..=3 {
            queue.add(AsyncEvent::QpFatal { qpn, reason: String::new() });
        }
        for expected in [2, 3] {
            let event = queue.take();
            assert!(
                matches!(event, Some(AsyncEvent::QpFatal { qpn, .. }) if qpn == expected),
                "{event:?}"
            );
        }
        assert!(queue.take().is_none());
    }
}
