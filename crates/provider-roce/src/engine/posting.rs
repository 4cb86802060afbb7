//! Moves requests that programs have posted into the protocol.
use super::Engine;
use super::entry::QpEntry;
use crate::device_core::DeviceCore;
use crate::request::{Held, InFlight, PostedRecv, PostedSend, WrongSend};
use catchment_verbs::{QpState, WcStatus};

impl Engine {
    /// Takes what was posted since the last turn; returns whether there was anything.
    pub(super) fn take_posted(&mut self, device: &DeviceCore) -> bool {
        let before = self.touched.len();
        let Self { qps, touched, .. } = self;
        device.dirty.take(|index| {
            // A removed queue pair may have posted something.
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

    /// Takes a send for which the lock-free ring had no room.
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

    /// Takes a receive for which the lock-free ring had no room.
    pub(crate) fn post_recv_slowly(&mut self, index: usize, recv: PostedRecv) {
        if let Some(entry) = self.qps.get(index) {
            accept(entry);
            give_recv(entry, recv);
        }
        self.touch(index);
    }
}

/// Passes the protocol all requests that it may have.
pub(super) fn accept(entry: &mut QpEntry) {
    while let Some(recv) = entry.shared.recvs.pop() {
        give_recv(entry, recv);
    }
    while !entry.holds && entry.wrong.is_none() {
        let Some(send) = entry.backlog.pop_front().or_else(|| entry.shared.sends.pop()) else {
            return;
        };
        give_send(entry, send);
    }
}

fn give_send(entry: &mut QpEntry, send: PostedSend) {
    let PostedSend { mut wqe, held } = send;
    let wr_id = wqe.wr_id;
    if let Held::Wrong(status) = held {
        entry.wrong = Some(WrongSend { wr_id, status });
        return;
    }
    wqe.wr_id = entry.sends.next();
    match entry.qp.post_send_wqe(wqe) {
        Ok(()) => entry.sends.push(InFlight { wr_id, held }),
        Err(error) => {
            // All limits were checked while posting: only the engine itself can be wrong.
            debug_assert!(false, "{error}");
            tracing::error!(%error, qpn = entry.qp.qpn(), "a checked request was refused");
            entry.wrong = Some(WrongSend { wr_id, status: WcStatus::LocalQpOperation });
        }
    }
}

fn give_recv(entry: &mut QpEntry, recv: PostedRecv) {
    let PostedRecv { mut wqe, held } = recv;
    let wr_id = wqe.wr_id;
    wqe.wr_id = entry.recvs.next();
    match entry.qp.post_recv_wqe(wqe) {
        Ok(()) => entry.recvs.push(InFlight { wr_id, held }),
        Err(error) => {
            debug_assert!(entry.qp.state() == QpState::Reset, "{error}");
            tracing::error!(%error, qpn = entry.qp.qpn(), "a checked receive was refused");
        }
    }
}
