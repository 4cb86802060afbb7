//! Threads that carry devices. Devices whose input may wait have a thread of their own; synthetic
//! ones share a few, which serve them in the order in which their frames are due.
use super::feed::{Feed, FeedError, Step};
use crate::stop::Stop;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Longest sleep while the collector has no room: how late a thread may notice that it must end.
const ROOM_WAIT: Duration = Duration::from_millis(20);

pub(super) struct Outcome {
    pub(super) device: String,
    pub(super) result: Result<(), FeedError>,
}

pub(super) fn carry(feeds: Vec<Feed>, stop: &Stop, ended: impl Fn(Outcome)) {
    let mut carrier = Carrier {
        queue: feeds.iter().enumerate().map(|(i, _)| Reverse((Instant::now(), i))).collect(),
        feeds,
        full_in_a_row: 0,
    };
    while let Some(Reverse((due, i))) = carrier.queue.pop() {
        if stop.wait_until(due) {
            return;
        }
        if let Some(result) = carrier.serve(i) {
            let device = carrier.feeds[i].device.name().to_owned();
            ended(Outcome { device, result });
        }
    }
}

struct Carrier {
    feeds: Vec<Feed>,
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    /// How many devices were found without room, one after the other.
    full_in_a_row: usize,
}

impl Carrier {
    fn serve(&mut self, i: usize) -> Option<Result<(), FeedError>> {
        let step = match self.feeds[i].step(Instant::now()) {
            Ok(step) => step,
            Err(error) => return Some(Err(error)),
        };
        let next = match step {
            Step::Ended => return Some(Ok(())),
            Step::Sent => {
                self.full_in_a_row = 0;
                Instant::now()
            }
            Step::NotBefore(due) => due,
            Step::NoRoom => {
                self.wait_if_all_are_full(i);
                Instant::now()
            }
        };
        self.queue.push(Reverse((next, i)));
        None
    }

    /// Sleeps when no device that is due has room, but not beyond the time of the next one.
    fn wait_if_all_are_full(&mut self, i: usize) {
        self.full_in_a_row += 1;
        if self.full_in_a_row <= self.queue.len() {
            return;
        }
        self.full_in_a_row = 0;
        let now = Instant::now();
        let next = self.queue.iter().map(|Reverse((due, _))| *due).filter(|due| *due > now).min();
        let until_next = next.map_or(ROOM_WAIT, |due| due - now);
        self.feeds[i].device.wait_for_room(until_next.min(ROOM_WAIT));
    }
}
