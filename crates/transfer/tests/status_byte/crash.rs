//! Connections that end: a collector that is killed, a wrong key.
use super::super::common::*;
use super::{is_direct, modes, remote};
use catchment_probe::child::{Child, hear, role, say};
use catchment_transfer::*;

/// Not a test by itself: the collector of the test below, in a process that gets killed. It takes
/// two blocks and releases one.
#[test]
fn collector_process() {
    if role().is_none() {
        return;
    }
    let layout = RingLayout::new(4, 128).unwrap();
    let [_, ours] = crate::two_devices();
    let mut collector = side_at(ours, [1, 0, 1]);
    let mr = ring_mr(&collector.pd, layout.total_bytes());
    let end = collector.qp.endpoint();
    say(&format!("ring {end} {} {}", mr.addr(), mr.rkey()));
    let receiver = Receiver::new(mr, layout, EPOCH, ReceiverOptions::default()).unwrap();
    collector.go_up(hear().parse().unwrap());
    say("connected");
    drop(receive(&receiver));
    let _kept = receive(&receiver);
    say("holding");
    loop {
        std::thread::park();
    }
}

/// A collector in another process, and a sender to its ring.
fn sender_to_child(mode: Mode) -> (Sender, Child) {
    let mut child = Child::start("status_byte::crash::collector_process", "");
    let line = child.says("ring ");
    let words: Vec<&str> = line.split(' ').collect();
    let [ours, _] = crate::two_devices();
    let mut source = side_at(ours, [64, 0, 16]);
    child.tell(&source.qp.endpoint().to_string());
    child.says("connected");
    source.go_up(words[0].parse().unwrap());
    let remote = RemoteRing {
        addr: words[1].parse().unwrap(),
        rkey: words[2].parse().unwrap(),
        layout: RingLayout::new(4, 128).unwrap(),
    };
    (make_sender(source, remote, mode, SenderOptions::default()).unwrap(), child)
}

/// Three blocks are sent. The collector releases the first, keeps the second, has not seen the
/// third, and is killed.
#[test]
fn what_was_not_released_is_sent_again_after_the_collector_was_killed() {
    for mode in modes() {
        let (sender, mut child) = sender_to_child(mode);
        for number in 0..2u64 {
            send(&sender, 0, number, &[number as u8; 64], true);
        }
        child.says("holding");
        until("the first block was not released", || {
            sender.refresh().unwrap();
            (sender.outstanding(0).unwrap() == 1).then_some(())
        });
        send(&sender, 0, 2, &[2; 64], true);
        sender.refresh().unwrap();
        let mut unfinished = sender.reserve(0, 64).unwrap();
        unfinished.write_at(0, b"half a frame").unwrap();
        child.kill();

        until("the death was not detected", || {
            // Over a network only an unanswered request shows it, once its retries are exhausted.
            let _ = sender.refresh();
            sender.check().err()
        });
        assert!(matches!(sender.reserve(0, 64), Err(ReserveError::Broken(_))));
        let error = unfinished.commit(&whole(3, 64), false).unwrap_err();
        assert!(matches!(error.reason, CommitFailure::Broken(_)));
        assert_eq!(&error.block.memory().to_vec()[..12], b"half a frame");

        let again = pair(mode, 4, 64);
        for old in sender.unreleased() {
            let header = old.header();
            let block = again.sender.reserve(0, header.payload_bytes).unwrap();
            block.memory().copy_from(0, old.payload()).unwrap();
            let meta = whole(header.packet_number, header.payload_bytes);
            block.commit(&meta, true).unwrap();
        }
        for number in 1..3 {
            let block = receive(&again.receiver);
            assert_eq!(block.header().packet_number, number, "{mode:?}");
            assert_eq!(block.payload().to_vec(), [number as u8; 64]);
        }
        assert!(again.receiver.poll().unwrap().is_none());
    }
}

#[test]
fn s1_1_a_wrong_key_is_an_error_and_writes_nothing() {
    let layout = RingLayout::new(3, 128).unwrap();
    for mode in modes() {
        let (mut source, mut collector) = (side(64, 0, 16), side(1, 0, 1));
        connect(&mut source, &mut collector);
        let mr = ring_mr(&collector.pd, layout.total_bytes());
        let wrong = RemoteRing { rkey: mr.rkey().wrapping_add(1), ..remote(&mr, layout) };
        match make_sender(source, wrong, mode, SenderOptions::default()) {
            Err(error) => assert!(matches!(error, SenderError::Remote(_)), "{error:?}"),
            // Where only the peer checks the key, the first request fails.
            Ok(sender) => {
                assert!(!is_direct());
                commit(sender.reserve(0, 64).unwrap(), 0);
                until("the wrong key was not detected", || sender.refresh().err());
            }
        }
        assert!(mr.region().whole().to_vec().iter().all(|byte| *byte == 0));
    }
}
