//! Released slots are published: none stays noted while the receiver waits.
use super::*;

/// Two blocks, of these slots of a ring, are released by two threads, while the receiver's poll finds
/// nothing. Both must be published in the end.
fn releases_model(blocks: u32, given_back: [u32; 2], polls: bool) {
    let ring = Arc::new(Ring::new(blocks as usize));
    let slots = Arc::new(ReceiverSlots::new(blocks));
    let releases = Arc::new(Releases::new(blocks, false));
    for slot in given_back {
        ring.write_block(slot, 1, u64::from(slot) + 1);
        take(&slots, &ring, slot);
    }
    let [first, second] = given_back;
    let other = {
        let (ring, slots) = (Arc::clone(&ring), Arc::clone(&slots));
        let releases = Arc::clone(&releases);
        thread::spawn(move || {
            releases.give_back(Threads::Many, &*ring, &slots, (first, 1), 0);
        })
    };
    let poller = polls.then(|| {
        let (ring, slots) = (Arc::clone(&ring), Arc::clone(&slots));
        let releases = Arc::clone(&releases);
        thread::spawn(move || {
            releases.note_idle(Threads::Many, &*ring, &slots, 0);
        })
    });
    releases.give_back(Threads::Many, &*ring, &slots, (second, 1), 0);
    other.join().unwrap();
    if let Some(poller) = poller {
        poller.join().unwrap();
    }
    for slot in given_back {
        assert_eq!(ring.load_free(slot), released_byte(1), "the sender waits for ever");
    }
}

/// A receiver that found nothing withholds no slot, not even one released at that moment.
#[test]
fn an_idle_receiver_withholds_no_slot() {
    check(3, || releases_model(12, [0, 1], true));
}

/// Not even one of another line of `free[]`.
#[test]
fn an_idle_receiver_withholds_no_slot_of_any_line() {
    check(3, || releases_model(65, [63, 64], true));
}

#[test]
fn a_receiver_that_never_polls_can_withhold_slots() {
    must_fail(3, "the sender waits for ever", || {
        releases_model(12, [0, 1], false);
    });
}

/// A quarter of the ring is published without a poll, whichever thread releases the last of it.
#[test]
fn a_quarter_of_the_ring_is_published_at_once() {
    check(3, || releases_model(8, [0, 1], false));
}

/// One thread releases and polls alone, then another one comes: nothing that the first one noted by plain
/// stores stays behind, and it is seen to be idle. That it comes after all of them is what
/// `catchment_verbs::bias` promises, whose model is in its own crate.
fn alone_before_model(idle_before: bool) {
    let ring = Arc::new(Ring::new(12));
    let slots = Arc::new(ReceiverSlots::new(12));
    let releases = Arc::new(Releases::new(12, false));
    for slot in [0, 1] {
        ring.write_block(slot, 1, u64::from(slot) + 1);
        take(&slots, &ring, slot);
    }
    releases.give_back(Threads::One, &*ring, &slots, (0, 1), 0);
    if idle_before {
        releases.note_idle(Threads::One, &*ring, &slots, 0);
        assert_eq!(ring.load_free(0), released_byte(1));
    }
    let other = {
        let (ring, slots) = (Arc::clone(&ring), Arc::clone(&slots));
        let releases = Arc::clone(&releases);
        thread::spawn(move || {
            releases.give_back(Threads::Many, &*ring, &slots, (1, 1), 0);
        })
    };
    releases.note_idle(Threads::Many, &*ring, &slots, 0);
    other.join().unwrap();
    for slot in [0, 1] {
        assert_eq!(ring.load_free(slot), released_byte(1), "the sender waits for ever");
    }
}

#[test]
fn a_receiver_that_was_alone_withholds_no_slot() {
    check(3, || alone_before_model(false));
    check(3, || alone_before_model(true));
}
