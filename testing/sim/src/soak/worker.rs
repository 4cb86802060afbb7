//! The program at one end of a queue pair: posts its plan, and receives for its peer's plan.
use super::check::{FarKeys, NearKeys, SCRIBBLE, bounds_offset};
use super::plan::{Op, Plan, What, Wrong};
use super::scenario::EndScenario;
use crate::roce::{Program, QpTable, Space};
use catchment_roce::{
    Completion, Payload, PostFailure, Qp, QpState, Queue, RecvWr, RemoteAddr, SendOp, SendWr, Sge,
};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) scenario: Rc<EndScenario>,
    pub(crate) near: NearKeys,
    /// Our memory that the peer uses, with the receives.
    pub(crate) own: FarKeys,
    /// Receives to post in all.
    pub(crate) receives_most: usize,
    pub(crate) remote: Remote,
    pub(crate) posted: usize,
    pub(crate) receives_posted: usize,
    pub(crate) sends: Vec<Completion>,
    pub(crate) receives: Vec<Completion>,
    /// Requests whose local memory may be reused.
    released: usize,
    post_at: Duration,
    receive_at: Duration,
    /// The send queue is full: posting waits for a completion.
    is_full: bool,
    /// The queue pair is in the error state: posting has stopped.
    is_over: bool,
    /// Why the queue pair refused a request.
    pub(crate) refused: Option<PostFailure>,
}

#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) keys: FarKeys,
    pub(crate) target_addr: u64,
    pub(crate) forbidden_addr: u64,
}

impl Worker {
    pub(crate) fn new(
        scenario: Rc<EndScenario>,
        near: NearKeys,
        own: FarKeys,
        receives_most: usize,
        remote: Remote,
    ) -> Self {
        Self {
            scenario,
            near,
            own,
            receives_most,
            remote,
            posted: 0,
            receives_posted: 0,
            sends: Vec::new(),
            receives: Vec::new(),
            released: 0,
            post_at: Duration::ZERO,
            receive_at: Duration::ZERO,
            is_full: false,
            is_over: false,
            refused: None,
        }
    }

    fn plan(&self) -> &Plan {
        &self.scenario.plan
    }

    /// Returns whether no request of this end is open or left to post.
    pub(crate) fn is_done(&self, qp: &Qp) -> bool {
        let all_posted = self.posted == self.plan().ops.len();
        qp.state() == QpState::Err || (all_posted && qp.send_queue_len() == 0)
    }

    fn act(&mut self, now: Duration, qp: &mut Qp, space: &Space) {
        self.is_over = qp.state() == QpState::Err;
        if self.is_over {
            return;
        }
        while self.wants_receive(now) && self.post_receive(qp, space) {
            if self.receives_posted >= self.scenario.receives_first {
                self.receive_at = now + self.scenario.receive_interval;
            }
        }
        self.is_full = false;
        while self.wants_post(now) {
            if !self.post(qp, space) {
                self.is_full = true;
                break;
            }
            self.post_at = now + self.scenario.think;
        }
    }

    fn wants_post(&self, now: Duration) -> bool {
        self.posted < self.plan().ops.len() && self.post_at <= now && self.refused.is_none()
    }

    fn wants_receive(&self, now: Duration) -> bool {
        self.receives_posted < self.receives_most && self.receive_at <= now
    }

    fn wake_at(&self) -> Option<Duration> {
        if self.is_over {
            return None;
        }
        let more = self.posted < self.plan().ops.len() && !self.is_full && self.refused.is_none();
        let receive = self.receives_posted < self.receives_most;
        let times = [more.then_some(self.post_at), receive.then_some(self.receive_at)];
        times.into_iter().flatten().min()
    }

    fn post_receive(&mut self, qp: &mut Qp, space: &Space) -> bool {
        let FarKeys { receive, slot_bytes, .. } = self.own;
        let start = self.receives_posted * slot_bytes;
        let count = 1 + self.receives_posted % 3;
        let sges = sges(space, receive, start..start + slot_bytes, count);
        let wr = RecvWr { wr_id: self.receives_posted as u64, sges: &sges };
        let posted = self.accepted(qp.post_recv(&wr));
        self.receives_posted += usize::from(posted);
        posted
    }

