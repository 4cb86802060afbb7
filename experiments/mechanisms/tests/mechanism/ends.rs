//! What must hold for the two ends of every mechanism, however they were connected.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a test, which does not use everything for every provider"
)]
use catchment_mechanisms::*;
use catchment_probe::load;
use catchment_probe::patience::PATIENCE;
pub use catchment_probe::patience::Patience;
use catchment_probe::random::Random;
use catchment_transfer::WaitPolicy;
use catchment_transfer::order::SerialCounter;
use catchment_verbs::Watch;
use catchment_verbs::mem::VolatileSlice;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// For what must not happen: if it does, it usually does so soon.
const QUIET: Duration = Duration::from_millis(20);

/// Two ends that are connected.
pub struct Ends<S, R> {
    pub sender: S,
    pub receiver: R,
    pub shape: Shape,
    pub features: Features,
    /// Most blocks that can be outstanding while none is taken.
    pub most_on_their_way: u64,
}

/// Repeats a step as the policy says until it returns something.
fn until<E, T>(
    end: &mut E,
    wait: &mut Patience,
    watch: impl Fn(&E) -> Option<Arc<dyn Watch>>,
    step: impl Fn(&mut E) -> Option<T>,
) -> T {
    loop {
        let found = step(end);
        if let Some(found) = found.or_else(|| wait.wait(watch(end), || step(end))) {
            wait.found();
            return found;
        }
    }
}

pub fn claim<S: SendEnd>(sender: &mut S, stream: u32, bytes: u32, wait: &mut Patience) -> S::Claim {
    until(sender, wait, S::watch, |sender| match sender.claim(stream, bytes) {
        Ok(claim) => Some(claim),
        Err(ClaimError::WouldBlock) => None,
        Err(error) => panic!("{error}"),
    })
}

pub fn take<R: ReceiveEnd>(receiver: &mut R, wait: &mut Patience) -> R::Block {
    until(receiver, wait, R::watch, |receiver| receiver.take().unwrap())
}

/// Takes the next block while the sender goes on with what it has to do.
pub fn take_driving<R: ReceiveEnd>(
    sender: &mut impl SendEnd,
    receiver: &mut R,
    wait: &mut Patience,
) -> R::Block {
    let mut ends = (sender, receiver);
    let no_watch = |_: &_| None;
    until(&mut ends, wait, no_watch, |(sender, receiver)| {
        sender.progress().unwrap();
        receiver.take().unwrap()
    })
}

