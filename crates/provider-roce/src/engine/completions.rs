//! After something happened to a queue pair: its completions, its state, its timer.
use super::{Engine, entry::QpEntry, posting::accept};
use crate::{
    cq::{CqCore, OVERRUN},
    device::Device,
    keys::KeyTable,
    request::{InFlight, PostedSend},
};
use catchment_roce::{self as roce, Input, Queue};
use catchment_verbs::{
    AsyncEvent, Completion, Failure, QpState, Success, WcOpcode, WcStatus,
    provider::{Entry, explain_failure, explain_queue_pair},
};
use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

impl Engine {
    /// Looks after all queue pairs to which something happened.
    pub(super) fn settle(&mut self, device: &Device, now_ns: u64, keys: &KeyTable) {
        self.ring_watches();
        if self.batch.waiting_packets() > 0 {
            self.hold_back_unreliable();
        }
        while let Some(index) = self.touched.pop() {
            self.suspect_gso(index);
            if let Some(entry) = self.qps.get(index) {
                entry.is_touched = false;
                entry.handle(now_ns, Input::EndOfBatch, keys, &mut self.written);
                let overrun = settle_one(entry, device, keys);
                if let Some(cq) = overrun {
                    self.break_queue(device, &cq);
                }
            }
            self.make_ready(index);
            self.set_timer(index);
        }
    }

    /// Packets wait for the socket, with payload in memory of programs: what is complete as soon as
    /// it is sent must not complete yet.
    #[cold]
    fn hold_back_unreliable(&mut self) {
        let Engine {
            touched, sent, qps, ..
        } = self;
        touched.retain(|index| {
            let entry = qps.get(*index);
            let held = entry.filter(|entry| entry.qp.config().service != roce::Service::Rc);
            let Some(entry) = held else {
                return true;
            };
            entry.is_touched = false;
            sent.push(*index);
            false
        });
    }

    /// Wakes who sleeps on memory that was written.
    fn ring_watches(&mut self) {
        if self.written.is_empty() {
            return;
        }
        fence(Ordering::SeqCst);
        for mr in self.written.drain(..) {
            mr.ring_fenced();
        }
    }

    /// A completion queue lost a completion: its queue pairs fail.
    #[cold]
    fn break_queue(&mut self, device: &Device, cq: &Arc<CqCore>) {
        device.events.add(OVERRUN);
        let mut broken = Vec::new();
        for (index, entry) in self.qps.iter() {
            if Arc::ptr_eq(&entry.send_cq, cq) || Arc::ptr_eq(&entry.recv_cq, cq) {
                broken.push(index);
            }
        }
        for index in broken {
            if let Some(entry) = self.qps.get(index) {
                entry.cause = Some("its completion queue overran");
                entry.qp.set_error();
            }
            self.touch(index);
        }
    }
}

/// Publishes state and completions of a queue pair; a completion queue that has just overrun.
fn settle_one(entry: &mut QpEntry, device: &Device, keys: &KeyTable) -> Option<Arc<CqCore>> {
    let mut delivery = Delivery::default();
    deliver(entry, device, keys, &mut delivery);
    while let Some(wrong) = take_oldest_wrong(entry) {
        fail_wrong(entry, wrong, device, keys, &mut delivery);
    }
    if delivery.sent {
        entry.send_cq.announce(delivery.sent_solicited);
    }
    if delivery.received {
        entry.recv_cq.announce(delivery.received_solicited);
    }
    delivery.overrun
}

/// What was delivered.
#[derive(Default)]
struct Delivery {
    sent: bool,
    sent_solicited: bool,
    received: bool,
    received_solicited: bool,
    overrun: Option<Arc<CqCore>>,
}

/// Moves completions from the protocol to their queues.
fn deliver(entry: &mut QpEntry, device: &Device, keys: &KeyTable, delivery: &mut Delivery) {
    publish_failure(entry, device, keys);
    while let Some(done) = entry.qp.poll_completion() {
        complete(entry, &done, delivery);
    }
}

/// The send whose local key is wrong, once it is the oldest.
fn take_oldest_wrong(entry: &mut QpEntry) -> Option<PostedSend> {
    let is_oldest = !entry.holds && entry.qp.send_queue_len() == 0;
    entry.wrong.take_if(|_| is_oldest)
}

/// A send with a wrong local key fails, and those behind it are flushed.
fn fail_wrong(
    entry: &mut QpEntry,
    wrong: PostedSend,
    device: &Device,
    keys: &KeyTable,
    delivery: &mut Delivery,
) {
    let was_broken = entry.qp.state() == roce::QpState::Err;
    let seq = entry.sends.next();
    entry.sends.push(InFlight {
        wr_id: wrong.wr_id,
        held: wrong.held,
    });
    entry.cause = Some("a send names memory that it may not use");
    entry.qp.set_error();
    publish_failure(entry, device, keys);
    let status = match wrong.stored.wrong() {
        _ if was_broken => roce::WcStatus::Flushed,
        Some(status) => status,
        None => roce::WcStatus::RemoteOperation,
    };
    let failed = roce::Completion {
        wr_id: seq,
        queue: Queue::Send,
        result: Err(status),
    };
    complete(entry, &failed, delivery);
    accept(entry);
    deliver(entry, device, keys, delivery);
}