    /// Posts the next request; returns false when the queue is full.
    fn post(&mut self, qp: &mut Qp, space: &Space) -> bool {
        let op = &self.plan().ops[self.posted];
        let key = if op.what.lands() { self.near.landing } else { self.near.source };
        let sges = sges(space, key, op.local.clone(), op.sges);
        let payload = match op.sges {
            0 => Payload::Inline(self.plan().sent(op)),
            _ => Payload::Sges(&sges),
        };
        let mut wr = SendWr::new(self.posted as u64, self.operation(op), payload);
        wr.signaled = op.signaled;
        wr.fence = op.fence;
        wr.solicited = op.solicited;
        let result = qp.post_send(&wr);
        let posted = self.accepted(result);
        self.posted += usize::from(posted);
        posted
    }

    fn accepted(&mut self, result: Result<(), PostFailure>) -> bool {
        match result {
            Ok(()) => true,
            Err(PostFailure::QueueFull(_)) => false,
            Err(refused) => {
                self.refused = Some(refused);
                false
            }
        }
    }

    fn operation(&self, op: &Op) -> SendOp {
        match op.what {
            What::Write { offset } => SendOp::Write(self.place(op, offset)),
            What::WriteImm { offset, imm } => SendOp::WriteImm(self.place(op, offset), imm),
            What::Send => SendOp::Send,
            What::SendImm(imm) => SendOp::SendImm(imm),
            What::SendInvalidate(spare) => SendOp::SendInvalidate(self.remote.keys.spare[spare]),
            What::Read { offset, .. } => SendOp::Read(self.place(op, offset)),
            What::FetchAdd { offset, add, .. } => {
                SendOp::FetchAdd { remote: self.place(op, offset), add }
            }
            What::CompareSwap { offset, compare, swap, .. } => {
                SendOp::CompareSwap { remote: self.place(op, offset), compare, swap }
            }
        }
    }

    /// Returns the remote address of a request, also of an invalid one.
    fn place(&self, op: &Op, offset: usize) -> RemoteAddr {
        let rkey = self.remote.keys.target;
        let (offset, rkey) = match op.wrong {
            None | Some(Wrong::TooLong) => (offset, rkey),
            Some(Wrong::Key) => (offset, 0xdead_0000),
            Some(Wrong::Bounds) => (bounds_offset(self.plan(), op), rkey),
            Some(Wrong::Rights) => {
                let addr = self.remote.forbidden_addr;
                return RemoteAddr { addr, rkey: self.remote.keys.forbidden };
            }
        };
        RemoteAddr { addr: self.remote.target_addr + offset as u64, rkey }
    }

    fn completed(&mut self, completion: Completion, space: &mut Space) {
        match completion.queue {
            Queue::Recv => self.receives.push(completion),
            Queue::Send => {
                self.sends.push(completion);
                if completion.result.is_ok() {
                    self.release(completion.wr_id as usize, space);
                }
            }
        }
    }

    /// Reuses the memory that requests up to this one sent from.
    fn release(&mut self, last: usize, space: &mut Space) {
        let scenario = Rc::clone(&self.scenario);
        let Some(region) = space.region(self.near.source) else { return };
        let base = region.addr;
        let ops = &scenario.plan.ops;
        for op in &ops[self.released..(last + 1).min(ops.len())] {
            if !op.what.lands() {
                let addr = base + op.local.start as u64;
                space.fill(self.near.source, addr, op.local.len(), SCRIBBLE);
            }
        }
        self.released = self.released.max(last + 1);
    }
}

/// Splits a range of a region into `count` elements.
fn sges(space: &Space, key: u32, range: Range<usize>, count: usize) -> Vec<Sge> {
    let base = space.addr(key);
    let cut = |at: usize| range.start + range.len() * at / count;
    let element = |at| Sge {
        addr: base + cut(at) as u64,
        bytes: u32::try_from(cut(at + 1) - cut(at)).unwrap_or(u32::MAX),
        lkey: key,
    };
    (0..count).map(element).collect()
}

#[derive(Debug, Default)]
pub(crate) struct Workers {
    pub(crate) workers: Vec<Worker>,
}

impl Program for Workers {
    fn completed(&mut self, _: Duration, index: usize, completion: Completion, space: &mut Space) {
        self.workers[index].completed(completion, space);
    }

    fn act(&mut self, now: Duration, qps: &mut QpTable, space: &mut Space) {
        for (index, worker) in self.workers.iter_mut().enumerate() {
            worker.act(now, qps.get_mut(index), space);
        }
    }

    fn wake_at(&self) -> Option<Duration> {
        self.workers.iter().filter_map(Worker::wake_at).min()
    }
}
