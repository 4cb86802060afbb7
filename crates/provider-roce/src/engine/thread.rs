//! The thread of an engine: it takes turns until there is nothing to do, polls a little longer,
//! then sleeps until a packet, a posted request or a timer wakes it.
use super::tuning::{self, NAP};
use super::{Turn, TurnKind};
use crate::device::Device;
use crate::io::{Waiter, Wakeup};
use catchment_verbs::wait::SpinBudget;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

/// Longest sleep.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn start(device: Arc<Device>, waiter: Waiter) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name("roce-engine".into()).spawn(move || run(&device, &waiter))
}

fn run(device: &Device, waiter: &Waiter) {
    let mut spin = SpinBudget::new(device.options.spin);
    let mut busy_ns = 0;
    let mut polls = 0;
    while !device.is_stopped() {
        if is_helped(device) {
            // After the nap it checks whether they still do.
            if device.begin_nap() {
                sleep(device, || waiter.nap(NAP));
            }
            continue;
        }
        let now_ns = device.now_ns();
        let turn = take_turn(device, now_ns);
        if turn.busy {
            busy_ns = now_ns;
            if tuning::yields_after(&turn) {
                thread::yield_now();
            }
            continue;
        }
        let idle = Duration::from_nanos(now_ns.saturating_sub(busy_ns));
        if !turn.blocked && idle < spin.now() {
            polls = (polls + 1) % tuning::POLLS_PER_YIELD;
            if polls == 0 {
                thread::yield_now();
            }
        } else {
            let left = turn.next_ns.map(|next| next.saturating_sub(now_ns));
            let most = if turn.blocked { tuning::RETRY_BLOCKED } else { LONG };
            let timeout = left.map_or(most, Duration::from_nanos).min(most);
            let socket = device.datagrams.wait_fd();
            let full = turn.blocked.then(|| device.datagrams.full_fd());
            if device.begin_sleep(timeout) {
                sleep(device, || waiter.sleep(socket, full, timeout));
            }
            busy_ns = device.now_ns();
            spin.learn(Duration::from_nanos(busy_ns - now_ns));
        }
    }
}

fn take_turn(device: &Device, now_ns: u64) -> Turn {
    while device.is_wanted() {
        thread::yield_now();
    }
    // While a thread of the application does the work, there is nothing to wait for.
    match device.try_engine() {
        Some(mut engine) => engine.turn(device, now_ns, TurnKind::Full),
        None => {
            thread::yield_now();
            Turn { busy: true, ..Turn::default() }
        }
    }
}

/// Returns whether threads of the application do the engine's work now.
fn is_helped(device: &Device) -> bool {
    let helped_ns = device.helped_ns();
    let fresh = helped_ns.saturating_add(NAP.as_nanos() as u64);
    helped_ns > 0 && device.now_ns() < fresh && !device.dirty.any()
}

fn sleep(device: &Device, wait: impl FnOnce() -> io::Result<Wakeup>) {
    if let Err(error) = wait() {
        tracing::warn!(%error, "cannot wait for packets; retrying after a pause");
        // Back off instead of spinning on a persistent error.
        thread::sleep(NAP);
    }
    device.end_sleep();
}
