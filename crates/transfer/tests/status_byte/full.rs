//! A full ring, and threads that wait for it: quotas, blocks that are kept, doorbells.
use super::super::common::*;
use super::{is_direct, modes, refresh_until_free};
use catchment_transfer::*;
use catchment_verbs::Wake;
use std::time::Duration;

#[test]
fn s1_17_a_kept_block_never_stops_the_others() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 4, 64);
        let mut kept = None;
        let mut sent_while_kept = 0;
        for number in 0..2_000 {
            commit(reserve(sender, 0, 64), number);
            let mut block = bring(sender, receiver);
            if number == 3 {
                block.hold();
                kept = Some(block);
            } else if let Some(kept) = &kept {
                assert_ne!(block.slot(), kept.slot());
                sent_while_kept += 1;
            }
        }
        assert!(sent_while_kept > 100, "{sent_while_kept}");
        drop(kept);
        refresh_until_free(sender, 4);
    }
}

#[test]
fn i12_a_stream_at_its_quota_leaves_room_for_others() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 4, 64);
        sender.set_quota(1, 2).unwrap();
        for number in 0..2 {
            commit(sender.reserve(1, 64).unwrap(), number);
        }
        assert_eq!(sender.reserve(1, 64).unwrap_err(), ReserveError::Quota { stream: 1, quota: 2 });
        commit(sender.reserve(2, 64).unwrap(), 0);
        assert_eq!(sender.stats().quota_refusals, 1);
        receive(receiver);
        drop(reserve(sender, 1, 64));
        assert_eq!(sender.outstanding(1).unwrap(), 1);
    }
}

#[test]
fn a_full_ring_refuses_and_rings_when_a_slot_is_free() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 2, 64);
        for number in 0..2 {
            commit(sender.reserve(0, 64).unwrap(), number);
        }
        let Some(watch) = sender.free_watch() else {
            assert!(!is_direct(), "a provider that maps memory has a doorbell");
            continue;
        };
        watch.arm();
        assert_eq!(sender.reserve(0, 64).unwrap_err(), ReserveError::WouldBlock);
        drop(receive(receiver));
        assert_eq!(watch.wait(Duration::from_secs(5)).unwrap(), Wake::Rung);
        assert!(sender.reserve(0, 64).is_ok());
        assert_eq!(sender.stats().would_blocks, 1);
    }
}

#[test]
fn a_commit_wakes_the_receiver() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 2, 64);
        let Some(watch) = receiver.watch() else {
            assert!(!crate::context().caps().doorbell, "the caps promise one");
            continue;
        };
        watch.arm();
        assert!(receiver.poll().unwrap().is_none());
        commit(sender.reserve(0, 64).unwrap(), 0);
        assert_eq!(watch.wait(Duration::from_secs(5)).unwrap(), Wake::Rung);
        drop(receive(receiver));
    }
}
