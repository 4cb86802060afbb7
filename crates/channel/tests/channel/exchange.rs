//! Messages in one direction, and in both at once.
use super::driver::{self, Patience};
use super::{modes, pair, shape};
use catchment_channel::{Channel, ChannelShape, ClaimError, Mode};
use catchment_probe::load::{content, scaled};
use catchment_transfer::WaitPolicy;
use catchment_verbs::Wake;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Sends `count` messages of random lengths from one thread and checks them on another.
fn one_way(shape: ChannelShape, count: u64) {
    let [mut sender, mut receiver] = pair(shape);
    let most = shape.payload_bytes as usize;
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut wait, mut payload) = (Patience::new(WaitPolicy::Yield), vec![0; most]);
            for packet in 0..count {
                let bytes = content(3, packet, &mut payload);
                driver::send(&mut sender, 3, packet, &payload[..bytes], &mut wait);
            }
            while taken.load(Ordering::Relaxed) < count {
                sender.progress().unwrap();
                std::thread::yield_now();
            }
            assert_eq!(sender.sent().blocks, count);
        });
        let mut wait = Patience::new(WaitPolicy::Yield);
        let (mut wanted, mut seen) = (vec![0; most], vec![0; most]);
        for packet in 0..count {
            let block = driver::take(&mut receiver, &mut wait);
            let bytes = content(3, packet, &mut wanted);
            assert_eq!((block.tag().stream, block.tag().packet), (3, packet));
            assert_eq!(block.payload().bytes(), bytes, "message {packet}");
            block.payload().read_at(0, &mut seen[..bytes]).unwrap();
            assert!(seen[..bytes] == wanted[..bytes], "message {packet}");
            drop(block);
            taken.fetch_add(1, Ordering::Relaxed);
        }
        assert!(receiver.take().unwrap().is_none());
        assert_eq!(receiver.taken().blocks, count);
    });
}

#[test]
fn messages_of_random_lengths_one_way() {
    for (blocks, count) in [(32, scaled(20_000)), (1, 500), (2, 500), (3, 500), (600, 3_000)] {
        one_way(shape(blocks, 3000), count);
    }
    for mode in modes().into_iter().filter(|mode| *mode != Mode::WriteImm) {
        for (blocks, count) in [(32, scaled(5_000)), (1, 200), (2, 200), (600, 1_500)] {
            one_way(shape(blocks, 3000).with_mode(mode), count);
        }
    }
}

/// Sends a message if a slot is free and takes what arrived; returns how many, all in order.
fn exchange([sender, receiver]: &mut [Channel; 2], sent: &mut u64, came: &mut u64) -> u64 {
    let before = *came;
    if let Ok(claim) = sender.claim(0, 64) {
        sender.commit(claim, *sent).unwrap();
        *sent += 1;
    }
    sender.progress().unwrap();
    while let Some(block) = receiver.take().unwrap() {
        assert_eq!(block.tag().packet, *came, "once, in order");
        *came += 1;
    }
    std::thread::yield_now();
    *came - before
}

#[test]
fn a_kept_message_stops_the_sender_when_all_others_are_used() {
    modes().into_iter().for_each(keep_a_message);
}

fn keep_a_message(mode: Mode) {
    let mut ends = pair(shape(4, 64).with_mode(mode));
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut ends[0], 0, 0, &[7; 64], &mut wait);
    let kept = driver::take(&mut ends[1], &mut wait);
    assert_eq!(kept.tag().packet, 0);
    let (mut sent, mut came) = (1, 1);
    while came < 4 {
        match exchange(&mut ends, &mut sent, &mut came) {
            0 => assert!(wait.wait(Some(ends[1].watch()), || None::<()>).is_none()),
            _ => wait.found(),
        }
    }
    for _ in 0..1_000 {
        assert_eq!(exchange(&mut ends, &mut sent, &mut came), 0, "all are used");
    }
    drop(kept);
    while came < 504 {
        match exchange(&mut ends, &mut sent, &mut came) {
            0 => assert!(wait.wait(Some(ends[1].watch()), || None::<()>).is_none()),
            _ => wait.found(),
        }
    }
}

