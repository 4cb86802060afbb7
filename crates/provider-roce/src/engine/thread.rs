//! The thread of an engine: a turn, and another one, until there is nothing to do; then it looks a
//! little longer, then it sleeps until a packet, a posted request or a timer wakes it.
use super::{Look, Turn};
use crate::{
    device::Device,
    io::{Spin, Waiter, Watched},
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
    let mut spin = Spin::new(device.options.spin);
    let mut busy_ns = 0;
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
            busy_ns = now_ns;
            if turn.held_back {
                // A program on this core sees now what came, and may answer.
                thread::yield_now();
            }
            continue;
        }
        let idle = Duration::from_nanos(now_ns.saturating_sub(busy_ns));
        if !turn.blocked && idle < spin.now() {
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
            busy_ns = device.now_ns();
            spin.learn(Duration::from_nanos(busy_ns - now_ns));
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
