//! A peer that breaks the protocol: a typed error, and no access outside of the exposed memory.
use super::suite::*;
use super::*;
use catchment_mechanisms::rendezvous::*;
use catchment_transfer::{BlockHeader, HeaderError};
use catchment_verbs::{Payload, RemoteAddr, SendOp, SendWr};

const SHAPE: Shape = Shape { blocks: 4, payload_bytes: 64 };
const RENDEZVOUS: Rendezvous = Rendezvous { shape: SHAPE, max_send_wr: 128 };

/// An end that posts anything.
struct Raw {
    port: Port,
    peer: Offer,
}

impl Raw {
    fn post(&mut self, op: SendOp, bytes: &[u8]) {
        self.port.qp.post_send(&[SendWr::new(0, op, Payload::Inline(bytes)).unsignaled()]).unwrap();
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        let memory = self.peer.memory[0];
        RemoteAddr { addr: memory.addr + offset, rkey: memory.rkey }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.post(SendOp::Write(self.at(offset)), bytes);
    }

    fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) {
        self.post(SendOp::WriteImm(self.at(offset), imm), bytes);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.post(SendOp::Send, bytes);
    }
}

/// Queues with room for more than a correct end posts.
fn lavish(mut needs: EndNeeds) -> EndNeeds {
    needs.queues.max_inline_bytes = 256;
    needs.queues.max_send_wr = 64;
    needs.queues.max_recv_wr = needs.queues.max_recv_wr.max(1);
    needs
}

fn connected(source: &EndNeeds, collector: &EndNeeds) -> ([Port; 2], [Offer; 2]) {
    let mut ports = [open(&host(), source), open(&host(), collector)];
    let offers = connect(&mut ports);
    (ports, offers)
}

/// A sender that breaks the protocol, and the receiver.
fn bad_sender<M: Mechanism>(mechanism: &M) -> (Raw, M::Receiver) {
    let needs = lavish(mechanism.sender_needs().unwrap());
    let ([port, collector], [out, peer]) = connected(&needs, &mechanism.receiver_needs().unwrap());
    (Raw { port, peer }, mechanism.receiver(collector, &out).unwrap())
}

/// A receiver that breaks the protocol, and the sender.
fn bad_receiver<M: Mechanism>(mechanism: &M) -> (M::Sender, Raw) {
    let needs = lavish(mechanism.receiver_needs().unwrap());
    let ([source, port], [peer, back]) = connected(&mechanism.sender_needs().unwrap(), &needs);
    (mechanism.sender(source, &back).unwrap(), Raw { port, peer })
}

/// Repeats `step` until it reports a fault of the peer.
fn fault(step: impl FnMut() -> Result<(), EndError>) -> PeerFault {
    let error = failure(step);
    let EndError::Peer(fault) = error else { panic!("{error}") };
    fault
}

fn taking<R: ReceiveEnd>(receiver: &mut R) -> PeerFault {
    let mut kept = Vec::new();
    fault(|| receiver.take().map(|block| kept.extend(block)))
}

/// Sends while it can, and takes what comes back.
fn sending<S: SendEnd>(sender: &mut S) -> PeerFault {
    let mut packet = 0;
    fault(|| send_if_free(sender, 64, &mut packet))
}

/// A block of 64 bytes in the product's format.
fn block(change: impl FnOnce(&mut BlockHeader), tail: u64) -> [u8; 128] {
    let mut header = BlockHeader {
        payload_bytes: 64,
        frame_bytes: 64,
        room_bytes: 64,
        ..BlockHeader::default()
    };
    change(&mut header);
    let mut out = [0; 128];
    let trailer = catchment_transfer::header::encode_trailer(&header.to_words(), tail);
    out[64..].copy_from_slice(&trailer);
    out
}

fn sw_fair_of(form: Form) -> SwFair {
    SwFair::new(SHAPE, form)
}

