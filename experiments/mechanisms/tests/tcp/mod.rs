//! The baseline over byte streams.
use crate::mechanism::ends;
use crate::mechanism::ends::{Ends, Patience, send, take, take_driving};
use catchment_channel::{EndError, PeerFault};
use catchment_mechanisms::tcp::*;
use catchment_mechanisms::{ReceiveEnd, SendEnd, Shape, TakenBlock};
use catchment_probe::load::scaled;
use catchment_transfer::{HeaderError, WaitPolicy};
use catchment_verbs::Wake;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

type StreamEnds = Ends<StreamSender, StreamReceiver>;

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (out, listener.accept().unwrap().0)
}

fn both(blocks: u32, payload_bytes: u32) -> [StreamEnds; 2] {
    let shape = Shape { blocks, payload_bytes };
    let (out, back) = tcp();
    let tcp = (Socket::tcp(out).unwrap(), Socket::tcp(back).unwrap());
    let (out, back) = UnixStream::pair().unwrap();
    let unix = (Socket::unix(out).unwrap(), Socket::unix(back).unwrap());
    [tcp, unix].map(|(out, back)| Ends {
        sender: StreamSender::new(out, shape).unwrap(),
        receiver: StreamReceiver::new(back, shape).unwrap(),
        shape,
        features: features(),
        // The kernel keeps more, as many as it likes.
        most_on_their_way: u64::MAX,
    })
}

#[test]
fn s3_15_streams_move_random_blocks() {
    for pair in both(32, 3000) {
        ends::random_blocks(pair, scaled(100_000), WaitPolicy::Yield, false);
    }
}

#[test]
fn streams_wait_by_every_policy() {
    let policies = [
        WaitPolicy::Spin,
        WaitPolicy::Sleep(Duration::from_micros(20)),
        WaitPolicy::Doorbell { spin_polls: 4 },
    ];
    for policy in policies {
        for pair in both(3, 5000) {
            ends::random_blocks(pair, 300, policy, false);
        }
    }
}

#[test]
fn blocks_come_back_in_any_order() {
    for pair in both(16, 64) {
        ends::any_order(pair, scaled(20_000));
    }
    for pair in both(4, 64) {
        ends::kept_block(pair);
    }
}

#[test]
fn a_slow_receiver_stops_the_sender() {
    // Large enough to fill what the kernel keeps.
    for pair in both(3, 1 << 20) {
        ends::slow_receiver(pair);
    }
}

#[test]
fn one_block_after_the_other_of_every_length() {
    for bytes in [8, 64, 4096, 921_600] {
        for mut pair in both(2, bytes) {
            ends::lockstep(&mut pair, 0..20);
        }
    }
}

