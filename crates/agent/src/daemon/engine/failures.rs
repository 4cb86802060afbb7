//! Queue pairs that fail: how the engine learns of it, and whom it tells.
use super::Engine;
use crate::daemon::connection::Connection;
use crate::entry::Event;
use catchment_verbs::{AsyncEvent, QpTransition};

/// Queue pairs whose state is asked for at a time.
const ASKED: usize = 16;

impl Engine {
    pub(super) fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.port.context.async_event() {
            any = true;
            let AsyncEvent::QpFatal { qpn, .. } = event else { continue };
            match self.shared_qps.find(qpn) {
                Some((host, number)) => self.lose_shared_qp(host, number),
                None => self.tell_failed(qpn),
            }
        }
        any
    }

    /// Asks for the states of some queue pairs, each time of others: RDMA hardware does not tell of each failure.
    pub(super) fn ask_for_states(&mut self) {
        if !self.port.is_hardware || self.connections.is_empty() {
            return;
        }
        for _ in 0..ASKED.min(self.connections.len()) {
            self.asked = (self.asked + 1) % self.connections.len();
            let connection = self.connections[self.asked].as_mut();
            if let Some(qpn) = connection.and_then(Connection::find_failed) {
                self.tell_failed(qpn);
            }
        }
    }

    pub(super) fn tell_failed(&mut self, qpn: u32) {
        let mut all = self.connections.iter().flatten();
        let Some(failed) = all.find(|connection| connection.qpn == qpn) else { return };
        if let Some(owner) = &mut self.applications[failed.owner] {
            owner.give(failed.queue_pair, Event::Failed);
            owner.wake();
        }
    }

    /// Fails the queue pairs of other applications that were connected with some that are gone.
    pub(super) fn fail_peers(&mut self, gone: &[Connection]) {
        let gid = self.port.context.gid();
        for one in gone {
            let Some(peer) = one.peer.filter(|peer| peer.gid == gid) else { continue };
            let mut all = self.connections.iter_mut().flatten();
            let Some(other) = all.find(|known| known.qpn == peer.qpn) else { continue };
            let knows_it = other.peer.is_some_and(|peer| peer.gid == gid && peer.qpn == one.qpn);
            let Some(qp) = other.qp.as_mut().filter(|_| knows_it) else { continue };
            if qp.modify(QpTransition::ToErr).is_ok() {
                self.tell_failed(peer.qpn);
            }
        }
    }
}
