//! What follows a change of a queue pair: its completions, its state, its timer.
use super::Engine;
use super::entry::QpEntry;
use super::posting::accept;
use crate::device_core::DeviceCore;
use crate::keys::KeyTable;
use crate::request::{Held, InFlight, WrongSend};
use catchment_roce::{self as roce, Input, Queue};
use catchment_verbs::provider::{CompletionQueue, CqEntry, explain_failure, explain_queue_pair};
use catchment_verbs::{AsyncEvent, Completion, Failure, QpState, Service, WcStatus};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

impl Engine {
    /// Settles all queue pairs to which something happened.
    pub(super) fn settle(&mut self, device: &DeviceCore, now_ns: u64, keys: &KeyTable) {
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
        let Self { touched, sent, qps, .. } = self;
        touched.retain(|index| {
            let entry = qps.get(*index);
            let Some(entry) = entry.filter(|entry| entry.qp.config().service != Service::Rc) else {
                return true;
            };
            entry.is_touched = false;
            sent.push(*index);
            false
        });
    }

    /// Rings the doorbells of memory that was written.
    fn ring_watches(&mut self) {
        if self.written.is_empty() {
            return;
        }
        fence(Ordering::SeqCst);
        for mr in self.written.drain(..) {
            mr.ring_fenced();
        }
    }

    /// Fails the queue pairs of a completion queue that lost a completion.
    #[cold]
    fn break_queue(&mut self, device: &DeviceCore, cq: &Arc<CompletionQueue>) {
        device.events.add(AsyncEvent::CqOverrun);
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

/// Publishes state and completions of a queue pair; returns a queue that has just overrun.
fn settle_one(
    entry: &mut QpEntry,
    device: &DeviceCore,
    keys: &KeyTable,
) -> Option<Arc<CompletionQueue>> {
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

#[derive(Default)]
struct Delivery {
    sent: bool,
    sent_solicited: bool,
    received: bool,
    received_solicited: bool,
    overrun: Option<Arc<CompletionQueue>>,
}

/// Moves completions from the protocol to their queues.
fn deliver(entry: &mut QpEntry, device: &DeviceCore, keys: &KeyTable, delivery: &mut Delivery) {
    publish_failure(entry, device, keys);
    while let Some(done) = entry.qp.poll_completion() {
        complete(entry, &done, delivery);
    }
}

/// Returns the send whose local key is wrong, once it is the oldest.
fn take_oldest_wrong(entry: &mut QpEntry) -> Option<WrongSend> {
    let is_oldest = !entry.holds && entry.qp.send_queue_len() == 0;
    entry.wrong.take_if(|_| is_oldest)
}

/// A send with a wrong local key fails, and those behind it are flushed.
fn fail_wrong(
    entry: &mut QpEntry,
    wrong: WrongSend,
    device: &DeviceCore,
    keys: &KeyTable,
    delivery: &mut Delivery,
) {
    let was_broken = matches!(entry.qp.state(), QpState::Sqe | QpState::Err);
    let seq = entry.sends.next();
    entry.sends.push(InFlight { wr_id: wrong.wr_id, held: Held::None });
    entry.cause = Some("a send names memory that it may not access");
    entry.qp.fail_sends();
    if entry.qp.state() == QpState::Sqe {
        entry.shared.set_state(QpState::Sqe);
    }
    publish_failure(entry, device, keys);
    let failed = roce::Completion {
        wr_id: seq,
        queue: Queue::Send,
        solicited: false,
        result: Err(match was_broken {
            true => WcStatus::Flushed,
            false => wrong.status,
        }),
    };
    complete(entry, &failed, delivery);
    accept(entry);
    deliver(entry, device, keys, delivery);
}

/// The program sees a failure before the completions that it causes.
fn publish_failure(entry: &mut QpEntry, device: &DeviceCore, keys: &KeyTable) {
    if entry.qp.state() != QpState::Err || entry.shared.state() == QpState::Err {
        return;
    }
    entry.shared.set_state(QpState::Err);
    entry.holds = false;
    let reason = match (entry.cause, entry.qp.error_cause()) {
        (Some(cause), _) => cause.to_owned(),
        (None, Some(status)) => {
            explain_failure(&Failure::from(status), device.caps.path_mtu, entry.shared.sq.freed())
        }
        (None, None) => "unknown".to_owned(),
    };
    let qpn = entry.qp.qpn();
    let reason = explain_queue_pair(qpn, entry.peer.as_ref().map(|peer| &peer.end), &reason);
    tracing::debug!(qpn, %reason, "queue pair failed");
    device.events.add(AsyncEvent::QpFatal { qpn, reason });
    fence(Ordering::SeqCst);
    for mr in keys.all().filter(|mr| mr.pd == entry.pd) {
        mr.ring_fenced();
    }
    accept(entry);
}

fn complete(entry: &mut QpEntry, done: &roce::Completion, delivery: &mut Delivery) {
    let failed = done.result.is_err();
    let solicited = done.solicited || failed;
    let seq = done.wr_id;
    let (cq, credits, requests) = match done.queue {
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
        result: done.result.map_err(Failure::from),
    };
    let overrun = cq.push(CqEntry { completion, credits: Arc::clone(credits), seq });
    if overrun {
        delivery.overrun = Some(Arc::clone(cq));
    }
}