#[test]
fn a_slow_receiver_stops_the_sender() {
    modes().into_iter().for_each(receive_slowly);
}

fn receive_slowly(mode: Mode) {
    let [mut sender, mut receiver] = pair(shape(3, 64).with_mode(mode));
    let mut wait = Patience::new(WaitPolicy::Yield);
    for first in [0, 3, 6] {
        for packet in first..first + 3 {
            driver::send(&mut sender, 0, packet, &[1; 64], &mut wait);
        }
        for _ in 0..100 {
            sender.progress().unwrap();
            assert!(matches!(sender.claim(0, 64), Err(ClaimError::WouldBlock)));
        }
        for packet in first..first + 3 {
            assert_eq!(driver::take(&mut receiver, &mut wait).tag().packet, packet);
        }
        // The next poll announces what was released.
        assert!(receiver.take().unwrap().is_none());
    }
}

/// Releasing a message on another thread wakes the one that announces it to the peer.
#[test]
fn a_sleeping_receiver_announces_what_another_thread_releases() {
    let [mut sender, mut receiver] = pair(shape(1, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut sender, 0, 0, &[1; 64], &mut wait);
    let block = driver::take(&mut receiver, &mut wait);
    let watch = receiver.watch();
    watch.arm();
    assert!(receiver.take().unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(move || drop(block));
        let long = Duration::from_secs(60);
        assert_eq!(watch.wait(long).unwrap(), Wake::Rung);
    });
    assert!(receiver.take().unwrap().is_none());
    driver::send(&mut sender, 0, 1, &[1; 64], &mut wait);
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
                    channel.memory(&claim).write_at(0, &payload[..bytes]).unwrap();
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
            if channel.rest().unwrap() {
                // What came while the watch was being armed is seen by the next round.
                let look = |channel: &mut Channel| channel.progress().err().map(|e| panic!("{e}"));
                wait.wait(Some(channel.watch()), || look(channel));
            }
        }
    }
}

fn both_ways(shape: ChannelShape, count: u64, policy: WaitPolicy) {
    let [mut a, mut b] = pair(shape);
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| talk(&mut a, 0, count, policy, &done));
        talk(&mut b, 1, count, policy, &done);
    });
    for channel in [&a, &b] {
        let (sent, taken) = (channel.sent(), channel.taken());
        assert_eq!((sent.blocks, taken.blocks), (count, count));
    }
}

#[test]
fn s3_13_both_directions_at_once() {
    both_ways(shape(16, 2000), scaled(20_000), WaitPolicy::Yield);
    for blocks in [1, 2, 3] {
        for mode in modes() {
            both_ways(shape(blocks, 2000).with_mode(mode), scaled(1_000), WaitPolicy::Yield);
        }
    }
}

#[test]
fn s3_12_both_directions_by_events() {
    for mode in modes() {
        let policy = WaitPolicy::Doorbell { spin_polls: 2 };
        both_ways(shape(4, 2000).with_mode(mode), scaled(2_000), policy);
    }
}

/// Answers carry the credit: a conversation has one interaction a message.
#[test]
fn a_conversation_needs_no_messages_beside_its_own() {
    let [mut a, mut b] = pair(shape(16, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    for packet in 0..500 {
        driver::send(&mut a, 0, packet, b"question", &mut wait);
        drop(driver::take(&mut b, &mut wait));
        driver::send(&mut b, 1, packet, b"answer", &mut wait);
        drop(driver::take(&mut a, &mut wait));
    }
    // An empty poll posts a notice if one is owed: there are some, but not one for every message.
    for channel in [&a, &b] {
        assert_eq!(channel.sent().interactions, 500);
    }
    assert!(b.taken().interactions <= 500);
}
