//! Small blocks, whose payload is in the line of their header.
use super::super::common::*;
use super::hostile::{Hostile, hostile};
use super::modes;
use catchment_probe::trace::{Kind, Trace};
use catchment_transfer::inline::INLINE_BYTES;
use catchment_transfer::*;

fn content(number: u64, bytes: u32) -> Vec<u8> {
    (0..u64::from(bytes)).map(|i| (7 * i + 3 * number) as u8).collect()
}

/// Every length about the limit, and all that keeps a small block from being inline.
#[test]
fn small_blocks_are_inline_if_nothing_keeps_them_from_it() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 3, 64);
        let mut number = 5u64;
        for bytes in 0..=64 {
            for case in 0..6 {
                number += 1;
                let payload = content(number, bytes);
                let stream = if case == 1 { 255 } else { 9 };
                // Claimed with more room than it takes, or not.
                let mut block = reserve(sender, stream, if case == 2 { 64 } else { bytes });
                block.write_at(0, &payload).unwrap();
                block.truncate(bytes);
                let mut meta = BlockMeta { flags: 0x4200, ..whole(number, bytes) };
                meta.capture_time_ns = u64::MAX - number;
                match case {
                    3 => meta.skipped = 2,
                    4 => meta.packet_number += 1 << 32,
                    _ => {}
                }
                block.commit(&meta, case == 5).unwrap();
                let block = bring(sender, receiver);
                let header = block.header();
                let fits = (1..=INLINE_BYTES).contains(&bytes) && case < 3;
                let stays = case == 2 && mode == Mode::InPlace;
                assert_eq!(header.is_inline(), fits && !stays, "{bytes} bytes, case {case}");
                assert!(block.payload().to_vec() == payload, "{bytes} bytes, case {case}");
                let seen = (header.stream, header.packet_number, header.frame_bytes);
                assert_eq!(seen, (stream, meta.packet_number, u64::from(bytes)));
                assert_eq!((header.skipped, header.flags & 0xff00), (meta.skipped, 0x4200));
                assert_eq!(header.capture_time_ns, meta.capture_time_ns);
                block.check_crc().unwrap();
            }
        }
        assert_eq!(receiver.stats().blocks, sender.stats().blocks);
        assert_eq!(receiver.stats().payload_bytes, sender.stats().payload_bytes);
    }
}

#[test]
fn inline_blocks_that_were_not_released_can_be_sent_again() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 4, 64);
        (1..=3).for_each(|number| send(sender, 0, number, &content(number, 33), false));
        let kept = receive(receiver);
        let retained = sender.unreleased();
        let numbers: Vec<u64> = retained.iter().map(|b| b.header().packet_number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        for block in &retained {
            let mut out = [0; 33];
            assert!(block.header().is_inline() && block.copy_out(&mut out));
            assert_eq!(out[..], content(block.header().packet_number, 33));
        }
        drop(kept);
    }
}

/// A block is one WRITE of one line.
#[test]
fn an_inline_block_is_one_write_of_a_line() {
    let layout = RingLayout::new(3, 128).unwrap();
    let (mut source, mut collector) = (side(64, 0, 16), side(1, 0, 1));
    connect(&mut source, &mut collector);
    let (receiver, remote) = ring(&collector.pd, layout);
    let (qp, trace) = Trace::of(source.qp, 1000);
    let source = Side { qp, ..source };
    let sender =
        make_sender(source, remote, Mode::Copy { send: 64, cq: 16 }, SenderOptions::default());
    let sender = sender.unwrap();
    for number in 0..20 {
        send(&sender, 0, number, &content(number, 40), false);
        let block = until("no block came", || {
            sender.progress().unwrap();
            receiver.poll().unwrap()
        });
        assert_eq!(block.payload().to_vec(), content(number, 40));
    }
    let posted = trace.first();
    let writes: Vec<_> = posted.iter().filter(|r| r.kind == Kind::Write).collect();
    assert_eq!(writes.len(), 20);
    assert!(writes.iter().all(|write| write.bytes == 64));
}

fn inline(bytes: u32) -> BlockHeader {
    let frame_bytes = u64::from(bytes);
    BlockHeader { payload_bytes: bytes, frame_bytes, packet_number: 1, ..BlockHeader::default() }
}

impl Hostile {
    /// An inline block that says it has so many bytes.
    fn put_inline(&self, slot: u32, bytes: u8) {
        let mut words = inline(1).to_words();
        words[6] = words[6] & !(0xff << 24) | u64::from(bytes) << 24;
        let commit = protocol::commit_word(EPOCH, slot, 1, &words);
        words[..5].fill(u64::MAX);
        let line = header::encode_trailer(&words, commit);
        self.ring.whole().write_at(self.layout.trailer_offset(slot), &line).unwrap();
    }
}

#[test]
fn an_inline_block_that_lies_about_its_length_is_the_peers_fault() {
    let hostile = hostile(ReceiverOptions::default());
    for (slot, bytes) in (0..3).zip([41, 0, 255]) {
        hostile.put_inline(slot, bytes);
        let error = hostile.receiver.poll().unwrap_err();
        let reason = HeaderError::InlineBytes(bytes.into());
        assert_eq!(error, PeerMisbehaved::Header { slot, generation: 1, reason });
    }
    hostile.put_inline(3, 40);
    let block = hostile.receiver.poll().unwrap().unwrap();
    assert_eq!(block.payload().to_vec(), [255; 40], "others go on");
}

/// Its commit word says nothing about its payload, so that it cannot do without a checksum either.
#[test]
fn where_the_checksum_decides_no_block_is_inline() {
    let hostile = hostile(ReceiverOptions { crc_decides: true });
    hostile.put(0, EPOCH, 1, &inline(8));
    let error = hostile.receiver.poll().unwrap_err();
    assert_eq!(error, PeerMisbehaved::NoCrc { slot: 0, generation: 1 });
}
