//! What cases have in common: waiting, patterns, and how often to repeat.
use catchment_probe::child::Child;
use catchment_probe::load;
use catchment_probe::random::Random;
use catchment_verbs::{Access, Completion, CompletionChannel, Cq};
use std::time::{Duration, Instant};

/// How long something may take that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

/// Starts the second process in a role.
pub fn start(role: &str) -> Child {
    Child::start("conformance_child", role)
}

pub fn wait_one(cq: &dyn Cq) -> Completion {
    wait_some(cq, 1)[0]
}

/// Waits for `n` completions and takes no more.
pub fn wait_some(cq: &dyn Cq, n: usize) -> Vec<Completion> {
    let mut out = vec![Completion::EMPTY; n];
    let mut seen = 0;
    eventually(&format!("{n} completions"), || {
        seen += cq.poll(&mut out[seen..]).unwrap();
        seen == n
    });
    out
}

/// Returns the next `n` completions, sleeping until they arrive: arm, poll once more, sleep.
pub fn sleep_for(channel: &dyn CompletionChannel, cq: &dyn Cq, n: usize) -> Vec<Completion> {
    let mut out = vec![Completion::EMPTY; n];
    let mut seen = 0;
    while seen < n {
        cq.req_notify(false);
        let taken = cq.poll(&mut out[seen..]).unwrap();
        seen += taken;
        let woken = taken > 0 || channel.wait(PATIENCE).unwrap();
        assert!(woken, "a wake-up was lost: {seen} of {n} completions came");
    }
    out
}

pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut rounds = 0u32;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        rounds += 1;
        if rounds < 100 {
            std::thread::yield_now();
        } else {
            // What is waited for differs; not every provider has an event for it.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

pub fn assert_empty(cq: &dyn Cq) {
    let mut out = [Completion::EMPTY];
    assert_eq!(cq.poll(&mut out).unwrap(), 0, "unexpected: {:?}", out[0]);
}

/// `bytes` bytes that depend on `seed`.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.next_u64() as u8).collect()
}

/// How often a repeating case repeats.
pub fn rounds(short: u64) -> u64 {
    ((short as f64 * factor()) as u64).max(1)
}

/// Numbers of rounds from 1 to `rounds(short)`. A busy machine does fewer after
/// a few seconds, but a twentieth at least, unless the environment asks for long cases.
pub fn rounds_while_quick(short: u64) -> impl Iterator<Item = u64> {
    let start = Instant::now();
    let least = if factor() > 1.0 { rounds(short) } else { short / 20 };
    (1..=rounds(short)).take_while(move |&n| n <= least || start.elapsed() < LONG_CASE)
}

/// After this time a case that repeats has repeated enough.
const LONG_CASE: Duration = Duration::from_secs(4);

fn factor() -> f64 {
    let factor = std::env::var("CATCHMENT_CONFORMANCE_ROUNDS").ok();
    factor.and_then(|text| text.parse().ok()).unwrap_or_else(load::scale)
}
