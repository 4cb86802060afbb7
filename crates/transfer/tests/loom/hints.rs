//! The order of a hint and of its commit word, and blocks without hints.
use super::*;

/// Two threads send through one slot. The second one's hint must be what remains: otherwise its block
/// would not be found.
fn two_senders_model(hint_first: bool) {
    let ring = Arc::new(Ring::new(1));
    let sender = Arc::new(SenderSlots::new(1));
    sender.launch(0, 1);
    let first = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            let header = words(1);
            if hint_first {
                publish(&*ring, EPOCH, 0, 1, &header);
            } else {
                ring.write_header(0, &header);
                ring.store_commit(0, commit_word(EPOCH, 0, 1, &header));
                ring.store_full(0, full_byte(1));
            }
        })
    };
    let receiver = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            let slots = ReceiverSlots::new(1);
            if let Taken::Block { generation, .. } =
                slots.take(Threads::Many, &*ring, EPOCH, 0, |_| true)
            {
                give_back(&slots, &ring, 0, generation);
            }
        })
    };
    let sent = sender.note_free(Threads::Many, 0, ring.load_free(0)) == ReleaseStatus::Released;
    if sent {
        sender.launch(0, 2);
        publish(&*ring, EPOCH, 0, 2, &words(2));
    }
    first.join().unwrap();
    receiver.join().unwrap();
    let hint = full_byte(if sent { 2 } else { 1 });
    assert_eq!(ring.load_full(0), hint, "a late hint hides a block");
}

#[test]
fn a_hint_before_its_commit_word_never_hides_the_next_block() {
    check(3, || two_senders_model(true));
}

#[test]
fn a_hint_after_its_commit_word_can_hide_the_next_block() {
    must_fail(3, "a late hint hides a block", || two_senders_model(false));
}

/// A ring without hints: two threads fill blocks for two slots and commit them in any order. A receiver
/// that looks at every commit word takes both, each once and whole.
#[test]
fn without_hints_every_block_is_found_by_its_commit_word() {
    check(3, || {
        let ring = Arc::new(Ring::new(2));
        let fill = |slot: u32| {
            let ring = Arc::clone(&ring);
            move || {
                let number = u64::from(slot) + 1;
                ring.slot(slot).payload.store(number, Ordering::Relaxed);
                seal(&*ring, EPOCH, slot, 1, &words(number));
            }
        };
        let other = thread::spawn(fill(1));
        let ours = thread::spawn(fill(0));
        let (slots, mut seen) = (ReceiverSlots::new(2), 0u64);
        let mut look = || {
            for slot in [0, 1] {
                if let Taken::Block { generation, header, .. } =
                    slots.take(Threads::Many, &*ring, EPOCH, slot, |_| true)
                {
                    assert_eq!(ring.payload(slot), header[0], "torn");
                    seen += header[0];
                    give_back(&slots, &ring, slot, generation);
                }
            }
        };
        look();
        other.join().unwrap();
        ours.join().unwrap();
        look();
        assert_eq!(seen, 3, "lost or duplicated");
        assert_eq!([0, 1].map(|slot| ring.load_full(slot)), [0, 0]);
    });
}
