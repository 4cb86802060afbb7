//! The sending half of UC and UD: a request is complete when its last packet is in a batch.
use crate::Psn;
use crate::completion::{Completion, Queue};
use crate::config::{Config, RtrAttr};
use crate::counters::Counters;
use crate::pacing::Pacer;
use crate::requester::succeeded;
use crate::requester::wqe::{Shape, Wqe};
use crate::transmit::TransmitBatch;
use crate::wire::Deth;
use crate::wqe::SendWqe;
use catchment_verbs_types::Service;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(crate) struct UnreliableSender {
    shape: Shape,
    qpn: u32,
    sq: VecDeque<Wqe>,
    next: Psn,
    pub(crate) paced: bool,
}

impl UnreliableSender {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            shape: Shape::new(config),
            qpn: config.qpn,
            sq: VecDeque::new(),
            next: Psn::default(),
            paced: false,
        }
    }

    pub(crate) fn connect(&mut self, attr: &RtrAttr) {
        self.shape.connect(attr);
    }

    pub(crate) fn start(&mut self, first: Psn) {
        self.next = first;
    }

    pub(crate) fn post(&mut self, request: SendWqe) {
        self.sq.push_back(Wqe::new(request, self.shape.mtu));
    }

    /// Fills the batch. Datagrams for another destination wait for the next one.
    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        pacer: &mut Pacer,
        batch: &mut TransmitBatch,
        completions: &mut VecDeque<Completion>,
        counters: &mut Counters,
    ) {
        self.paced = false;
        while !batch.is_full() {
            let Some(wqe) = self.sq.front_mut() else { return };
            let to = wqe.request.op.destination().copied();
            let ah = to.map(|to| to.ah);
            let is_datagram = self.shape.service == Service::Ud;
            if is_datagram && !batch.packets().is_empty() && batch.destination != ah {
                return;
            }
            if !pacer.may_send(now_ns) {
                self.paced = true;
                return;
            }
            if wqe.sent == 0 {
                wqe.first = self.next;
            }
            let mut cut = wqe.cut(wqe.sent, &self.shape);
            if is_datagram {
                batch.destination = ah;
                let src_qpn = self.qpn;
                cut.headers.deth = Some(Deth { qkey: to.map_or(0, |to| to.qkey), src_qpn });
            }
            self.next = self.next.next();
            wqe.sent += 1;
            let payload = &wqe.request.payload;
            let bytes = batch.push(&cut.headers, |out| payload.gather(cut.offset, cut.bytes, out));
            pacer.on_sent(now_ns, bytes);
            counters.packets_sent += 1;
            counters.bytes_sent += cut.bytes;
            if wqe.is_sent() {
                complete(self.sq.pop_front(), completions);
            }
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.sq.front().is_none_or(|wqe| wqe.sent == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.sq.len()
    }

    pub(crate) fn flush(&mut self, completions: &mut VecDeque<Completion>) {
        self.paced = false;
        let ids = self.sq.drain(..).map(|wqe| wqe.request.wr_id);
        completions.extend(ids.map(|wr_id| Completion::flushed(wr_id, Queue::Send)));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.sq.capacity() * size_of::<Wqe>()
    }
}

fn complete(wqe: Option<Wqe>, completions: &mut VecDeque<Completion>) {
    if let Some(wqe) = wqe.filter(|wqe| wqe.request.signaled) {
        completions.push_back(succeeded(&wqe));
    }
}