/// Sends one more block of so many bytes, if one is free.
pub fn send_if_free(
    sender: &mut impl SendEnd,
    bytes: u32,
    packet: &mut u64,
) -> Result<(), EndError> {
    match sender.claim(0, bytes) {
        Ok(claim) => {
            *packet += 1;
            sender.commit(claim, *packet)
        }
        Err(ClaimError::WouldBlock) => sender.progress(),
        Err(ClaimError::End(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// Repeats `step` until it fails.
pub fn failure(mut step: impl FnMut() -> Result<(), EndError>) -> EndError {
    let start = Instant::now();
    loop {
        if let Err(error) = step() {
            return error;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not fail");
        std::thread::yield_now();
    }
}

pub fn send<S: SendEnd>(
    sender: &mut S,
    stream: u32,
    packet: u64,
    data: &[u8],
    wait: &mut Patience,
) {
    let claim = claim(sender, stream, data.len() as u32, wait);
    sender.memory(&claim).write_at(0, data).unwrap();
    sender.commit(claim, packet).unwrap();
}

/// One block after the other, each taken and released before the next one.
pub fn lockstep<S: SendEnd, R: ReceiveEnd>(ends: &mut Ends<S, R>, packets: std::ops::Range<u64>) {
    let (bytes, bits) = (ends.shape.payload_bytes, ends.features.packet_bits);
    let (sender, receiver) = (&mut ends.sender, &mut ends.receiver);
    let mut wait = Patience::new(WaitPolicy::Yield);
    for packet in packets {
        invite(sender, receiver, bytes);
        let claim = claim(sender, 0, bytes, &mut wait);
        sender.memory(&claim).write_at(0, &packet.to_ne_bytes()).unwrap();
        sender.commit(claim, packet).unwrap();
        let block = take_driving(sender, receiver, &mut wait);
        assert_eq!(block.tag().packet << (64 - bits), packet << (64 - bits));
        assert_eq!(read_u64(&block.payload()), packet);
    }
}

/// Drives the sender until the receiver has all blocks.
pub fn finish<S: SendEnd>(sender: &mut S, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "the last blocks do not arrive");
        sender.progress().unwrap();
        std::thread::yield_now();
    }
}

/// Bytes of block number `packet`: the same at both ends.
fn content(packet: u64, features: Features, payload: &mut [u8]) -> usize {
    if features.any_length {
        return load::content(3, packet, payload);
    }
    Random::new(packet + 1).fill(payload);
    payload.len()
}

/// Restores packet numbers, of which some mechanisms carry only the low bits.
#[derive(Default)]
struct Numbers(SerialCounter);

impl Numbers {
    fn whole(&mut self, packet: u64, features: Features) -> u64 {
        match features.packet_bits {
            64 => packet,
            16 => self.0.widen(packet as u16),
            bits => panic!("packet numbers of {bits} bits"),
        }
    }
}

/// Lengths and contents at random, each block verified. All threads wait as the policy says; the
/// mechanism's helper gets a thread if asked.
pub fn random_blocks<S: SendEnd, R: ReceiveEnd>(
    ends: Ends<S, R>,
    count: u64,
    policy: WaitPolicy,
    with_helper: bool,
) {
    let features = ends.features;
    let most = ends.shape.payload_bytes as usize;
    let (mut sender, mut receiver) = (ends.sender, ends.receiver);
    let helper = with_helper.then(|| sender.helper().expect("it wants a thread"));
    let taken = AtomicU64::new(0);
    let done = || taken.load(Ordering::Relaxed) == count;
    std::thread::scope(|scope| {
        if let Some(helper) = helper {
            scope.spawn(|| help(helper, policy, done));
        }
        scope.spawn(|| {
            let (mut wait, mut payload) = (Patience::new(policy), vec![0; most]);
            for packet in 0..count {
                let bytes = content(packet, features, &mut payload);
                send(&mut sender, 3, packet, &payload[..bytes], &mut wait);
            }
            finish(&mut sender, done);
            assert_eq!(sender.counts().blocks, count);
        });
        let (mut wait, mut checker) = (Patience::new(policy), Checker::new(features, most, count));
        for _ in 0..count {
            checker.check(&take(&mut receiver, &mut wait));
            taken.fetch_add(1, Ordering::Relaxed);
        }
        assert!(receiver.take().unwrap().is_none());
        assert_eq!(receiver.counts().blocks, count);
    });
}

fn help(mut helper: Box<dyn Helper>, policy: WaitPolicy, done: impl Fn() -> bool) {
    let mut wait = Patience::new(policy);
    while !done() {
        let found = helper.step().unwrap() || {
            wait.wait(helper.watch(), || helper.step().unwrap().then_some(())).is_some()
        };
        if found {
            wait.found();
        }
    }
}

/// Knows which blocks must come, and what is in them.
struct Checker {
    features: Features,
    numbers: Numbers,
    came: Vec<bool>,
    place: u64,
    wanted: Vec<u8>,
    seen: Vec<u8>,
}

impl Checker {
    fn new(features: Features, most: usize, count: u64) -> Self {
        Self {
            features,
            numbers: Numbers::default(),
            came: vec![false; count as usize],
            place: 0,
            wanted: vec![0; most],
            seen: vec![0; most],
        }
    }

    fn check(&mut self, block: &impl TakenBlock) {
        let tag = block.tag();
        let packet = self.numbers.whole(tag.packet, self.features);
        let place = self.place;
        self.place += 1;
        let in_order = self.features.in_order;
        assert!(packet == place || !in_order, "{packet} came as {place}");
        assert!(!std::mem::replace(&mut self.came[packet as usize], true));
        assert_eq!(tag.stream, 3);
        let bytes = content(packet, self.features, &mut self.wanted);
        let payload: VolatileSlice<'_> = block.payload();
        assert_eq!(payload.bytes(), bytes, "block {packet}");
        payload.read_at(0, &mut self.seen[..bytes]).unwrap();
        assert!(self.seen[..bytes] == self.wanted[..bytes], "block {packet}");
    }
}

/// Four workers keep blocks for random times and release them in any order; each block arrives once.
pub fn any_order<S: SendEnd, R: ReceiveEnd>(ends: Ends<S, R>, count: u64) {
    let (mut sender, receiver) = (ends.sender, ends.receiver);
    let bytes = ends.shape.payload_bytes as usize;
    let bits = ends.features.packet_bits;
    let seen: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let left = AtomicU64::new(count);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (seen, left, receiver) = (&seen, &left, &receiver);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut kept = VecDeque::new();
                while left.load(Ordering::Relaxed) > 0 {
                    if kept.len() > random.below(4) as usize {
                        kept.swap_remove_back(random.below(kept.len() as u64) as usize);
                    }
                    let taken = receiver.lock().unwrap().take().unwrap();
                    let Some(block) = taken else {
                        kept.pop_front();
                        std::thread::yield_now();
                        continue;
                    };
                    let inside = block.payload().load_u64(0, Ordering::Relaxed);
                    // Blocks begin where they like: eight bytes at a time only where aligned.
                    let packet = inside.unwrap_or_else(|_| read_u64(&block.payload()));
                    assert_eq!(packet << (64 - bits), block.tag().packet << (64 - bits));
                    seen[packet as usize].fetch_add(1, Ordering::Relaxed);
                    left.fetch_sub(1, Ordering::Relaxed);
                    kept.push_back(block);
                }
            });
        }
        let mut wait = Patience::new(WaitPolicy::Yield);
        let mut payload = vec![0; bytes];
        for packet in 0..count {
            payload[..8].copy_from_slice(&packet.to_ne_bytes());
            send(&mut sender, 0, packet, &payload, &mut wait);
        }
        finish(&mut sender, || left.load(Ordering::Relaxed) == 0);
    });
    assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
}

