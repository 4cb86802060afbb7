//! A shared queue pair that fails at any moment, against a peer: every message is taken once and in order, and nothing
//! is written into what was taken.
use super::connection::{Connection, NewQp};
use super::own::OwnQp;
use super::share::{Buffer, Shared};
use super::shared_qp::{Posted, SharedQp};
use super::shared_qps::SharedQps;
use crate::entry::{Data, MAX_INLINE_BYTES, Request, Work};
use crate::inband::{Message, Told};
use crate::scheduler::Scheduler;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Endpoint, ModifyError, Payload, PostError, PostFailure, Qp, QpState, QpTransition, RateError,
    RateLimit, RecvWr, RemoteAddr, SendOp, SendWr, Service, Sge,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

const CONNECTIONS: u64 = 3;

/// A request at the device.
#[derive(Clone)]
struct Given {
    wr_id: u64,
    op: SendOp,
    inline: Vec<u8>,
}

/// A device that keeps what it is given, up to so many.
struct Device(Arc<Mutex<Vec<Given>>>, usize);

impl Device {
    fn new(given: &Arc<Mutex<Vec<Given>>>) -> Self {
        Self(Arc::clone(given), usize::MAX)
    }
}

impl Qp for Device {
    fn qpn(&self) -> u32 {
        1
    }

    fn state(&self) -> QpState {
        QpState::Rts
    }

    fn endpoint(&self) -> Endpoint {
        "00000000000000000000000000000000/1/2".parse().unwrap()
    }

    fn modify(&mut self, _: QpTransition) -> Result<(), ModifyError> {
        Ok(())
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let given = requests.iter().map(|wr| {
            let inline = match wr.payload {
                Payload::Inline(bytes) => bytes.to_vec(),
                Payload::Sges(_) => Vec::new(),
            };
            Given { wr_id: wr.wr_id, op: wr.op, inline }
        });
        let mut taken = self.0.lock();
        let room = self.1.saturating_sub(taken.len());
        taken.extend(given.take(room));
        if requests.len() > room {
            return Err(PostError { index: room, reason: PostFailure::QueueFull(self.1 as u32) });
        }
        Ok(())
    }

    fn post_recv(&mut self, _: &[RecvWr<'_>]) -> Result<(), PostError> {
        Ok(())
    }

    fn set_rate(&mut self, _: Option<RateLimit>) -> Result<(), RateError> {
        Ok(())
    }
}

fn buffer() -> Buffer {
    Box::new([0; MAX_INLINE_BYTES])
}

/// Where message `n` of a connection goes.
fn place(connection: u64, n: u32) -> RemoteAddr {
    RemoteAddr { addr: (connection + 1) << 32 | u64::from(n), rkey: 1 }
}

struct World {
    sender: SharedQp,
    device: Arc<Mutex<Vec<Given>>>,
    executed: usize,
    completed: usize,
    /// At the peer's device, not seen by its agent.
    arrived: VecDeque<Given>,
    answers: VecDeque<(u64, u32)>,
    sent: [u32; CONNECTIONS as usize],
    taken: [u32; CONNECTIONS as usize],
    credited: u32,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            sender: SharedQp::new(1, 0, false),
            device: Arc::default(),
            executed: 0,
            completed: 0,
            arrived: VecDeque::new(),
            answers: VecDeque::new(),
            sent: [0; CONNECTIONS as usize],
            taken: [0; CONNECTIONS as usize],
            credited: 0,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.device = Arc::default();
        (self.executed, self.completed, self.credited) = (0, 0, 0);
        let device = Box::new(Device::new(&self.device));
        let asked = self.sender.begin(0, device, None).to_vec();
        for base in asked {
            let from = (base >> 32) as u32;
            self.sender.push_urgent(Posted::message(base, from, &Message::Ask { from }, buffer()));
        }
        self.sender.give();
    }

    /// A WRITE, and a message: in one request or in two.
    fn send(&mut self, connection: u64, in_two: bool) {
        let (base, number) = (connection << 32, self.sent[connection as usize]);
        self.sent[connection as usize] += 1;
        let remote = place(connection, number);
        let mut write = Posted::new(base, SendOp::Write(remote), Data::Inline(0));
        write.is_silent = true;
        self.sender.queue.push_back(write);
        let told = Told { number, is_send: true, bytes: 0, imm: None };
        let from = connection as u32;
        let posted = if in_two {
            let told = Message::Done { from, told, numbers: None };
            Posted { is_silent: false, ..Posted::message(base, from, &told, buffer()) }
        } else {
            Posted::new(base, SendOp::WriteImm(remote, from), Data::Inline(0))
        };
        self.sender.queue.push_back(Posted { message: Some((from, told)), ..posted });
        self.sender.give();
    }

    /// The device does the next request.
    fn execute(&mut self) -> bool {
        let Some(given) = self.device.lock().get(self.executed).cloned() else { return false };
        self.executed += 1;
        if let SendOp::Write(remote) | SendOp::WriteImm(remote, _) = given.op
            && let Some(connection) = (remote.addr >> 32).checked_sub(1)
        {
            let taken = self.taken[connection as usize];
            assert!(remote.addr as u32 >= taken, "written again: {remote:?}, {taken} are taken");
        }
        if !matches!(given.op, SendOp::Write(_)) {
            self.arrived.push_back(given);
        }
        true
    }

