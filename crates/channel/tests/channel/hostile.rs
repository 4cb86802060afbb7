//! A peer that breaks the protocol, a peer of another shape, a peer that is gone.
use super::driver::Patience;
use super::{card, driver, modes, pair, patient, shape};
use catchment_channel::{
    Card, Channel, ChannelError, ClaimError, EndError, Mode, PeerFault, RemoteMemory, Resources,
};
use catchment_transfer::header::encode_trailer;
use catchment_transfer::protocol::commit_word;
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
        // As many bytes as a channel of four slots needs in any mode.
        let bytes = 2 * 4 * 128;
        let slots = pd.alloc_mr(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
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
        self.post(SendOp::WriteImm(self.at(slot * 128), imm), bytes);
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.peer.memory.addr + offset, rkey: self.peer.memory.rkey }
    }

    /// The epoch of commit words of this end.
    fn epoch(&self) -> u64 {
        u64::from(self.peer.memory.rkey) << 32 | u64::from(self.qp.endpoint().psn)
    }

    /// Writes the first so many bytes of a message, or all, into slot number `slot`, and tells nobody.
    fn write(&mut self, slot: u64, bytes: &[u8]) {
        self.post(SendOp::Write(self.at(slot * 128)), bytes);
    }
}

fn bad_peer() -> (Channel, Raw) {
    bad_peer_in(Mode::WriteImm)
}

fn bad_peer_in(mode: Mode) -> (Channel, Raw) {
    let [good, bad] = crate::two_devices();
    let good = Resources::acquire(good, shape(4, 64).with_mode(mode)).unwrap();
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

/// A message of 64 bytes, and the commit word that it has in this slot and generation.
fn committed(
    epoch: u64,
    slot: u32,
    generation: u64,
    change: impl FnOnce(&mut BlockHeader),
) -> [u8; 128] {
    let mut bytes = message(change);
    let words: [u64; 7] =
        std::array::from_fn(|at| u64::from_le_bytes(bytes[64 + 8 * at..][..8].try_into().unwrap()));
    bytes[120..].copy_from_slice(&commit_word(epoch, slot, generation, &words).to_le_bytes());
    bytes
}

/// Where nothing tells of a message, any bytes may be in its slot: only a whole one is taken.
#[test]
fn bytes_that_are_no_whole_message_are_not_taken() {
    if !modes().contains(&Mode::Write) {
        return;
    }
    let (mut channel, mut raw) = bad_peer_in(Mode::Write);
    let epoch = raw.epoch();
    let good = committed(epoch, 0, 1, |_| {});
    let mut flipped = good;
    flipped[64] ^= 1;
    for bytes in [
        [0xff; 128],
        message(|_| {}),
        committed(epoch ^ 1, 0, 1, |_| {}),
        committed(epoch, 1, 1, |_| {}),
        committed(epoch, 0, 2, |_| {}),
        flipped,
    ] {
        raw.write(0, &bytes);
        raw.write(0, &good[..64]);
        for _ in 0..2_000 {
            assert!(channel.take().unwrap().is_none(), "{bytes:?}");
        }
    }
    // A whole one in a slot that is not the next is not looked at either.
    raw.write(1, &committed(epoch, 1, 1, |_| {}));
    for _ in 0..2_000 {
        assert!(channel.take().unwrap().is_none());
    }
    raw.write(0, &good);
    let mut wait = Patience::new(WaitPolicy::Yield);
    let taken = [(); 2].map(|()| driver::take(&mut channel, &mut wait));
    assert!(taken.iter().all(|message| message.payload().bytes() == 64));
}

#[test]
fn a_peer_that_writes_against_the_protocol_ends_its_session() {
    if !modes().contains(&Mode::Write) {
        return;
    }
    let reason = HeaderError::Room { payload_bytes: 64, room_bytes: 128, limit: 64 };
    for (fault, does) in [
        (
            PeerFault::Header { position: 0, reason },
            (|raw| {
                let change = |header: &mut BlockHeader| header.room_bytes = 128;
                raw.write(0, &committed(raw.epoch(), 0, 1, change));
            }) as fn(&mut Raw),
        ),
        // The credit word is behind the slots.
        (PeerFault::Credit { count: 7, known: 0, sent: 0 }, |raw| {
            raw.post(SendOp::Write(raw.at(4 * 128)), &7_u64.to_le_bytes());
        }),
        // A ring, although nobody sleeps; neither a ring nor a sleep; more seen than was written.
        (PeerFault::Immediate(0), |raw| raw.post(SendOp::SendImm(0), &[])),
        (PeerFault::Immediate(9), |raw| raw.post(SendOp::SendImm(9), &[])),
        (PeerFault::Immediate(1 << 31 | 3), |raw| raw.post(SendOp::SendImm(1 << 31 | 3), &[])),
        (PeerFault::Message(0), |raw| raw.post(SendOp::WriteImm(raw.at(0), 0), &[])),
        (PeerFault::Message(0), |raw| raw.post(SendOp::Send, &[])),
    ] {
        let (mut channel, mut raw) = bad_peer_in(Mode::Write);
        does(&mut raw);
        assert_eq!(failure(&mut channel), EndError::Peer(fault));
    }
    let (mut channel, mut raw) = bad_peer_in(Mode::Write);
    let mut wait = Patience::new(WaitPolicy::Yield);
    let kept: Vec<_> = (0..4)
        .map(|slot| {
            raw.write(slot, &committed(raw.epoch(), slot as u32, 1, |_| {}));
            driver::take(&mut channel, &mut wait)
        })
        .collect();
    raw.write(0, &committed(raw.epoch(), 0, 2, |_| {}));
    assert_eq!(failure(&mut channel), EndError::Peer(PeerFault::Overwritten(0)));
    drop(kept);
}

/// Of messages into receives: the trailer is where the message ends, whatever its length.
#[test]
fn sends_that_break_the_protocol_end_the_session() {
    let wrong = message(|header| header.room_bytes = 0);
    let reason = HeaderError::Room { payload_bytes: 64, room_bytes: 0, limit: 64 };
    for (imm, bytes, fault) in [
        (2, &message(|_| {})[..], PeerFault::Immediate(2)),
        (1, &[0; 63], PeerFault::Message(63)),
        (1, &[9; 64], PeerFault::Header { position: 0, reason: HeaderError::Version(9) }),
        (1, &wrong, PeerFault::Header { position: 0, reason }),
        (0x0001_0000, &[], PeerFault::Credit { count: 1, known: 0, sent: 0 }),
    ] {
        let (mut channel, mut raw) = bad_peer_in(Mode::Send);
        raw.post(SendOp::SendImm(imm), bytes);
        assert_eq!(failure(&mut channel), EndError::Peer(fault));
    }
    // A WRITE with immediate would be no message of this mode.
    let (mut channel, mut raw) = bad_peer_in(Mode::Send);
    raw.post(SendOp::WriteImm(raw.at(0), 1), &[]);
    assert_eq!(failure(&mut channel), EndError::Peer(PeerFault::Message(0)));
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
