//! A source that breaks the protocol, and blocks that are not whole.
use super::super::common::*;
use catchment_transfer::header::FLAG_CRC;
use catchment_transfer::layout::SCANNED_BLOCKS;
use catchment_transfer::*;
use catchment_verbs::mem::Region;
use std::sync::Arc;

/// A ring that a hostile source writes to.
pub(super) struct Hostile {
    pub(super) receiver: Receiver,
    pub(super) ring: Arc<Region>,
    pub(super) layout: RingLayout,
}

pub(super) fn hostile(options: ReceiverOptions) -> Hostile {
    hostile_ring(4, options)
}

fn hostile_ring(blocks: u32, options: ReceiverOptions) -> Hostile {
    let layout = RingLayout::new(blocks, 256).unwrap();
    let collector = side(1, 0, 1);
    let mr = ring_mr(&collector.pd, layout.total_bytes());
    Hostile {
        ring: Arc::clone(mr.region()),
        receiver: Receiver::new(mr, layout, EPOCH, options).unwrap(),
        layout,
    }
}

impl Hostile {
    pub(super) fn put(&self, slot: u32, epoch: u64, generation: u64, header: &BlockHeader) {
        let words = header.to_words();
        let commit = protocol::commit_word(epoch, slot, generation, &words);
        let trailer = header::encode_trailer(&words, commit);
        self.ring.whole().write_at(self.layout.trailer_offset(slot), &trailer).unwrap();
    }

    pub(super) fn hint(&self, slot: usize, value: u8) {
        self.ring.whole().write_at(slot, &[value]).unwrap();
    }

    /// A block with these flags and a checksum is not taken before its payload is there.
    pub(super) fn demand_whole_payload(&self, flags: u16) {
        let crc32c = crc32c::crc32c(b"0123456789");
        self.put(0, EPOCH, 1, &BlockHeader { flags: FLAG_CRC | flags, crc32c, ..good() });
        self.hint(0, 1);
        assert!(self.receiver.poll().unwrap().is_none());
        let payload = self.layout.trailer_offset(0) - 64;
        self.ring.whole().write_at(payload, b"0123456789").unwrap();
        assert!(self.receiver.poll().unwrap().is_some());
    }
}

pub(super) fn good() -> BlockHeader {
    BlockHeader { payload_bytes: 10, frame_bytes: 10, room_bytes: 64, ..BlockHeader::default() }
}

#[test]
fn a_wrong_header_with_the_right_commit_word_is_the_peers_fault() {
    let hostile = hostile(ReceiverOptions::default());
    let wrong = BlockHeader { room_bytes: 1 << 20, ..good() };
    hostile.put(0, EPOCH, 1, &wrong);
    hostile.put(1, EPOCH, 1, &good());
    hostile.hint(1, 1);
    let error = hostile.receiver.poll().unwrap_err();
    assert!(matches!(
        error,
        PeerMisbehaved::Header { slot: 0, generation: 1, reason: HeaderError::Room { .. } }
    ));
    assert!(hostile.receiver.poll().unwrap().is_some(), "others go on");
}

#[test]
fn a_hint_without_a_block_and_a_block_without_a_hint() {
    let hostile = hostile_ring(SCANNED_BLOCKS + 1, ReceiverOptions::default());
    hostile.hint(2, 1);
    hostile.hint(3, 77);
    assert!(hostile.receiver.poll().unwrap().is_none());
    let stats = hostile.receiver.stats();
    assert_eq!((stats.hints_early, stats.hints_wrong), (1, 1));
    hostile.put(2, EPOCH, 1, &good());
    assert_eq!(hostile.receiver.poll().unwrap().unwrap().slot(), 2);
    hostile.put(1, EPOCH, 1, &good());
    assert!(hostile.receiver.poll().unwrap().is_none());
    assert_eq!(hostile.receiver.drain().unwrap().unwrap().slot(), 1);
    assert!(hostile.receiver.drain().unwrap().is_none());
}

/// In a ring of up to 64 slots, every block is found by its commit word, in whatever slot it is; a
/// byte of `full[]` says nothing.
#[test]
fn a_short_ring_needs_no_hints() {
    for blocks in [4, SCANNED_BLOCKS] {
        let hostile = hostile_ring(blocks, ReceiverOptions::default());
        hostile.hint(2, 1);
        hostile.hint(3, 77);
        assert!(hostile.receiver.poll().unwrap().is_none());
        for slot in [blocks - 1, 1, 0, 2] {
            hostile.put(slot, EPOCH, 1, &good());
            assert_eq!(hostile.receiver.poll().unwrap().unwrap().slot(), slot);
            assert!(hostile.receiver.poll().unwrap().is_none());
        }
        hostile.put(1, EPOCH, 2, &good());
        assert_eq!(hostile.receiver.poll().unwrap().unwrap().slot(), 1);
        let stats = hostile.receiver.stats();
        assert_eq!((stats.blocks, stats.hints_early, stats.hints_wrong), (5, 0, 0));
    }
}

#[test]
fn blocks_of_another_session_slot_or_generation_are_ignored() {
    let hostile = hostile(ReceiverOptions::default());
    hostile.put(0, EPOCH + 1, 1, &good());
    hostile.put(1, EPOCH, 2, &good());
    assert!(hostile.receiver.drain().unwrap().is_none());
    hostile.put(0, EPOCH, 1, &good());
    let offset = hostile.layout.trailer_offset(0);
    let mut trailer = [0; 64];
    hostile.ring.whole().read_at(offset, &mut trailer).unwrap();
    hostile.ring.whole().write_at(hostile.layout.trailer_offset(3), &trailer).unwrap();
    assert_eq!(hostile.receiver.drain().unwrap().unwrap().slot(), 0);
    assert!(hostile.receiver.drain().unwrap().is_none(), "not twice, not in slot 3");
}

/// I10: the device may place the bytes of one WRITE in any order.
#[test]
fn where_the_checksum_decides_a_torn_payload_is_not_taken() {
    let hostile = hostile(ReceiverOptions { crc_decides: true });
    hostile.demand_whole_payload(0);
    hostile.put(1, EPOCH, 1, &good());
    assert!(matches!(hostile.receiver.drain().unwrap_err(), PeerMisbehaved::NoCrc { slot: 1, .. }));
}

#[test]
fn a_changed_payload_does_not_match_its_checksum() {
    let hostile = hostile(ReceiverOptions::default());
    hostile.put(0, EPOCH, 1, &BlockHeader { flags: FLAG_CRC, crc32c: 1, ..good() });
    let block = hostile.receiver.poll().unwrap().unwrap();
    assert!(block.check_crc().is_err());
    assert!(block.copy_out(&mut [0; 10]).is_err());
}

#[test]
fn the_ring_can_be_used_again_once_all_blocks_are_back() {
    let hostile = hostile(ReceiverOptions::default());
    hostile.put(0, EPOCH, 1, &good());
    let block = hostile.receiver.poll().unwrap().unwrap();
    let receiver = hostile.receiver.into_mr().err().expect("a block is out");
    drop(block);
    let mr = receiver.into_mr().ok().expect("all are back");
    let again = Receiver::new(mr, hostile.layout, 9, ReceiverOptions::default()).unwrap();
    assert!(again.drain().unwrap().is_none());
}
