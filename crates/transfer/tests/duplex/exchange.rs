//! Messages, one way and both ways at once.
use super::{pair, shape, sizes};
use crate::{
    common::{Random, scaled},
    ends::{self, Ends, Patience},
};
use catchment_transfer::{
    WaitPolicy,
    duplex::{Channel, DuplexShape},
    mechanism::{ClaimError, ReceiveEnd, SendEnd, TakenBlock},
};
use catchment_verbs::Wake;
use std::sync::atomic::{AtomicU32, Ordering};

fn one_way(shape: DuplexShape) -> Ends<Channel, Channel> {
    let [sender, receiver] = pair(shape);
    Ends {
        sender,
        receiver,
        shape: sizes(shape),
        features: Channel::features(),
        most_on_their_way: shape.blocks.into(),
    }
}

#[test]
fn messages_of_random_lengths_one_way() {
    for (blocks, count) in [
        (32, scaled(20_000)),
        (1, 500),
        (2, 500),
        (3, 500),
        (600, 3_000),
    ] {
        let ends = one_way(shape(blocks, 3000));
        ends::random_blocks(ends, count, WaitPolicy::Yield, false);
    }
}

#[test]
fn a_kept_message_stops_the_sender_when_all_others_are_used() {
    ends::kept_block(one_way(shape(4, 64)));
}

#[test]
fn a_slow_receiver_stops_the_sender() {
    let [mut sender, mut receiver] = pair(shape(3, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    for first in [0, 3, 6] {
        for packet in first..first + 3 {
            ends::send(&mut sender, 0, packet, &[1; 64], &mut wait);
        }
        for _ in 0..100 {
            sender.progress().unwrap();
            let refused = sender.claim(0, 64);
            assert!(matches!(refused, Err(ClaimError::WouldBlock)));
        }
        for packet in first..first + 3 {
            assert_eq!(ends::take(&mut receiver, &mut wait).tag().packet, packet);
        }
        // The sender learns what came back by the next look.
        assert!(receiver.take().unwrap().is_none());
    }
}

/// A message that another thread gives back wakes the one that tells the peer.
#[test]
fn a_sleeping_receiver_tells_what_another_thread_gives_back() {
    let [mut sender, mut receiver] = pair(shape(1, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    ends::send(&mut sender, 0, 0, &[1; 64], &mut wait);
    let block = ends::take(&mut receiver, &mut wait);
    let watch = ReceiveEnd::watch(&receiver).unwrap();
    watch.arm();
    assert!(receiver.take().unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(move || drop(block));
        let long = std::time::Duration::from_secs(60);
        assert_eq!(watch.wait(long).unwrap(), Wake::Rung);
    });
    assert!(receiver.take().unwrap().is_none());
    ends::send(&mut sender, 0, 1, &[1; 64], &mut wait);
}

/// Bytes of message number `packet` of one side.
fn content(side: u32, packet: u64, payload: &mut [u8]) -> usize {
    let mut random = Random(packet.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(side) << 32 | 1);
    let bytes = random.below(payload.len() as u64 + 1) as usize;
    random.fill(&mut payload[..bytes]);
    bytes
}

/// Sends `count` messages and takes as many, at once; goes on until both sides have all.
fn talk(channel: &mut Channel, side: u32, count: u64, policy: WaitPolicy, done: &AtomicU32) {
    let (mut payload, mut seen) = (vec![0; 2000], vec![0; 2000]);
    let (mut sent, mut taken) = (0, 0);
    let mut wait = Patience::new(policy);
    while done.load(Ordering::SeqCst) < 2 {
        let mut moved = false;
        if sent < count {
            let bytes = content(side, sent, &mut payload);
            match channel.claim(side, bytes as u32) {
                Ok(claim) => {
                    let memory = channel.memory(&claim);
                    memory.write_at(0, &payload[..bytes]).unwrap();
                    channel.commit(claim, sent).unwrap();
                    sent += 1;
                    moved = true;
                }
                Err(ClaimError::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if let Some(block) = channel.take().unwrap() {
            let bytes = content(1 - side, taken, &mut payload);
            assert_eq!((block.tag().stream, block.tag().packet), (1 - side, taken));
            assert_eq!(block.payload().bytes(), bytes);
            block.payload().read_at(0, &mut seen[..bytes]).unwrap();
            assert!(seen[..bytes] == payload[..bytes], "message {taken}");
            taken += 1;
            moved = true;
        }
        if moved {
            wait.found();
            if sent == count && taken == count {
                done.fetch_add(1, Ordering::SeqCst);
            }
        } else {
            channel.progress().unwrap();
            // What came while the watch was being armed is seen by the next round.
            let watch = ReceiveEnd::watch(channel);
            wait.wait(watch, || channel.progress().err().map(|e| panic!("{e}")));
        }
    }
}

fn both_ways(shape: DuplexShape, count: u64, policy: WaitPolicy) {
    let [mut a, mut b] = pair(shape);
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| talk(&mut a, 0, count, policy, &done));
        talk(&mut b, 1, count, policy, &done);
    });
    for channel in [&a, &b] {
        let (sent, taken) = (SendEnd::counts(channel), ReceiveEnd::counts(channel));
        assert_eq!((sent.blocks, taken.blocks), (count, count));
    }
}

#[test]
fn s3_13_both_directions_at_once() {
    both_ways(shape(16, 2000), scaled(20_000), WaitPolicy::Yield);
    for blocks in [1, 2, 3] {
        both_ways(shape(blocks, 2000), scaled(1_000), WaitPolicy::Yield);
    }
}

#[test]
fn s3_12_both_directions_by_events() {
    both_ways(
        shape(4, 2000),
        scaled(2_000),
        WaitPolicy::Doorbell { spin_polls: 2 },
    );
}

/// Answers carry the credit: a conversation has one interaction a message.
#[test]
fn a_conversation_needs_no_messages_beside_its_own() {
    let [mut a, mut b] = pair(shape(16, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    for packet in 0..500 {
        ends::send(&mut a, 0, packet, b"question", &mut wait);
        drop(ends::take(&mut b, &mut wait));
        ends::send(&mut b, 1, packet, b"answer", &mut wait);
        drop(ends::take(&mut a, &mut wait));
    }
    // An empty look tells alone what is owed: there are some, but not one for every message.
    for channel in [&a, &b] {
        assert_eq!(SendEnd::counts(channel).interactions, 500);
    }
    assert!(ReceiveEnd::counts(&b).interactions <= 500);
}