fn read_u64(payload: &VolatileSlice<'_>) -> u64 {
    let mut bytes = [0; 8];
    payload.read_at(0, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Polls the receiver until a block is free: some mechanisms announce free slots only when polled.
fn invite(sender: &mut impl SendEnd, receiver: &mut impl ReceiveEnd, bytes: u32) {
    let start = Instant::now();
    while sender.claim(0, bytes).is_err() {
        assert!(start.elapsed() < PATIENCE, "no block is free");
        assert!(receiver.take().unwrap().is_none(), "nothing was sent yet");
        std::thread::yield_now();
    }
}

/// One block is kept: where blocks come back in any order the others go on; elsewhere the sender
/// stops once all others are used. When the block is released all go on (E1.18).
pub fn kept_block<S: SendEnd, R: ReceiveEnd>(ends: Ends<S, R>) {
    let (mut sender, mut receiver) = (ends.sender, ends.receiver);
    let payload = vec![7; ends.shape.payload_bytes as usize];
    let mut wait = Patience::new(WaitPolicy::Yield);
    let mut came = Vec::new();
    invite(&mut sender, &mut receiver, payload.len() as u32);
    send(&mut sender, 0, 0, &payload, &mut wait);
    let mut kept = take(&mut receiver, &mut wait);
    kept.hold();
    came.push(kept.tag().packet);
    let mut packet = 1;
    // Sends while it can, and takes all that comes.
    let mut exchange = |sender: &mut S, receiver: &mut R, rounds| {
        let before = came.len();
        for _ in 0..rounds {
            if let Ok(claim) = sender.claim(0, payload.len() as u32) {
                sender.commit(claim, packet).unwrap();
                packet += 1;
            }
            sender.progress().unwrap();
            while let Some(block) = receiver.take().unwrap() {
                came.push(block.tag().packet);
            }
            std::thread::yield_now();
        }
        came.len() - before
    };
    let start = Instant::now();
    let (mut passed, in_order) = (0, !ends.features.out_of_order_release);
    let wanted = match in_order {
        true => ends.shape.blocks as usize - 1,
        false => 500,
    };
    while passed < wanted {
        assert!(start.elapsed() < PATIENCE, "{passed} blocks beside the kept one");
        passed += exchange(&mut sender, &mut receiver, 1);
    }
    let start = Instant::now();
    while in_order && start.elapsed() < QUIET {
        assert_eq!(exchange(&mut sender, &mut receiver, 1), 0, "all are used");
    }
    drop(kept);
    let start = Instant::now();
    let mut after = 0;
    while after < 500 {
        assert!(start.elapsed() < PATIENCE, "only {after} blocks afterwards");
        after += exchange(&mut sender, &mut receiver, 1);
    }
    came.sort_unstable();
    assert!(came.windows(2).all(|pair| pair[0] + 1 == pair[1]) || !ends.features.in_order);
    came.dedup();
    assert_eq!(came.len(), 1 + passed + after, "no block twice");
}

/// The receiver takes nothing for a while: the sender fills all slots and is refused; then all blocks
/// arrive, in order.
pub fn slow_receiver<S: SendEnd, R: ReceiveEnd>(ends: Ends<S, R>) {
    let (mut sender, mut receiver) = (ends.sender, ends.receiver);
    let (blocks, bytes) = (ends.shape.blocks, ends.shape.payload_bytes);
    let payload = vec![1; bytes as usize];
    let mut packet = 0;
    for _ in 0..3 {
        invite(&mut sender, &mut receiver, bytes);
        let first = packet;
        let start = Instant::now();
        let mut filled = start;
        while filled.elapsed() < QUIET || packet - first < u64::from(blocks) {
            assert!(start.elapsed() < PATIENCE, "{} blocks", packet - first);
            sender.progress().unwrap();
            match sender.claim(0, bytes) {
                Ok(claim) => {
                    sender.memory(&claim).write_at(0, &payload).unwrap();
                    sender.commit(claim, packet).unwrap();
                    packet += 1;
                    filled = Instant::now();
                }
                Err(ClaimError::WouldBlock) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        let on_their_way = packet - first;
        assert!(on_their_way <= ends.most_on_their_way, "{on_their_way}");
        let mut wait = Patience::new(WaitPolicy::Yield);
        let mut packets: Vec<u64> = (first..packet)
            .map(|_| take_driving(&mut sender, &mut receiver, &mut wait).tag().packet)
            .collect();
        packets.sort_unstable();
        let wanted: Vec<u64> = (first..packet).collect();
        assert_eq!(packets, wanted);
    }
}