#[test]
fn checksums_are_checked_by_the_receiver() {
    for mut pair in both(4, 3000) {
        pair.sender = pair.sender.with_checksums();
        ends::random_blocks(pair, 2000, WaitPolicy::Yield, false);
    }
    let (sender, mut back) = sender(2, 100);
    let mut wait = Patience::new(WaitPolicy::Yield);
    send(&mut sender.with_checksums(), 0, 0, b"123456789", &mut wait);
    let mut bytes = Vec::new();
    back.read_to_end(&mut bytes).unwrap();
    bytes[60] ^= 1;
    let (mut out, mut receiver) = receiver(2, 100);
    out.write_all(&bytes).unwrap();
    let error = failure(&mut receiver);
    let EndError::Peer(PeerFault::Checksum { announced, computed, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!(announced, 0xe306_9283);
    assert_ne!(computed, announced);
}

/// The other side answers only a whole block, of which the kernel takes a part at a time: the thread
/// that waits for the answer must wake to send the rest.
#[test]
fn waiting_for_an_answer_ends_when_there_is_room_for_the_rest_of_the_question() {
    let shape = Shape { blocks: 1, payload_bytes: 1 << 20 };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let ours = Socket::unix(ours).unwrap();
    let mut sender = StreamSender::new(ours.try_clone().unwrap(), shape).unwrap();
    let mut answers = StreamReceiver::new(ours, shape).unwrap();
    let mut questions = StreamReceiver::new(Socket::unix(theirs).unwrap(), shape).unwrap();
    let claim = sender.claim(0, shape.payload_bytes).unwrap();
    sender.commit(claim, 0).unwrap();
    let watch = answers.watch().unwrap();
    while questions.take().unwrap().is_none() {
        assert!(answers.take().unwrap().is_none());
        assert_eq!(watch.wait(Duration::from_secs(60)).unwrap(), Wake::Rung);
        sender.progress().unwrap();
    }
}

/// Blocks that wait while the kernel takes no more go out whole and in order, however much of them the
/// kernel takes at a time.
#[test]
fn blocks_that_wait_go_out_together() {
    for mut pair in both(64, 200_000) {
        let mut wait = Patience::new(WaitPolicy::Yield);
        let mut sent = 0;
        // Until the kernel and the blocks here are full.
        while let Ok(claim) = pair.sender.claim(0, 200_000 - sent as u32) {
            pair.sender.memory(&claim).write_at(0, &[sent as u8; 1000]).unwrap();
            pair.sender.commit(claim, sent).unwrap();
            sent += 1;
        }
        assert!(sent > 64);
        for packet in 0..sent {
            let block = take_driving(&mut pair.sender, &mut pair.receiver, &mut wait);
            assert_eq!(block.tag().packet, packet);
            assert_eq!(block.payload().bytes(), 200_000 - packet as usize);
            assert_eq!(block.payload().subslice(0, 1000).unwrap().to_vec(), [packet as u8; 1000]);
        }
    }
}

/// The framing, byte by byte.
#[test]
fn golden_bytes_on_the_wire() {
    let (mut sender, mut back) = sender(3, 100);
    let mut wait = Patience::new(WaitPolicy::Yield);
    send(&mut sender, 7, 9, b"hello", &mut wait);
    let mut bytes = [0; 61];
    back.read_exact(&mut bytes).unwrap();
    let mut wanted = [0; 61];
    wanted[0] = 7;
    wanted[4] = 5;
    wanted[8] = 9;
    wanted[16] = 5;
    wanted[50] = 1;
    wanted[52] = 64;
    wanted[56..].copy_from_slice(b"hello");
    assert_eq!(bytes, wanted);
}

fn sender(blocks: u32, payload_bytes: u32) -> (StreamSender, TcpStream) {
    let (out, back) = tcp();
    (StreamSender::new(Socket::tcp(out).unwrap(), Shape { blocks, payload_bytes }).unwrap(), back)
}

fn receiver(blocks: u32, payload_bytes: u32) -> (TcpStream, StreamReceiver) {
    let (out, back) = tcp();
    (out, StreamReceiver::new(Socket::tcp(back).unwrap(), Shape { blocks, payload_bytes }).unwrap())
}

/// The bytes of these blocks, as a sender writes them.
fn wire(lengths: &[usize]) -> Vec<u8> {
    let most = lengths.iter().max().unwrap();
    let (mut sender, mut back) = sender(lengths.len() as u32, *most as u32);
    let mut wait = Patience::new(WaitPolicy::Yield);
    for (packet, length) in (0..).zip(lengths) {
        send(&mut sender, 0, packet, &vec![packet as u8; *length], &mut wait);
    }
    drop(sender);
    let mut bytes = Vec::new();
    back.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A stream has no boundaries: a block may arrive in pieces, and a read may return parts of several.
#[test]
fn blocks_may_come_in_any_pieces() {
    let lengths = [100, 0, 1, 2000, 3, 500, 500, 10, 2000];
    let bytes = wire(&lengths);
    for piece in [1, 7, 55, 56, 57, 600, bytes.len()] {
        let (mut out, mut receiver) = receiver(3, 2000);
        out.set_nodelay(true).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for piece in bytes.chunks(piece) {
                    out.write_all(piece).unwrap();
                }
            });
            let mut wait = Patience::new(WaitPolicy::Yield);
            for (packet, length) in (0..).zip(lengths) {
                let block = take(&mut receiver, &mut wait);
                assert_eq!(block.tag().packet, packet);
                assert_eq!(block.payload().to_vec(), vec![packet as u8; length]);
            }
        });
    }
}

fn failure(receiver: &mut StreamReceiver) -> EndError {
    ends::failure(|| receiver.take().map(drop))
}

#[test]
fn violations_of_the_framing_are_the_peers_fault() {
    let good = wire(&[100]);
    let mut wrong_version = good.clone();
    wrong_version[50] = 2;
    let mut too_long = good.clone();
    too_long[4] = 200;
    for (bytes, wanted) in [
        (wrong_version, HeaderError::Version(2)),
        (too_long, HeaderError::Room { payload_bytes: 200, room_bytes: 128, limit: 128 }),
    ] {
        let (mut out, mut receiver) = receiver(3, 100);
        out.write_all(&bytes).unwrap();
        let fault = PeerFault::Header { position: 0, reason: wanted };
        assert_eq!(failure(&mut receiver), EndError::Peer(fault));
        assert_eq!(failure(&mut receiver), EndError::Peer(fault), "it stays so");
    }
    // It fits the memory, but not the agreed shape.
    let (mut out, mut receiver) = receiver(3, 70);
    out.write_all(&good).unwrap();
    assert_eq!(failure(&mut receiver), EndError::Peer(PeerFault::Message(100)));
}

#[test]
fn a_peer_that_is_gone_is_noticed_at_both_ends() {
    for Ends { mut sender, mut receiver, .. } in both(3, 64) {
        let mut wait = Patience::new(WaitPolicy::Yield);
        send(&mut sender, 0, 0, b"last", &mut wait);
        drop(sender);
        assert_eq!(take(&mut receiver, &mut wait).payload().to_vec(), b"last");
        assert_eq!(failure(&mut receiver), EndError::PeerGone);
    }
    // In the middle of a block.
    let (mut out, mut receiver) = receiver(3, 100);
    out.write_all(&wire(&[100])[..80]).unwrap();
    drop(out);
    assert_eq!(failure(&mut receiver), EndError::PeerGone);
    for Ends { mut sender, receiver, .. } in both(3, 1000) {
        drop(receiver);
        let mut packet = 0;
        let error = ends::failure(|| ends::send_if_free(&mut sender, 1000, &mut packet));
        assert_eq!(error, EndError::PeerGone);
    }
}