/// The program sees a failure before the completions that it causes.
fn publish_failure(entry: &mut QpEntry, device: &Device, keys: &KeyTable) {
    if entry.qp.state() != roce::QpState::Err || entry.shared.state() == QpState::Err {
        return;
    }
    entry.shared.set_state(QpState::Err);
    entry.holds = false;
    let reason = match (entry.cause, entry.qp.error_cause()) {
        (Some(cause), _) => cause.to_owned(),
        (None, Some(status)) => {
            let failure = failure(status);
            explain_failure(&failure, device.caps.path_mtu, entry.shared.sq.freed())
        }
        (None, None) => "unknown".to_owned(),
    };
    let qpn = entry.qp.qpn();
    let peer = entry.peer.as_ref().map(|peer| &peer.end);
    let reason = explain_queue_pair(qpn, peer, &reason);
    tracing::debug!(qpn, %reason, "queue pair failed");
    device.events.add(AsyncEvent::QpFatal { qpn, reason });
    fence(Ordering::SeqCst);
    for mr in keys.all().filter(|mr| mr.pd() == entry.pd) {
        mr.ring_fenced();
    }
    accept(entry);
}

fn complete(entry: &mut QpEntry, done: &roce::Completion, delivery: &mut Delivery) {
    let failed = done.result.is_err();
    let solicited = done.result.is_ok_and(|success| success.solicited) || failed;
    let seq = done.wr_id;
    let (cq, account, requests) = match done.queue {
        Queue::Send => {
            delivery.sent = true;
            delivery.sent_solicited |= failed;
            (&entry.send_cq, &entry.shared.sq, &mut entry.sends)
        }
        Queue::Recv => {
            delivery.received = true;
            delivery.received_solicited |= solicited;
            (&entry.recv_cq, &entry.shared.rq, &mut entry.recvs)
        }
    };
    let completion = Completion {
        wr_id: requests.complete(seq),
        qpn: entry.qp.qpn(),
        result: translate(&done.result),
    };
    let account = Arc::clone(account);
    let overrun = cq.push(Entry {
        completion,
        account,
        seq,
    });
    if overrun {
        delivery.overrun = Some(Arc::clone(cq));
    }
}

fn translate(result: &Result<roce::Success, roce::WcStatus>) -> Result<Success, Failure> {
    match result {
        Ok(success) => Ok(done(success)),
        Err(status) => Err(failure(*status)),
    }
}

#[inline]
fn done(success: &roce::Success) -> Success {
    let plain = Success::plain(opcode(success.opcode), success.bytes).with_imm(success.imm);
    match (success.invalidated_rkey, success.source) {
        (None, None) => plain,
        (Some(rkey), _) => plain.invalidating(rkey),
        (None, Some(source)) => plain.from_qpn(source.qpn),
    }
}

fn failure(status: roce::WcStatus) -> Failure {
    Failure {
        status: translate_status(status),
        vendor_err: 0,
    }
}

fn opcode(opcode: roce::WcOpcode) -> WcOpcode {
    match opcode {
        roce::WcOpcode::Send => WcOpcode::Send,
        roce::WcOpcode::Write => WcOpcode::Write,
        roce::WcOpcode::Read => WcOpcode::Read,
        roce::WcOpcode::CompareSwap => WcOpcode::CompareSwap,
        roce::WcOpcode::FetchAdd => WcOpcode::FetchAdd,
        roce::WcOpcode::Recv => WcOpcode::Recv,
        roce::WcOpcode::RecvWriteImm => WcOpcode::RecvWriteImm,
    }
}

/// `IBV_WC_BAD_RESP_ERR`, which the vocabulary has no word for.
const BAD_RESPONSE: WcStatus = WcStatus::Other(7);

fn translate_status(status: roce::WcStatus) -> WcStatus {
    use roce::WcStatus as S;
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the enum may grow; a status without a word is a general one"
    )]
    match status {
        S::LocalLength => WcStatus::LocalLength,
        S::LocalProtection => WcStatus::LocalProtection,
        S::Flushed => WcStatus::Flushed,
        S::BadResponse => BAD_RESPONSE,
        S::RemoteInvalidRequest => WcStatus::RemoteInvalidRequest,
        S::RemoteAccess => WcStatus::RemoteAccess,
        S::RemoteOperation => WcStatus::RemoteOperation,
        S::TransportRetryExceeded => WcStatus::TransportRetryExceeded,
        S::RnrRetryExceeded => WcStatus::RnrRetryExceeded,
        _ => WcStatus::General,
    }
}
