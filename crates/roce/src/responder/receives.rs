//! The receive queue.

use crate::completion::{Completion, Queue, Success, WcStatus};
use crate::memory::Memory;
use crate::qp::flushed;
use crate::sges::Stored;
use crate::work::RecvWr;
use std::collections::VecDeque;

/// A posted receive, and how much of it is filled.
#[derive(Debug)]
struct Receive {
    wr_id: u64,
    sges: Stored,
    filled: u64,
    room: u64,
}

/// Receives in the order in which they were posted. The first may be partly filled.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    queue: VecDeque<Receive>,
}

/// Why a message does not go into its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveError {
    TooLong,
    Memory,
}

impl ReceiveError {
    pub(crate) fn status(self) -> WcStatus {
        match self {
            ReceiveError::TooLong => WcStatus::LocalLength,
            ReceiveError::Memory => WcStatus::LocalProtection,
        }
    }
}

impl Receives {
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) {
        let sges = Stored::from_sges(wr.sges);
        let room = sges.bytes();
        self.queue.push_back(Receive {
            wr_id: wr.wr_id,
            sges,
            filled: 0,
            room,
        });
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
        let Some(first) = self.queue.front_mut() else {
            return Err(ReceiveError::TooLong);
        };
        if data.len() as u64 > first.room - first.filled {
            return Err(ReceiveError::TooLong);
        }
        let written = first.sges.scatter(first.filled, data, memory);
        written.map_err(|_| ReceiveError::Memory)?;
        first.filled += data.len() as u64;
        Ok(())
    }

    /// Leaves this many bytes of the first receive as they are.
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<(), ReceiveError> {
        match self.queue.front_mut() {
            Some(first) if first.room - first.filled >= bytes => {
                first.filled += bytes;
                Ok(())
            }
            _ => Err(ReceiveError::TooLong),
        }
    }

    /// Bytes in the first receive.
    pub(crate) fn filled(&self) -> u64 {
        self.queue.front().map_or(0, |first| first.filled)
    }

    /// The message in the first receive is dropped; the receive is for the next one.
    pub(crate) fn rewind(&mut self) {
        if let Some(first) = self.queue.front_mut() {
            first.filled = 0;
        }
    }

    /// The first receive is done.
    pub(crate) fn complete(
        &mut self,
        result: Result<Success, WcStatus>,
        completions: &mut VecDeque<Completion>,
    ) {
        if let Some(first) = self.queue.pop_front() {
            completions.push_back(Completion {
                wr_id: first.wr_id,
                queue: Queue::Recv,
                result,
            });
        }
    }

    pub(crate) fn flush(&mut self, completions: &mut VecDeque<Completion>) {
        let receives = self.queue.drain(..);
        completions.extend(receives.map(|receive| flushed(receive.wr_id, Queue::Recv)));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Receive>()
    }
}
