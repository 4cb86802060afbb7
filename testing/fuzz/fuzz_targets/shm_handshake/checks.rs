//! What must hold for any messages at the socket of a shared memory context. The fuzz target and the ordinary
//! test that replays its corpus share this file.
//!
//! The input is a script of connections, messages and descriptors. The attacker knows all that a peer of a
//! session knows: both GIDs, numbers and a key.
#[path = "../../../../crates/provider-shm/tests/raw/mod.rs"]
mod raw;

use catchment_conformance::{Options, Side, connected};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Provider as _, QpState};
use raw::{HELLO, Memory, OPEN_QP, QP, REFUSED, REGION, RESOLVE, Socket, TABLES};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::cell::RefCell;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

const FAULT: u16 = 4;
/// Connections at once.
const SOCKETS: usize = 3;

/// A session, and what an attacker has at hand.
struct World {
    peer: Side,
    target: Side,
    descriptors: Vec<OwnedFd>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

impl World {
    fn new() -> Self {
        let open = || ShmProvider::new().open("shm0").expect("a context opens");
        let options = Options { bytes: 1 << 16, ..Options::default() };
        let (peer, target) = connected((open(), &options), (open(), &options));
        let short = Memory::create(4096).1;
        let inbox = Memory::create(1 << 17).1;
        let unsealed = rustix::fs::memfd_create("u", rustix::fs::MemfdFlags::CLOEXEC);
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let descriptors = vec![inbox, short, unsealed.expect("a memfd"), event.expect("a counter")];
        Self { peer, target, descriptors }
    }
}

/// Reads a script; zeros when it is over.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// Returns this value, or one of the script.
    fn or(&mut self, value: u32) -> u32 {
        match self.byte() {
            0..200 => value,
            _ => u32::from_le_bytes(self.bytes(4).try_into().expect("four bytes")),
        }
    }
}

/// Panics when something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        if world.as_ref().is_some_and(|world| world.target.qp.state() != QpState::Rts) {
            *world = None;
        }
        run(world.get_or_insert_with(World::new), &mut Script(bytes));
    });
}

fn run(world: &World, script: &mut Script<'_>) {
    let gid = world.target.context.gid().0;
    let mut sockets: [Option<(Socket, bool)>; SOCKETS] = Default::default();
    while !script.0.is_empty() {
        let operation = script.byte();
        let place = &mut sockets[usize::from(operation >> 4) % SOCKETS];
        let (socket, is_known) = place.get_or_insert_with(|| (Socket::dial(gid), false));
        match operation % 8 {
            0 => *place = None,
            1 => {
                let bytes = script.bytes(usize::from(operation >> 2));
                socket.send_bytes(&bytes, &[]);
            }
            2 => {
                let ours = world.peer.context.gid().0;
                socket.send(HELLO, &[ours, gid].concat(), &[]);
                *is_known = true;
            }
            3 => {
                let gids = script.bytes(32);
                socket.send(HELLO, &gids, &[]);
                *is_known |= gids[16..] == gid;
            }
            _ => send_request(world, script, socket),
        }
        if let Some((socket, is_known)) = place {
            read_answers(socket, *is_known);
        }
    }
    drop(sockets);
    // Whatever came, the next peer is served.
    let answer = Socket::dial(gid).hello([1; 16], gid).expect("the context answers");
    assert_eq!((answer.kind, answer.descriptors.len()), (TABLES, 2));
}

fn send_request(world: &World, script: &mut Script<'_>, socket: &Socket) {
    let kind = [OPEN_QP, RESOLVE, FAULT, script.byte().into()][usize::from(script.byte()) % 4];
    let mut rest = script.or(world.target.qp.qpn()).to_le_bytes().to_vec();
    if kind == OPEN_QP {
        let values = [world.peer.qp.qpn(), 15, 7, 0, 1 << 16, 64, 1000, 0];
        rest.extend(values.map(|value| script.or(value)).map(u32::to_le_bytes).concat());
    } else {
        rest.extend(script.or(world.target.mr.rkey()).to_le_bytes());
    }
    let count = usize::from(script.byte()) % 5;
    let chosen: Vec<BorrowedFd<'_>> = (0..count)
        .map(|_| world.descriptors[usize::from(script.byte()) % world.descriptors.len()].as_fd())
        .collect();
    socket.send(kind, &rest, &chosen);
}

/// Reads what is there, or what comes within a moment: the socket has no event for "no answer".
fn read_answers(socket: &Socket, is_known: bool) {
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000 };
    loop {
        let mut fds = [PollFd::new(&socket.0, PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&moment)) != Ok(1) {
            return;
        }
        let Some(answer) = socket.receive() else { return };
        let expected = match answer.kind {
            TABLES | REGION => 2..=2,
            QP => 1..=3,
            _ => 0..=0,
        };
        assert!(expected.contains(&answer.descriptors.len()), "kind {}", answer.kind);
        assert!(is_known || answer.kind == REFUSED, "kind {} for a stranger", answer.kind);
    }
}