#[test]
fn immediates_of_sw_fair_that_name_no_block() {
    for form in [Form::WriteImm, Form::Selective] {
        let (mut raw, mut receiver) = bad_sender(&sw_fair_of(form));
        raw.write_imm(0, &[], 4);
        assert_eq!(taking(&mut receiver), PeerFault::Immediate(4));
    }
    // In the form with counts also one that is not the next.
    let (mut raw, mut receiver) = bad_sender(&sw_fair_of(Form::WriteImm));
    raw.write_imm(0, &block(|_| {}, 0), 1);
    assert_eq!(taking(&mut receiver), PeerFault::Immediate(1));
}

#[test]
fn a_block_over_an_unreleased_one() {
    let (mut raw, mut receiver) = bad_sender(&sw_fair_of(Form::Selective));
    raw.write_imm(0, &block(|_| {}, 0), 0);
    raw.write_imm(0, &block(|_| {}, 0), 0);
    let overwritten = PeerFault::Overwritten(0);
    assert_eq!(taking(&mut receiver), overwritten);
    let (mut raw, mut receiver) = bad_sender(&sw_fair_of(Form::WriteImm));
    for n in 0..5 {
        raw.write_imm(128 * (n % 4), &block(|_| {}, 0), n as u32 % 4);
    }
    assert_eq!(taking(&mut receiver), overwritten);
    let (mut raw, mut receiver) = bad_sender(&sw_paper(4, 64));
    let format = ImmediateFormat::new(4);
    for n in 0..4 {
        let position = n % 4;
        let imm = format.encode(Immediate { position, bytes: 0 });
        raw.write_imm(128 * u64::from(position), &[0; 3], imm);
    }
    let mut wait = Patience::new(WaitPolicy::Yield);
    let kept: Vec<_> = (0..4).map(|_| take(&mut receiver, &mut wait)).collect();
    // There is no receive for a fifth before one of these comes back.
    assert!(receiver.take().unwrap().is_none());
    drop(kept);
}

#[test]
fn a_block_with_a_wrong_header() {
    let wrong = block(|header| header.room_bytes = 128, 1);
    for form in [Form::WriteImm, Form::Selective, Form::Tail] {
        let (mut raw, mut receiver) = bad_sender(&sw_fair_of(form));
        if form == Form::Tail {
            raw.write(0, &wrong);
        } else {
            raw.write_imm(0, &wrong, 0);
        }
        let PeerFault::Header { position, reason } = taking(&mut receiver) else {
            panic!("another fault")
        };
        assert_eq!(position, 0);
        assert!(matches!(reason, HeaderError::Room { limit: 64, .. }));
    }
}

#[test]
fn unexpected_messages() {
    let (mut raw, mut receiver) = bad_sender(&sw_fair_of(Form::WriteImm));
    raw.send(&[]);
    assert_eq!(taking(&mut receiver), PeerFault::Message(0));
    let (mut raw, mut receiver) = bad_sender(&sw_paper(4, 64));
    raw.send(&[]);
    assert_eq!(taking(&mut receiver), PeerFault::Message(0));
    let (mut sender, mut raw) = bad_receiver(&sw_paper(4, 64));
    raw.send(&[0; 3]);
    assert_eq!(sending(&mut sender), PeerFault::Message(3));
    let (mut sender, mut raw) = bad_receiver(&RENDEZVOUS);
    raw.send(&[0; 15]);
    assert_eq!(sending(&mut sender), PeerFault::Message(15));
    let (mut raw, mut receiver) = bad_sender(&RENDEZVOUS);
    raw.send(&[1; 16]);
    assert_eq!(taking(&mut receiver), PeerFault::Message(16));
}

#[test]
fn immediates_of_sw_paper_that_contradict_what_was_written() {
    let format = ImmediateFormat::new(4);
    let imm = |position, bytes| format.encode(Immediate { position, bytes });
    for (value, data) in [
        // Not the next position, another length than was written, longer than a block.
        (imm(1, 0), &[0u8; 3][..]),
        (imm(0, 5), &[0; 3]),
        (imm(0, 65), &[0; 68]),
        (imm(0, u32::MAX >> 2), &[]),
    ] {
        let (mut raw, mut receiver) = bad_sender(&sw_paper(4, 64));
        raw.write_imm(0, data, value);
        assert_eq!(taking(&mut receiver), PeerFault::Immediate(value));
    }
}

