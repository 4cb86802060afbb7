//! Completions of one queue pair, before its device adds them to a completion queue.
use catchment_verbs_types::{Success, WcStatus};

/// Which of the two queues of a queue pair a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Send queue.
    Send,
    /// Receive queue.
    Recv,
}

/// The outcome of a request, with what its device needs to add it to the right completion queue.
/// Requests of one queue complete in the order in which they were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// The queue it was posted to.
    pub queue: Queue,
    /// The sender of the received message set the solicited event bit.
    pub solicited: bool,
    /// The outcome. A protocol has no vendor error, so a failure is its status alone.
    pub result: Result<Success, WcStatus>,
}

impl Completion {
    pub(crate) fn of_send(wr_id: u64, result: Result<Success, WcStatus>) -> Self {
        Self { wr_id, queue: Queue::Send, solicited: false, result }
    }

    pub(crate) fn flushed(wr_id: u64, queue: Queue) -> Self {
        Self { wr_id, queue, solicited: false, result: Err(WcStatus::Flushed) }
    }
}

// As many are in flight as requests.
const _: () = assert!(size_of::<Completion>() == 40);
