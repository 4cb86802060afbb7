//! Blocks that are longer than a message of the device may be.
use super::super::common::*;
use super::hostile::{good, hostile};
use catchment_probe::trace::{Kind, Trace};
use catchment_transfer::header::{FLAG_CRC, FLAG_SEGMENTED};
use catchment_transfer::*;
use std::sync::Arc;

/// Longest message; no multiple of a line.
const MESSAGE_BYTES: u64 = 1000;
/// Most bytes of a WRITE then.
const PIECE_BYTES: u32 = 960;
/// Payload of the long ones: 5 WRITEs with the trailer.
const LONG_BYTES: u32 = 4 * PIECE_BYTES + 5;

/// A copying sender whose messages are as short as that, over a send queue of this length and one
/// completion.
fn segmenting(max_send_wr: u32) -> (Result<Sender, SenderError>, Receiver, Arc<Trace>, Side) {
    let layout = RingLayout::new(3, RingLayout::block_bytes_for(LONG_BYTES).unwrap()).unwrap();
    let (mut source, mut collector) = (side(max_send_wr, 0, 1), side(1, 0, 1));
    connect(&mut source, &mut collector);
    let (receiver, remote) = ring(&collector.pd, layout);
    let limits =
        QueueLimits { max_send_wr, max_inline_bytes: 16, max_message_bytes: MESSAGE_BYTES };
    let (qp, trace) = Trace::of(source.qp, 1000);
    let memory = copy_memory(&source.pd, &layout);
    let options = SenderOptions::default();
    let sender = Sender::copying(qp, source.cq, limits, memory, remote, EPOCH, options);
    (sender, receiver, trace, collector)
}

/// Takes a block that may have to wait until the send queue has room.
fn receive_driving(sender: &Sender, receiver: &Receiver) -> ReceivedBlock {
    until("no block came", || {
        sender.progress().unwrap();
        receiver.poll().unwrap()
    })
}

/// With the shortest queue, which holds one long block, and a longer one; long and short blocks.
#[test]
fn long_blocks_go_in_several_writes_and_arrive_whole() {
    for max_send_wr in [6, 10, 64] {
        let (sender, receiver, trace, _collector) = segmenting(max_send_wr);
        let sender = sender.unwrap();
        for number in 0..60u64 {
            let bytes = [LONG_BYTES, 100, 200, PIECE_BYTES - 64, PIECE_BYTES - 63];
            let bytes = bytes[number as usize % bytes.len()];
            let payload: Vec<u8> = (0..bytes).map(|i| (u64::from(i) * 7 + number) as u8).collect();
            send(&sender, 0, number, &payload, false);
            let block = receive_driving(&sender, &receiver);
            assert_eq!(block.header().packet_number, number, "once, in order");
            assert!(block.payload().to_vec() == payload, "block {number}");
            let flags = if bytes > PIECE_BYTES - 64 { FLAG_CRC | FLAG_SEGMENTED } else { 0 };
            assert_eq!(block.header().flags, flags, "{bytes} bytes");
        }
        assert!(receiver.poll().unwrap().is_none());
        let posted = trace.first();
        assert!(posted.iter().all(|request| request.bytes <= MESSAGE_BYTES));
        let writes: Vec<_> = posted.iter().filter(|r| r.kind == Kind::Write).collect();
        let first: Vec<u64> = writes[..6].iter().map(|request| request.bytes).collect();
        assert_eq!(
            first,
            [960, 960, 960, 960, 128, 192],
            "then the next block, and no status byte"
        );
        assert!(writes[..4].iter().all(|request| !request.signaled), "at most the last one");
    }
}

#[test]
fn a_queue_that_cannot_hold_all_writes_of_a_block_is_refused() {
    let (sender, ..) = segmenting(5);
    let Err(error) = sender else {
        panic!("six requests in a queue of five");
    };
    assert_eq!(error.to_string(), "max_send_wr = 5 is too small, the mechanism needs 6");
}

/// Verbs do not promise that a WRITE has arrived when a later one has.
#[test]
fn a_cut_block_is_there_when_its_checksum_says_so() {
    let hostile = hostile(ReceiverOptions::default());
    hostile.demand_whole_payload(FLAG_SEGMENTED);
    hostile.put(1, EPOCH, 1, &BlockHeader { flags: FLAG_SEGMENTED, ..good() });
    let error = hostile.receiver.drain().unwrap_err();
    let PeerMisbehaved::Header { reason, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(reason, HeaderError::SegmentedWithoutCrc);
}
