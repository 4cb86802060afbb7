//! Sending and taking one message, however long it takes.
use catchment_channel::{Channel, ClaimError, Message};
use catchment_transfer::{Step, WaitPolicy, Waiter};
use catchment_verbs::{Wake, Watch};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For what must happen sooner or later: no test waits so long unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits as a policy says.
pub struct Patience {
    waiter: Waiter,
    since: Instant,
}

impl Patience {
    pub fn new(policy: WaitPolicy) -> Patience {
        Patience { waiter: Waiter::new(policy, 2), since: Instant::now() }
    }

    pub fn found(&mut self) {
        self.waiter.found();
        self.since = Instant::now();
    }

    /// Nothing was found; `again` tries once more, after the watch was armed.
    pub fn wait<T>(
        &mut self,
        watch: &Arc<dyn Watch>,
        again: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        assert!(self.since.elapsed() < PATIENCE, "nothing came");
        match self.waiter.empty() {
            Step::Spin => std::hint::spin_loop(),
            Step::Yield => std::thread::yield_now(),
            // The policy under test: the other end needs that time.
            Step::Sleep(time) => std::thread::sleep(time),
            Step::Block => {
                watch.arm();
                if let Some(found) = again() {
                    return Some(found);
                }
                let _: Wake = watch.wait(Duration::from_millis(100)).unwrap();
            }
        }
        None
    }
}

/// Sends a message.
pub fn send(channel: &mut Channel, stream: u32, packet: u64, data: &[u8], wait: &mut Patience) {
    let bytes = data.len() as u32;
    let claim = loop {
        let claim = match channel.claim(stream, bytes) {
            Ok(claim) => Some(claim),
            Err(ClaimError::WouldBlock) => {
                let watch = channel.watch();
                wait.wait(&watch, || channel.claim(stream, bytes).ok())
            }
            Err(error) => panic!("{error}"),
        };
        if let Some(claim) = claim {
            break claim;
        }
    };
    wait.found();
    channel.memory(&claim).write_at(0, data).unwrap();
    channel.commit(claim, packet).unwrap();
}

/// Takes a message.
pub fn take(channel: &mut Channel, wait: &mut Patience) -> Message {
    loop {
        let block = match channel.take().unwrap() {
            Some(block) => Some(block),
            None => {
                let watch = channel.watch();
                wait.wait(&watch, || channel.take().unwrap())
            }
        };
        if let Some(block) = block {
            wait.found();
            return block;
        }
    }
}