    /// The peer's agent takes what arrived next.
    fn take(&mut self) -> bool {
        let Some(given) = self.arrived.pop_front() else { return false };
        self.credited += 1;
        if let SendOp::WriteImm(remote, connection) = given.op {
            let taken = &mut self.taken[connection as usize];
            assert_eq!(remote.addr as u32, *taken, "not the next one");
            *taken += 1;
            return true;
        }
        let message = Message::decode(&given.inline).unwrap();
        if let Message::Done { from, told, .. } = message {
            let taken = &mut self.taken[from as usize];
            assert!(told.number <= *taken, "one before it is lost");
            *taken += u32::from(told.number == *taken);
        } else {
            let Message::Ask { from } = message else { panic!("{message:?}") };
            self.answers.push_back((u64::from(from) << 32, self.taken[from as usize]));
        }
        true
    }

    fn complete(&mut self) -> bool {
        let any = self.completed < self.executed;
        if any {
            let wr_id = self.device.lock()[self.executed - 1].wr_id;
            self.sender.complete(wr_id, |_| {});
            self.completed = self.executed;
            self.sender.give();
        }
        any
    }

    fn answer(&mut self) -> bool {
        let Some((base, count)) = self.answers.pop_front() else { return false };
        self.sender.taken(base, count);
        self.sender.give();
        true
    }

    fn credit(&mut self) {
        self.sender.credit(self.credited, drop);
        self.sender.give();
    }

    /// What the peer's agent has not seen is lost, though the device did it.
    fn fail(&mut self) {
        self.sender.fail(&mut Vec::new());
        self.arrived.clear();
        self.answers.clear();
        self.begin();
    }

    fn step(&mut self, step: u8) {
        let connection = u64::from(step) % CONNECTIONS;
        match step % 16 {
            0..4 => self.send(connection, step >= 128),
            4..8 => drop(self.execute()),
            8..11 => drop(self.take()),
            11..13 => drop(self.complete()),
            13 => self.credit(),
            14 => drop(self.answer()),
            _ => self.fail(),
        }
    }
}

proptest! {
    #[test]
    fn messages_are_taken_once_and_in_order(
        steps in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        while world.execute() || world.take() || world.complete() || world.answer() {}
        prop_assert_eq!(world.taken, world.sent);
    }
}

/// A device that refuses a request has those before it, and the peer may have taken them.
#[test]
fn what_a_device_had_before_it_refused_one_is_not_done_again_unasked() {
    let mut world = World::new();
    world.sender.qp = None;
    (0..2).for_each(|connection| world.send(connection, false));
    world.sender.qp = Some(Box::new(Device(Arc::clone(&world.device), 3)));
    assert!(world.sender.give(), "the fourth is refused");
    while world.execute() || world.take() {}
    assert_eq!(world.taken, [1, 0, 0]);
    world.fail();
    while world.execute() || world.take() || world.complete() || world.answer() {}
    assert_eq!(world.taken, world.sent);
}

/// One that is made while others fail takes no place whose last one the peer may still have: what arrived over that
/// would be taken behind the answer to how far the peer got, and again as it is repeated.
#[test]
fn a_place_waits_until_both_ends_of_its_last_one_are_gone() {
    let mut shared_qps = SharedQps::new(None, false);
    let device = || Box::new(Device::new(&Arc::default()));
    let mut add = |number, free: &[u32], lost: &[u32]| {
        lost.iter().for_each(|number| shared_qps.lose(1, *number));
        free.iter().for_each(|number| shared_qps.free(1, *number));
        shared_qps.add(1, number, device())
    };
    assert_eq!([add(1, &[], &[]), add(2, &[], &[])], [0, 1]);
    assert_eq!(add(3, &[2], &[1, 2]), 1, "the peer may have 1");
    assert_eq!(add(4, &[1], &[]), 0);
    assert_eq!(add(5, &[], &[4]), 2, "the peer may have 4");
    assert_eq!(add(6, &[3, 4], &[]), 0, "3 is in use");
}

/// A peer's agent that tells of what its receive has no room for is not believed.
#[test]
fn a_message_that_its_receive_has_no_room_for_is_none() {
    let mut scheduler = Scheduler::unlimited();
    let application = scheduler.add_application();
    let id = scheduler.add_connection(application, 8);
    let qp = OwnQp::new(Box::new(Device::new(&Arc::default())), true);
    let new = NewQp { qp, service: Service::Rc, pd: 0, cq: None };
    let mut connection = Connection::new(id, (0, 0), 0, new, (8, 8));
    connection.shared = Some(Box::new(Shared::new((1, 1))));
    let data = Data::of_elements(&[Sge { addr: 64, bytes: 9, lkey: 1 }]).unwrap();
    for seq in 0..2 {
        let request = Request { queue_pair: 0, seq, work: Work::Receive, data };
        connection.post_receive(request).unwrap();
    }
    connection.shared.as_mut().unwrap().announced = 1;
    let told = |number, bytes| Told { number, is_send: true, bytes, imm: None };
    let mut take = |told| connection.take_message(&told).map(|landed| landed.is_some());
    assert!(take(told(0, 10)).is_err());
    assert!(matches!(take(told(1, 1)), Ok(false)), "not the next one");
    assert!(matches!(take(told(0, 9)), Ok(true)));
    assert!(matches!(take(told(0, 9)), Ok(false)), "it is known");
    assert!(matches!(take(told(1, 9)), Ok(false)), "the peer does not know that receive");
}
