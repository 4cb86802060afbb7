//! The mode `raw`: each connection has a completion queue of its own.
use super::{Engine, POLLED};
use catchment_verbs::{Completion, Cq};
use std::sync::Arc;

impl Engine {
    /// Asks for a notification of the next completion of each connection.
    pub(super) fn arm_each(&self) {
        let cqs = self.connections.iter().flatten().filter_map(|connection| connection.cq.as_ref());
        cqs.for_each(|cq| cq.req_notify(false));
    }

    /// Takes completions of the device for each connection of an application; returns whether there were any.
    pub(super) fn poll_each(&mut self, at: usize) -> bool {
        let mut any = false;
        for number in 0.. {
            let Some(application) = &mut self.applications[at] else { break };
            let Some(id) = application.connections.get(number) else { break };
            let connection = id.and_then(|id| self.connections[id.index()].as_ref());
            let Some(cq) = connection.and_then(|connection| connection.cq.as_ref()) else {
                continue;
            };
            let mut out = [Completion::EMPTY; POLLED];
            let cq: Arc<dyn Cq> = Arc::clone(cq);
            let Ok(count) = cq.poll(&mut out) else {
                application.hang_up("a completion queue of it at the device failed");
                break;
            };
            any |= count > 0;
            self.take_completions(at, &out[..count]);
        }
        any
    }
}
