//! Inline blocks: the payload is filled in the line of the header and the commit word, where the block
//! before had its header.
use super::*;
use catchment_transfer::BlockHeader;

/// One slot: the words of its last line that are not always 0, and the line before.
struct Line {
    before: AtomicU64,
    first: AtomicU64,
    time: AtomicU64,
    last: AtomicU64,
    commit: AtomicU64,
    free: AtomicU8,
}

impl Line {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let [before, first, time, last, commit] = [zero(), zero(), zero(), zero(), zero()];
        Self { before, first, time, last, commit, free: AtomicU8::new(0) }
    }
}

/// The header of a block of eight bytes whose number is also its time.
fn header(number: u64, inline: bool) -> [u64; 7] {
    let header = BlockHeader {
        payload_bytes: 8,
        packet_number: number,
        frame_bytes: 8,
        capture_time_ns: number,
        room_bytes: if inline { 0 } else { 64 },
        ..BlockHeader::default()
    };
    assert_eq!(header.is_inline(), inline);
    header.to_words()
}

fn is_inline(words: &[u64; 7]) -> bool {
    words[6] == header(words[5], true)[6]
}

impl SlotMemory for Line {
    fn load_full(&self, _: u32) -> u8 {
        0
    }
    fn store_full(&self, _: u32, _: u8) {}
    fn load_free(&self, _: u32) -> u8 {
        self.free.load(Ordering::Acquire)
    }
    fn store_free(&self, _: u32, value: u8) {
        self.free.store(value, Ordering::Release);
    }
    fn load_commit(&self, _: u32) -> u64 {
        self.commit.load(Ordering::Acquire)
    }
    fn store_commit(&self, _: u32, word: u64) {
        self.commit.store(word, Ordering::Release);
    }
    fn read_header(&self, _: u32) -> [u64; 7] {
        let [first, time, last] =
            [&self.first, &self.time, &self.last].map(|word| word.load(Ordering::Relaxed));
        // Those between follow from the others, in a block that is whole.
        let [_, w1, w2, w3, w4, ..] =
            if is_inline(&[0, 0, 0, 0, 0, time, last]) { [first; 7] } else { header(time, false) };
        [first, w1, w2, w3, w4, time, last]
    }
    fn write_header(&self, _: u32, words: &[u64; 7]) {
        if !is_inline(words) {
            self.first.store(words[0], Ordering::Relaxed);
        }
        self.time.store(words[5], Ordering::Relaxed);
        self.last.store(words[6], Ordering::Relaxed);
    }
}

/// Blocks of both formats through one slot, and whether the payload is there before it is announced.
fn inline_model(formats: &'static [bool], payload_first: bool) {
    let line = Arc::new(Line::new());
    let receiver = {
        let line = Arc::clone(&line);
        thread::spawn(move || {
            let (slots, mut taken) = (ReceiverSlots::new(1), 0);
            for _ in 0..3 {
                let found = slots.take(Threads::Many, &*line, EPOCH, 0, |_| true);
                let Taken::Block { generation, header: words, .. } = found else { continue };
                taken += 1;
                let inline = formats[taken as usize - 1];
                assert_eq!(words, header(taken, inline), "lost, or its payload in its header");
                let payload = if inline { &line.first } else { &line.before };
                assert_eq!(payload.load(Ordering::Relaxed), taken, "torn");
                assert!(slots.end(0, generation), "somebody else has it");
                release(&*line, 0, generation);
            }
        })
    };
    let sender = SenderSlots::new(1);
    for (number, inline) in (1..).zip(formats) {
        let news = sender.note_free(Threads::Many, 0, line.load_free(0));
        if number > 1 && news != ReleaseStatus::Released {
            break;
        }
        let generation = sender.next_generation(0);
        let payload = if *inline { &line.first } else { &line.before };
        if payload_first {
            payload.store(number, Ordering::Relaxed);
        }
        sender.launch(0, generation);
        seal(&*line, EPOCH, 0, generation, &header(number, *inline));
        if !payload_first {
            payload.store(number, Ordering::Relaxed);
        }
    }
    receiver.join().unwrap();
}

#[test]
fn an_inline_block_is_taken_whole_whatever_block_was_there_before() {
    for formats in [&[true, true], &[false, true], &[true, false]] {
        check(3, move || inline_model(formats, true));
    }
}

#[test]
fn an_inline_block_whose_payload_comes_last_would_be_torn() {
    must_fail(3, "torn", || inline_model(&[true, true], false));
}
