//! Completion queues that do the engine's work while they are polled.
use crate::engine::TurnKind;
use crate::handles::RoceContext;
use catchment_verbs::provider::CompletionQueue;
use catchment_verbs::{Completion, Cq, CqError};
use std::any::Any;
use std::sync::Arc;

/// The application's completion queue.
pub(crate) struct RoceCq {
    pub(crate) core: Arc<CompletionQueue>,
    /// A queue keeps the device open.
    pub(crate) context: RoceContext,
}

impl Cq for RoceCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let taken = self.core.poll(out)?;
        // The look after a request for a notification is the last one before a sleep.
        if taken == 0 && self.context.device().help(TurnKind::Full, !self.core.is_requested()) {
            return Ok(self.core.drain(out));
        }
        Ok(taken)
    }

    fn req_notify(&self, solicited_only: bool) {
        self.core.request_notify(solicited_only);
        self.context.device().hand_over();
    }

    fn capacity(&self) -> u32 {
        self.core.capacity()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
