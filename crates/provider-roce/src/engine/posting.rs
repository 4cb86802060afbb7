//! Requests that programs have posted, on their way into the protocol.
use super::{Engine, entry::QpEntry};
use crate::{
    device::Device,
    keys::KeyTable,
    request::{InFlight, PostedRecv, PostedSend},
};
use catchment_roce::QpState;

impl Engine {
    /// Takes what was posted since the last turn; whether there was something.
    pub(super) fn take_posted(&mut self, device: &Device, _keys: &KeyTable) -> bool {
        let before = self.touched.len();
        let Engine { qps, touched, .. } = self;
        device.dirty.take(|index| {
            // A queue pair that is gone may have posted something.
            if let Some(entry) = qps.get(index) {
                accept(entry);
                if !entry.is_touched {
                    entry.is_touched = true;
                    touched.push(index);
                }
            }
        });
        self.touched.len() > before
    }

    /// Takes a send for which there was no room on the fast way.
    pub(crate) fn post_send_slowly(&mut self, index: usize, send: PostedSend) {
        if let Some(entry) = self.qps.get(index) {
            while let Some(earlier) = entry.shared.sends.pop() {
                entry.backlog.push_back(earlier);
            }
            entry.backlog.push_back(send);
            accept(entry);
        }
        self.touch(index);
    }

    /// Takes a receive for which there was no room on the fast way.
    pub(crate) fn post_recv_slowly(&mut self, index: usize, recv: PostedRecv) {
        if let Some(entry) = self.qps.get(index) {
            accept(entry);
            give_recv(entry, recv);
        }
        self.touch(index);
    }
}

/// Gives the protocol all that it may have.
pub(super) fn accept(entry: &mut QpEntry) {
    while let Some(recv) = entry.shared.recvs.pop() {
        give_recv(entry, recv);
    }
    while !entry.holds && entry.wrong.is_none() {
        let next = entry.backlog.pop_front();
        let Some(send) = next.or_else(|| entry.shared.sends.pop()) else {
            return;
        };
        give_send(entry, send);
    }
}

fn give_send(entry: &mut QpEntry, send: PostedSend) {
    if send.stored.wrong().is_some() {
        entry.wrong = Some(send);
        return;
    }
    let seq = entry.sends.next();
    match entry.qp.post_send(&send.request(seq)) {
        Ok(()) => entry.sends.push(InFlight {
            wr_id: send.wr_id,
            held: send.held,
        }),
        Err(error) => {
            // All limits were checked while posting: only the engine itself can be wrong.
            debug_assert!(false, "{error}");
            tracing::error!(%error, qpn = entry.qp.qpn(), "a checked request was refused");
            entry.wrong = Some(send);
        }
    }
}

fn give_recv(entry: &mut QpEntry, recv: PostedRecv) {
    let seq = entry.recvs.next();
    let taken = entry.qp.post_recv(&recv.request(seq));
    if let Err(error) = taken {
        debug_assert!(entry.qp.state() == QpState::Reset, "{error}");
        tracing::error!(%error, qpn = entry.qp.qpn(), "a checked receive was refused");
        return;
    }
    entry.recvs.push(InFlight {
        wr_id: recv.wr_id,
        held: recv.held,
    });
}
