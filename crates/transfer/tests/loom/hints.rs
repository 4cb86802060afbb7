//! The order of a hint and of its commit word.
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
            if let Taken::Block { generation, .. } = slots.take(&*ring, EPOCH, 0, |_| true) {
                give_back(&slots, &ring, 0, generation);
            }
        })
    };
    let sent = sender.note_free(0, ring.load_free(0)) == ReleaseStatus::Released;
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
