//! The oracle accepts what a correct stack does, and refuses every deviation.
use super::super::plan::{Mix, PlanConfig, What};
use super::super::setup::{far_keys, near_keys};
use super::*;
use crate::Random;
use catchment_roce::{AtomicOp, Memory, Queue, WcOpcode};

struct Left {
    plan: Plan,
    posted: usize,
    sends: Vec<Completion>,
    receives: Vec<Completion>,
    receives_posted: usize,
    near: Space,
    near_keys: NearKeys,
    far: Space,
    far_keys: FarKeys,
    allowed: Allowed,
}

impl Left {
    fn check(&self) -> Result<usize, Fault> {
        check(&Seen {
            plan: &self.plan,
            posted: self.posted,
            refused: None,
            sends: &self.sends,
            receives: &self.receives,
            receives_posted: self.receives_posted,
            near: &self.near,
            near_keys: self.near_keys,
            near_is_dead: false,
            far: &self.far,
            far_keys: &self.far_keys,
            far_is_dead: false,
            allowed: self.allowed,
        })
    }

    fn refused(&self, because: &str) {
        let fault = self.check().expect_err(because).to_string();
        assert!(fault.contains(because), "{fault:?} instead of {because:?}");
    }

    /// Executes request `id` as a responder would.
    fn execute(&mut self, id: usize) {
        let op = self.plan.ops[id].clone();
        let target = self.far.addr(self.far_keys.target);
        let rkey = self.far_keys.target;
        match op.what {
            What::Write { offset } | What::WriteImm { offset, .. } => {
                for (at, piece) in self.plan.sent(&op).chunks(256).enumerate() {
                    let va = target + (offset + 256 * at) as u64;
                    self.far.write_remote(rkey, va, piece).unwrap();
                }
            }
            What::Read { ref expected, .. } => self.land(&op, expected),
            What::FetchAdd { offset, add, .. } => {
                let op_there = AtomicOp::FetchAdd(add);
                self.atomic(&op, target + offset as u64, op_there);
            }
            What::CompareSwap { offset, compare, swap, .. } => {
                let op_there = AtomicOp::CompareSwap { compare, swap };
                self.atomic(&op, target + offset as u64, op_there);
            }
            What::SendInvalidate(spare) => {
                let key = self.far_keys.spare[spare];
                self.far.invalidate(key).unwrap();
            }
            What::Send | What::SendImm(_) => {}
        }
        if op.what.takes_receive() {
            self.receive(&op);
        }
        if op.signaled {
            self.sends.push(done(id, Queue::Send, success_of(&op)));
        }
    }

    fn atomic(&mut self, op: &Op, va: u64, there: AtomicOp) {
        let before = self.far.atomic(self.far_keys.target, va, there).unwrap();
        self.land(op, &before.to_ne_bytes());
    }

    fn land(&mut self, op: &Op, bytes: &[u8]) {
        let key = self.near_keys.landing;
        let addr = self.near.addr(key) + op.local.start as u64;
        self.near.write_local(key, addr, bytes).unwrap();
    }

    fn receive(&mut self, op: &Op) {
        let id = self.receives.len();
        let mut opcode = WcOpcode::Recv;
        let mut imm = None;
        if let What::WriteImm { imm: number, .. } = op.what {
            (opcode, imm) = (WcOpcode::RecvWriteImm, Some(number));
        }
        if let What::SendImm(number) = op.what {
            imm = Some(number);
        }
        if opcode == WcOpcode::Recv {
            let key = self.far_keys.receive;
            let addr = self.far.addr(key) + (id * self.far_keys.slot_bytes) as u64;
            let sent = self.plan.sent(op).to_vec();
            self.far.write_local(key, addr, &sent).unwrap();
        }
        let mut success = Success::plain(opcode, op.local.len() as u64).with_imm(imm);
        if let What::SendInvalidate(spare) = op.what {
            success = success.invalidating(self.far_keys.spare[spare]);
        }
        self.receives
            .push(Completion { solicited: op.solicited, ..done(id, Queue::Recv, success) });
    }
}

fn done(id: usize, queue: Queue, success: Success) -> Completion {
    Completion { wr_id: id as u64, queue, solicited: false, result: Ok(success) }
}

fn failed(id: usize, queue: Queue, status: WcStatus) -> Completion {
    Completion { wr_id: id as u64, queue, solicited: false, result: Err(status) }
}

fn success_of(op: &Op) -> Success {
    Success::plain(op.what.opcode(), op.local.len() as u64)
}

fn fresh(seed: u64, wrong: bool) -> Left {
    let config = PlanConfig {
        ops: 40,
        path_mtu: 256,
        mtus_most: 4,
        max_inline: 64,
        mix: Mix::ALL[0],
        wrong,
    };
    let plan = Plan::new(&config, &mut Random::new(seed));
    let (mut near, mut far) = (Space::default(), Space::default());
    let near_keys = near_keys(&plan, &mut near);
    let far_keys = far_keys(&plan, 60, &mut far);
    Left {
        posted: plan.ops.len(),
        plan,
        sends: Vec::new(),
        receives: Vec::new(),
        receives_posted: 0,
        near,
        near_keys,
        far,
        far_keys,
        allowed: Allowed::default(),
    }
}

/// Returns the state after a run in which requests before `until` were executed.
fn after(seed: u64, until: usize) -> Left {
    let mut left = fresh(seed, false);
    (0..until).for_each(|id| left.execute(id));
    left.receives_posted = left.receives.len();
    left
}

/// Returns the first request that matches.
fn find(left: &Left, like: impl Fn(&Op) -> bool) -> usize {
    left.plan.ops.iter().position(like).unwrap()
}

fn is_write(op: &Op) -> bool {
    matches!(op.what, What::Write { .. }) && op.local.len() > 1
}

