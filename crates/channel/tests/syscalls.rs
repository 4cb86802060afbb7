//! Messages over shared memory make no system call (S3.7).
//!
//! A thread of a process of its own forbids itself all calls but read and write (seccomp's strict
//! mode) and goes on with messages: the kernel kills it at the first other call.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]
use catchment_channel::{Channel, ChannelShape, Resources};
use catchment_probe::child::{Child, line_to_say, role};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Provider, RtsAttr};
use rustix::thread::{SecureComputingMode, set_secure_computing_mode};

const MESSAGES: u64 = 10_000;
const SAID: &str = "all messages went over";

fn pair() -> [Channel; 2] {
    let ends = [(); 2].map(|()| {
        let context = ShmProvider::new().open("shm0").unwrap();
        Resources::acquire(context, ChannelShape::new(4, 4096)).unwrap()
    });
    let cards = [ends[1].card(), ends[0].card()];
    let mut cards = cards.iter();
    ends.map(|end| Channel::connect(end, cards.next().unwrap(), RtsAttr::default()).unwrap())
}

/// Sends a message in each direction, until both have arrived; false if that fails.
fn exchange([a, b]: &mut [Channel; 2], packet: u64) -> bool {
    for turn in 0..2 {
        let (from, to) = if turn == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        let Ok(claim) = from.claim(0, 4096) else { return false };
        if from.memory(&claim).write_at(0, &[packet as u8]).is_err()
            || from.commit(claim, packet).is_err()
        {
            return false;
        }
        while !matches!(to.take(), Ok(Some(_))) {
            std::hint::spin_loop();
        }
    }
    true
}

/// Not a test by itself: the process that gets killed.
#[test]
fn strict_process() {
    let Some(role) = role() else { return };
    let thread = std::thread::spawn(move || {
        let mut channels = pair();
        assert!(exchange(&mut channels, 0), "before it counts");
        // Whom the kernel kills says nothing to who waits for it, at which joining it panics.
        std::panic::set_hook(Box::new(|_| ()));
        set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
        if role == "careless" {
            let _ = rustix::process::getppid();
        }
        let all = (1..MESSAGES).all(|packet| exchange(&mut channels, packet));
        let said = if all { SAID } else { "refused" };
        let _ = rustix::io::write(std::io::stdout(), &line_to_say(said));
        // It cannot even end: that is a call too. Nothing is ever written there.
        let _ = rustix::io::read(std::io::stdin(), &mut [0; 1]);
    });
    let _ = thread.join();
}

/// Returns whether the child reports that all messages arrived.
fn goes_over(role: &str) -> bool {
    Child::start("strict_process", role).listen().is_some_and(|said| said == SAID)
}

#[test]
fn s3_7_a_message_over_shared_memory_makes_no_system_call() {
    assert!(goes_over("careful"));
    // One call is noticed.
    assert!(!goes_over("careless"));
}