#[test]
fn credits_out_of_range() {
    let (mut sender, mut raw) = bad_receiver(&sw_fair_of(Form::WriteImm));
    raw.write(0, &5u64.to_le_bytes());
    assert_eq!(sending(&mut sender), PeerFault::Credit { count: 5, known: 0, sent: 4 });
    let (mut sender, mut raw) = bad_receiver(&sw_fair_of(Form::Selective));
    raw.write(0, &(1u64 << 4).to_le_bytes());
    assert_eq!(sending(&mut sender), PeerFault::Released(4));
}

#[test]
fn an_acknowledgement_of_another_block() {
    for position in [1, 4, u32::MAX] {
        let (mut sender, mut raw) = bad_receiver(&sw_paper(4, 64));
        raw.send(&position.to_be_bytes());
        assert_eq!(sending(&mut sender), PeerFault::Acknowledgement(position));
    }
}

/// Addresses before, behind and between the slots, another key, a slot announced twice.
#[test]
fn addresses_that_are_no_free_slot() {
    for (before, addr_of, key, bytes) in [
        (0, (-128i64), 0, 128),
        (0, 4 * 128, 0, 128),
        (0, 64, 0, 128),
        (0, 0, 1, 128),
        (0, 0, 0, 256),
        (1, 0, 0, 128),
    ] {
        let (mut sender, mut raw) = bad_receiver(&RENDEZVOUS);
        let slots = raw.port.offer().memory[0];
        let good = AddressNotice { addr: slots.addr, rkey: slots.rkey, bytes: 128 };
        (0..before).for_each(|_| raw.send(&good.encode()));
        let wrong = AddressNotice {
            addr: slots.addr.wrapping_add_signed(addr_of),
            rkey: slots.rkey + key,
            bytes,
        };
        raw.send(&wrong.encode());
        assert_eq!(fault(|| sender.progress()), PeerFault::Address(wrong.addr));
    }
}

/// A notice about an address outside the slots, or a slot that was not announced or is finished.
#[test]
fn completions_of_no_announced_slot() {
    for (offset, bytes, times) in [(0i64, 128, 2), (-128, 128, 1), (512, 128, 1), (0, 63, 1)] {
        let (mut raw, mut receiver) = bad_sender(&RENDEZVOUS);
        // Announces all slots.
        assert!(receiver.take().unwrap().is_none());
        let slots = raw.peer.memory[0];
        raw.write(0, &block(|_| {}, 0));
        let notice = CompletionNotice { addr: slots.addr.wrapping_add_signed(offset), bytes };
        (0..times).for_each(|_| raw.send(&notice.encode()));
        assert_eq!(taking(&mut receiver), PeerFault::Address(notice.addr));
    }
}

#[test]
fn a_stale_claim_is_not_sent() {
    let Ends { mut sender, mut receiver, .. } = pair(&sw_fair_of(Form::WriteImm));
    let old = sender.claim(0, 64).unwrap();
    let new = sender.claim(0, 32).unwrap();
    assert_eq!(sender.commit(old, 1), Err(EndError::StaleClaim));
    sender.commit(new, 2).unwrap();
    let block = take(&mut receiver, &mut Patience::new(WaitPolicy::Yield));
    assert_eq!((block.tag().packet, block.payload().bytes()), (2, 32));
    let last = sender.claim(0, 64).unwrap();
    let refused = sender.commit(last, u64::MAX);
    assert!(matches!(refused, Err(EndError::Packet(_))));
    assert!(matches!(sender.claim(0, 65), Err(ClaimError::Length { limit: 64, .. })));
}

/// Both ends must have the same sizes.
#[test]
fn an_offer_for_other_sizes_is_refused() {
    let needs = sw_fair(2, 64, Form::Tail).receiver_needs().unwrap();
    let tail = sw_fair_of(Form::Tail);
    let ([source, _collector], [_, back]) = connected(&tail.sender_needs().unwrap(), &needs);
    let text = tail.sender(source, &back).err().unwrap().to_string();
    assert!(text.contains("offers 256 bytes as the slots, 512 are needed"), "{text}");
}
