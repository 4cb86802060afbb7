//! A peer that breaks the protocol, a peer of another shape, a peer that is gone.
use super::driver::Patience;
use super::{card, driver, pair, patient, shape};
use catchment_channel::{
    Card, Channel, ChannelError, ClaimError, EndError, PeerFault, RemoteMemory, Resources,
};
use catchment_transfer::header::encode_trailer;
use catchment_transfer::{BlockHeader, HeaderError, WaitPolicy};
use catchment_verbs::{
    Access, Context, Mr, Payload, Qp, QpInit, RecvWr, RemoteAddr, RtrAttr, SendOp, SendWr,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An end that posts anything.
struct Raw {
    qp: Box<dyn Qp>,
    peer: Card,
    _slots: Arc<dyn Mr>,
}

impl Raw {
    fn new(context: &dyn Context) -> (Self, Card) {
        let pd = context.alloc_pd().unwrap();
        let slots = pd.alloc_mr(4 * 128, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let init = QpInit {
            recv_cq: context.create_cq(16, None).unwrap(),
            max_inline_bytes: 256,
            strict: context.caps().strict_capacity,
            ..QpInit::rc(&context.create_cq(64, None).unwrap(), 64, 16)
        };
        let qp = pd.create_qp(init).unwrap();
        let card = Card {
            endpoint: qp.endpoint(),
            memory: RemoteMemory {
                addr: slots.addr(),
                rkey: slots.rkey(),
                bytes: slots.bytes() as u64,
            },
            blocks: 4,
            payload_bytes: 64,
        };
        (Self { qp, peer: card, _slots: slots }, card)
    }

    fn connect(&mut self, peer: Card) {
        self.peer = peer;
        self.qp.connect(Access::REMOTE, RtrAttr::new(peer.endpoint), patient()).unwrap();
        self.qp.post_recv(&[RecvWr { wr_id: 0, sges: &[] }; 16]).unwrap();
    }

    fn post(&mut self, op: SendOp, bytes: &[u8]) {
        self.qp.post_send(&[SendWr::new(0, op, Payload::Inline(bytes)).unsignaled()]).unwrap();
    }

    /// A message in slot number `slot`, announced with `imm`.
    fn message(&mut self, slot: u64, imm: u32, bytes: &[u8]) {
        let to =
            RemoteAddr { addr: self.peer.memory.addr + slot * 128, rkey: self.peer.memory.rkey };
        self.post(SendOp::WriteImm(to, imm), bytes);
    }
}

fn bad_peer() -> (Channel, Raw) {
    let [good, bad] = crate::two_devices();
    let good = Resources::acquire(good, shape(4, 64)).unwrap();
    let (mut raw, card_bad) = Raw::new(&*bad);
    raw.connect(card(&good));
    (Channel::connect(good, &card_bad, patient()).unwrap(), raw)
}

/// Takes until the session fails.
fn failure(channel: &mut Channel) -> EndError {
    let start = Instant::now();
    let mut kept = Vec::new();
    loop {
        match channel.take() {
            Ok(block) => kept.extend(block),
            Err(error) => return error,
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not fail");
        std::thread::yield_now();
    }
}

/// A correct message of 64 bytes, before the change.
fn message(change: impl FnOnce(&mut BlockHeader)) -> [u8; 128] {
    let mut header = BlockHeader {
        payload_bytes: 64,
        frame_bytes: 64,
        room_bytes: 64,
        ..BlockHeader::default()
    };
    change(&mut header);
    let mut out = [0; 128];
    out[64..].copy_from_slice(&encode_trailer(&header.to_words(), 0));
    out
}

/// The low half of an immediate is the slot, from 1; the high half counts released messages.
#[test]
fn violations_of_the_protocol_end_the_session() {
    let good = message(|_| {});
    let wrong = message(|header| header.room_bytes = 128);
    let reason = HeaderError::Room { payload_bytes: 64, room_bytes: 128, limit: 64 };
    for (slot, imm, bytes, fault) in [
        (1, 2, &good[..], PeerFault::Immediate(2)),
        (0, 99, &good, PeerFault::Immediate(99)),
        (0, 1, &good[..64], PeerFault::Header { position: 0, reason: HeaderError::Version(0) }),
        (0, 1, &wrong, PeerFault::Header { position: 0, reason }),
        (0, 0x0001_0001, &good, PeerFault::Credit { count: 1, known: 0, sent: 0 }),
        (0, 0x0001_0000, &[], PeerFault::Credit { count: 1, known: 0, sent: 0 }),
    ] {
        let (mut channel, mut raw) = bad_peer();
        raw.message(slot, imm, bytes);
        assert_eq!(failure(&mut channel), EndError::Peer(fault));
        assert_eq!(channel.take().err(), Some(EndError::Peer(fault)));
        assert_eq!(channel.claim(0, 1).err(), Some(ClaimError::End(EndError::Peer(fault))));
    }
}

#[test]
fn a_message_over_an_unreleased_one() {
    let (mut channel, mut raw) = bad_peer();
    for n in 0..5 {
        raw.message(n % 4, n as u32 % 4 + 1, &message(|_| {}));
    }
    assert_eq!(failure(&mut channel), EndError::Peer(PeerFault::Overwritten(0)));
}

#[test]
fn a_send_without_an_immediate() {
    let (mut channel, mut raw) = bad_peer();
    raw.post(SendOp::Send, &[]);
    assert_eq!(failure(&mut channel), EndError::Peer(PeerFault::Message(0)));
}

#[test]
fn peers_of_other_sizes_are_refused_by_name() {
    let refused = |change: fn(&mut Card)| {
        let [a, b] = crate::two_devices().map(|c| Resources::acquire(c, shape(4, 64)).unwrap());
        let mut peer = card(&b);
        change(&mut peer);
        match Channel::connect(a, &peer, patient()) {
            Err(ChannelError::Card(error)) => error.to_string(),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it was taken"),
        }
    };
    let text = refused(|card| card.blocks = 5);
    assert!(text.contains("5 slots of 64 bytes, this end 4"), "{text}");
    let text = refused(|card| card.memory.bytes = 511);
    assert!(text.contains("offers 511 bytes, its slots need 512"), "{text}");
    let [context, _] = crate::two_devices();
    let refused = Resources::acquire(context, shape(40_000, 64));
    assert!(matches!(refused.err(), Some(ChannelError::Blocks(40_000))));
}

/// Both queue pairs end when one side does: the next request of the other fails.
#[test]
fn a_peer_that_closed_is_noticed_by_sending() {
    let [mut a, mut b] = pair(shape(4, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut a, 0, 0, b"last", &mut wait);
    drop(driver::take(&mut b, &mut wait));
    b.close().unwrap();
    let start = Instant::now();
    let mut packet = 1;
    let error = loop {
        let step = match a.claim(0, 64) {
            Ok(claim) => {
                packet += 1;
                a.commit(claim, packet)
            }
            Err(ClaimError::WouldBlock) => a.progress(),
            Err(ClaimError::End(error)) => Err(error),
            Err(error) => panic!("{error}"),
        };
        if let Err(error) = step {
            break error;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it does not fail");
        std::thread::yield_now();
    };
    assert_eq!(a.progress(), Err(error), "it stays so");
    a.close().unwrap();
}
