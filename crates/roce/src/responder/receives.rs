//! The receive queue.
use crate::completion::{Completion, Queue};
use crate::memory::Memory;
use crate::wqe::RecvWqe;
use catchment_verbs_types::{Success, WcStatus};
use std::collections::VecDeque;

/// A posted receive, and how much of it is filled.
#[derive(Debug)]
struct Receive {
    request: RecvWqe,
    filled: u64,
    room: u64,
}

/// Receives in the order in which they were posted. The first may be partly filled.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    queue: VecDeque<Receive>,
}

/// Why a message does not fit its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveError {
    TooLong,
    Memory,
}

impl ReceiveError {
    pub(crate) fn status(self) -> WcStatus {
        match self {
            Self::TooLong => WcStatus::LocalLength,
            Self::Memory => WcStatus::LocalProtection,
        }
    }
}

impl Receives {
    pub(crate) fn post(&mut self, request: RecvWqe) {
        let room = request.payload.bytes();
        self.queue.push_back(Receive { request, filled: 0, room });
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds bytes of a message to the first receive.
    pub(crate) fn fill(
        &mut self,
        data: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<(), ReceiveError> {
        let first = self.queue.front_mut().ok_or(ReceiveError::TooLong)?;
        if data.len() as u64 > first.room - first.filled {
            return Err(ReceiveError::TooLong);
        }
        let written = first.request.payload.scatter(first.filled, data, memory);
        written.map_err(|_| ReceiveError::Memory)?;
        first.filled += data.len() as u64;
        Ok(())
    }

    /// Returns whether the first receive has room for this many bytes more.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.queue.front().is_some_and(|first| first.room - first.filled >= bytes)
    }

    /// Skips this many bytes of the first receive.
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<(), ReceiveError> {
        match self.queue.front_mut() {
            Some(first) if first.room - first.filled >= bytes => {
                first.filled += bytes;
                Ok(())
            }
            _ => Err(ReceiveError::TooLong),
        }
    }

    /// Returns the number of bytes in the first receive.
    pub(crate) fn filled(&self) -> u64 {
        self.queue.front().map_or(0, |first| first.filled)
    }

    /// Drops the message in the first receive, which takes the next one.
    pub(crate) fn rewind(&mut self) {
        if let Some(first) = self.queue.front_mut() {
            first.filled = 0;
        }
    }

    /// Completes the first receive.
    pub(crate) fn complete(
        &mut self,
        success: Success,
        solicited: bool,
        completions: &mut VecDeque<Completion>,
    ) {
        self.finish(Ok(success), solicited, completions);
    }

    /// Completes the first receive with an error.
    pub(crate) fn fail(&mut self, status: WcStatus, completions: &mut VecDeque<Completion>) {
        self.finish(Err(status), false, completions);
    }

    fn finish(
        &mut self,
        result: Result<Success, WcStatus>,
        solicited: bool,
        completions: &mut VecDeque<Completion>,
    ) {
        if let Some(first) = self.queue.pop_front() {
            completions.push_back(Completion {
                wr_id: first.request.wr_id,
                queue: Queue::Recv,
                solicited,
                result,
            });
        }
    }

    pub(crate) fn flush(&mut self, completions: &mut VecDeque<Completion>) {
        let ids = self.queue.drain(..).map(|receive| receive.request.wr_id);
        completions.extend(ids.map(|wr_id| Completion::flushed(wr_id, Queue::Recv)));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Receive>()
    }
}