#[test]
fn a_perfect_run_is_accepted() {
    for seed in 0..50 {
        assert_eq!(after(seed, 40).check().unwrap(), 40, "seed {seed}");
    }
}

#[test]
fn a_failure_is_accepted_only_where_something_allows_it() {
    let mut left = after(1, 12);
    left.sends.retain(|completion| completion.wr_id < 12);
    let flushes = (13..40).map(|id| failed(id, Queue::Send, WcStatus::Flushed));
    left.sends.push(failed(12, Queue::Send, WcStatus::TransportRetryExceeded));
    left.sends.extend(flushes);
    left.refused("failed with TransportRetryExceeded");
    left.allowed.timeout = true;
    assert_eq!(left.check().unwrap(), 12);
    left.sends.push(failed(39, Queue::Send, WcStatus::TransportRetryExceeded));
    left.refused("was next");
    left.sends.pop();
    left.sends.remove(20);
    left.refused("before");
}

#[test]
fn one_request_is_to_blame_and_flushes_need_a_reason() {
    let mut left = after(1, 12);
    left.allowed.timeout = true;
    left.sends.retain(|completion| completion.wr_id < 12);
    let flushes = (12..40).map(|id| failed(id, Queue::Send, WcStatus::Flushed));
    left.sends.extend(flushes);
    left.refused("flushed without a cause");
    left.allowed.flush = true;
    assert_eq!(left.check().unwrap(), 12);
    let last = left.sends.len();
    left.sends[last - 1].result = Err(WcStatus::TransportRetryExceeded);
    assert_eq!(left.check().unwrap(), 12);
    left.sends[last - 2].result = Err(WcStatus::TransportRetryExceeded);
    left.refused("more than one request failed by itself");
}

#[test]
fn a_wrong_request_may_not_succeed() {
    let mut left = fresh(3, true);
    let wrong = find(&left, |op| op.wrong.is_some());
    left.plan.ops[wrong].signaled = true;
    for id in 0..wrong {
        left.execute(id);
    }
    let op = left.plan.ops[wrong].clone();
    left.sends.push(done(wrong, Queue::Send, success_of(&op)));
    left.refused("succeeded although");
}

#[test]
fn completions_out_of_order_or_missing_are_refused() {
    let mut swapped = after(4, 40);
    swapped.sends.swap(3, 4);
    swapped.refused("completed before");
    let mut missing = after(4, 40);
    missing.sends.pop();
    missing.refused("never completed");
    let mut twice = after(4, 40);
    twice.sends.push(twice.sends[0]);
    twice.refused("was next");
    let mut short = after(4, 40);
    if let Ok(success) = &mut short.sends[2].result {
        success.bytes += 1;
    }
    short.refused("completed as");
}

#[test]
fn a_wrong_byte_anywhere_is_refused() {
    let write = |left: &mut Left, far: bool, key: u32, at: usize| {
        let space = if far { &mut left.far } else { &mut left.near };
        let addr = space.addr(key) + at as u64;
        let byte = space.local(key, addr, 1).unwrap()[0];
        space.write_local(key, addr, &[byte ^ 0x11]).unwrap();
    };
    let mut left = after(5, 40);
    let target = left.far_keys.target;
    write(&mut left, true, target, 9);
    left.refused("the target differs at byte Some(9)");

    let mut left = after(5, 40);
    let (read, landing) = (find(&left, |op| op.what.lands()), left.near_keys.landing);
    let at = left.plan.ops[read].local.start;
    write(&mut left, false, landing, at);
    left.refused(&format!("the result of request {read} differs"));
    let mut left = after(5, 40);
    write(&mut left, false, landing, at - 1);
    left.refused("landing memory changed");

    let mut left = after(5, 40);
    let receive = left.far_keys.receive;
    let last = left.far_keys.slot_bytes * 59;
    write(&mut left, true, receive, last);
    left.refused("receives changed");

    let mut left = after(5, 40);
    let source = left.near_keys.source;
    write(&mut left, false, source, 0);
    left.refused("memory that was only sent from");
    let mut left = after(5, 40);
    let forbidden = left.far_keys.forbidden;
    write(&mut left, true, forbidden, 7);
    left.refused("without rights");
}

#[test]
fn what_is_written_twice_too_late_or_not_at_all_is_refused() {
    let mut left = after(6, 40);
    let write = find(&left, is_write);
    let sends = left.sends.len();
    left.execute(write);
    left.sends.truncate(sends);
    left.refused("no request asked for");

    let mut left = fresh(6, false);
    for id in 0..40 {
        let op = &left.plan.ops[id];
        if id == write {
            let success = success_of(op);
            left.sends.push(done(id, Queue::Send, success));
        } else {
            left.execute(id);
        }
    }
    left.receives_posted = left.receives.len();
    left.refused("was next");

    let mut left = after(6, write);
    let op = left.plan.ops[write].clone();
    left.posted = write + 1;
    left.plan.ops[write].signaled = true;
    left.sends.push(done(write, Queue::Send, success_of(&op)));
    left.refused("ends before it");
}

#[test]
fn a_message_that_is_lost_doubled_or_misread_is_refused() {
    let mut lost = after(7, 40);
    lost.receives.pop();
    lost.receives_posted -= 1;
    lost.refused("messages succeeded");
    let mut open = after(7, 40);
    open.receives_posted += 1;
    open.refused("receives completed");
    let mut misread = after(7, 40);
    if let Ok(success) = &mut misread.receives[1].result {
        success.imm = Some(1);
    }
    misread.refused("instead of");
    let mut swapped = after(7, 40);
    swapped.receives.swap(0, 1);
    swapped.refused("receive 1 completed where 0 was next");
}
