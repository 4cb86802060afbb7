//! The thread of an engine: a turn, and another one, until there is nothing to do; then it looks a
//! little longer, then it sleeps until a packet, a posted request or a timer wakes it.
use super::{Look, Turn};
use crate::{
    device::Device,
    io::{Waiter, Watched},
    sleep::NAP,
};
use std::{io, sync::Arc, thread, time::Duration};

/// A full queue of the network device does not say when it has room again: it is tried after this.
const BLOCKED: Duration = Duration::from_micros(500);
/// Looks for packets before others may run. A program that waits on the same core yields too, and
/// finds nothing until the engine has: changing to it and back takes as long as some looks.
const LOOKS: u32 = 8;
/// Longest sleep.
const LONG: Duration = Duration::from_secs(3600);

/// Starts the thread.
pub(crate) fn start(device: Arc<Device>, waiter: Waiter) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new()
        .name("roce-engine".into())
        .spawn(move || run(&device, &waiter))
}

fn run(device: &Device, waiter: &Waiter) {
    let mut looking = Looking::new(device.options.spin);
    let mut looks = 0;
    while !device.is_stopped() {
        if is_helped(device) {
            // Soon it looks whether they still do.
            sleep(device, waiter, NAP, &[]);
            continue;
        }
        let now_ns = device.now_ns();
        let turn = take_turn(device, now_ns);
        if turn.busy {
            looking.found(now_ns);
            if turn.held_back {
                // A program on this core sees now what came, and may answer.
                thread::yield_now();
            }
            continue;
        }
        if !turn.blocked && looking.goes_on(now_ns) {
            looks = (looks + 1) % LOOKS;
            if looks == 0 {
                thread::yield_now();
            }
        } else {
            let left = turn.next_ns.map(|next| next.saturating_sub(now_ns));
            let most = if turn.blocked { BLOCKED } else { LONG };
            let timeout = left.map_or(most, Duration::from_nanos).min(most);
            let watched = Watched {
                socket: &device.socket,
                blocked: turn.blocked,
            };
            sleep(device, waiter, timeout, &[watched]);
            looking.slept(
                Duration::from_nanos(device.now_ns() - now_ns),
                device.now_ns(),
            );
        }
    }
}

fn take_turn(device: &Device, now_ns: u64) -> Turn {
    while device.is_wanted() {
        thread::yield_now();
    }
    // Without waiting: while a thread of the application has it, there is no need.
    match device.try_engine() {
        Some(mut engine) => engine.turn(device, now_ns, Look::ForPackets),
        None => {
            thread::yield_now();
            Turn {
                busy: true,
                ..Turn::default()
            }
        }
    }
}

/// Threads of the application do the work now.
fn is_helped(device: &Device) -> bool {
    let helped_ns = device.helped_ns();
    let fresh = helped_ns.saturating_add(NAP.as_nanos() as u64);
    helped_ns > 0 && device.now_ns() < fresh && !device.dirty.any()
}

fn sleep(device: &Device, waiter: &Waiter, timeout: Duration, sockets: &[Watched<'_>]) {
    if !device.begin_sleep(timeout) {
        return;
    }
    if let Err(error) = waiter.sleep(sockets, timeout) {
        tracing::warn!(%error, "the engine cannot sleep");
        // Rather slow than hot.
        thread::sleep(NAP);
    }
    device.end_sleep();
}

/// How long to look before sleeping: learnt from how long sleeps last.
struct Looking {
    now: Duration,
    most: Duration,
    since_ns: u64,
}

/// Least looking time that is worth the trouble.
const LEAST: Duration = Duration::from_micros(4);

impl Looking {
    fn new(most: Duration) -> Looking {
        Looking {
            now: most.min(LEAST),
            most,
            since_ns: 0,
        }
    }

    /// There was work.
    fn found(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }

    /// Whether to look once more.
    fn goes_on(&self, now_ns: u64) -> bool {
        u128::from(now_ns.saturating_sub(self.since_ns)) < self.now.as_nanos()
    }

    /// After a sleep: would looking a little longer have been enough?
    fn slept(&mut self, slept: Duration, now_ns: u64) {
        self.now = if slept <= self.most {
            (self.now * 2).max(LEAST).min(self.most)
        } else if self.now / 2 < LEAST {
            Duration::ZERO
        } else {
            self.now / 2
        };
        self.since_ns = now_ns;
    }
}
