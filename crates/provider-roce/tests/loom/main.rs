//! How programs and the engine's thread hand work to each other, in a model checker: every
//! interleaving that the memory model of C11 allows.
//!
//! Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p catchment-provider-roce --release --test loom`.
//!
//! The code is that of the provider, `dirty.rs` and `sleep.rs`, compiled with the checker's
//! atomics; the engine is a number of requests, and the event counter is one that blocks. A wake-up
//! that gets lost is a deadlock, which the checker reports. Compiled without the fences the code
//! must fail: a checker that finds nothing proves nothing.
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]

mod fenced;
mod flag;
mod unfenced;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// Keeps what was rung, as an event counter does.
#[derive(Default)]
struct Event {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Event {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.ring.notify_one();
    }

    /// Sleeps until it was rung, and takes the ring.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ring.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// What the lock of the engine protects.
#[derive(Default)]
struct Engine {
    /// Requests of each queue pair that a turn took.
    taken: [u32; 2],
    /// Requests that are done.
    done: u32,
    /// Requests that a turn took and left for the next one.
    left: u32,
}

/// Bounded, so that the search ends: two switches of threads that nothing forces find each fault
/// that was put into the code on purpose.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

macro_rules! models {
    ($code:ident) => {
        use super::*;
        use crate::$code::dirty::DirtySet;
        use crate::$code::sleep::{NAP, Sleep};
        use loom::sync::atomic::{AtomicU32, Ordering};

        /// What threads of the program and the engine's share.
        struct Device {
            dirty: DirtySet<1>,
            sleep: Sleep,
            event: Event,
            engine: Mutex<Engine>,
            /// How many requests each queue pair has posted. Read without any order: that one is
            /// seen is up to the set.
            posted: [AtomicU32; 2],
        }

        impl Device {
            fn new() -> Arc<Device> {
                Arc::new(Device {
                    dirty: DirtySet::new(),
                    sleep: Sleep::new(),
                    event: Event::default(),
                    engine: Mutex::default(),
                    posted: [AtomicU32::new(0), AtomicU32::new(0)],
                })
            }

            fn wake_if(&self, must: bool) {
                if must {
                    self.event.ring();
                }
            }

            fn post(&self, qp: usize) {
                self.posted[qp].fetch_add(1, Ordering::Relaxed);
                self.dirty.add(qp);
            }

            /// Takes what was posted; how many requests.
            fn take(&self, engine: &mut Engine) -> u32 {
                let mut new = 0;
                self.dirty.take(|qp| {
                    let posted = self.posted[qp].load(Ordering::Relaxed);
                    new += posted - engine.taken[qp];
                    engine.taken[qp] = posted;
                });
                new
            }

            /// A turn of the engine's thread, if no other thread has the engine.
            fn turn(&self) {
                match self.engine.try_lock() {
                    Ok(mut engine) => {
                        engine.done += self.take(&mut engine) + engine.left;
                        engine.left = 0;
                    }
                    Err(_) => thread::yield_now(),
                }
            }

            /// A turn of another thread: it takes what was posted and leaves it for the next turn.
            fn help(&self) {
                let Ok(mut engine) = self.engine.try_lock() else {
                    self.wake_if(self.sleep.must_wake());
                    return;
                };
                engine.left += self.take(&mut engine);
                let due = (engine.left > 0).then_some(0);
                drop(engine);
                self.wake_if(self.sleep.after_turn(0, due));
            }

            /// Runs the engine's thread until this many requests are done.
            fn run(&self, requests: u32) {
                loop {
                    self.turn();
                    if self.is_done(requests) {
                        return;
                    }
                    if self.sleep.begin(0, LONG, || self.dirty.any()) {
                        self.event.wait();
                        self.sleep.end();
                    }
                }
            }

            fn is_done(&self, requests: u32) -> bool {
                // Nobody waits for the engine: a thread of the program that has it goes on.
                self.engine.lock().unwrap().done == requests
            }
        }

        /// Each of several threads posts one request; the engine's thread executes them all.
        fn programs<const COUNT: usize>(program: fn(&Device, usize)) {
            check(move || {
                let device = Device::new();
                let programs: [_; COUNT] = std::array::from_fn(|number| {
                    let device = device.clone();
                    thread::spawn(move || program(&device, number))
                });
                device.run(COUNT as u32);
                programs.into_iter().for_each(|p| p.join().unwrap());
            });
        }

        pub(crate) fn what_is_posted_is_done() {
            programs::<1>(|device, qp| {
                device.post(qp);
                device.wake_if(device.sleep.must_wake());
            });
        }

        pub(crate) fn what_two_queue_pairs_post_is_done() {
            programs::<2>(|device, qp| {
                device.post(qp);
                device.wake_if(device.sleep.must_wake());
            });
        }

        pub(crate) fn what_is_changed_is_looked_after() {
            programs::<1>(|device, _| {
                device.engine.lock().unwrap().left += 1;
                device.wake_if(device.sleep.change());
            });
        }

        pub(crate) fn what_another_thread_began_is_finished() {
            programs::<1>(|device, qp| {
                device.post(qp);
                device.help();
            });
        }

        /// The other thread may see when the nap would have ended, while the thread sleeps for
        /// long.
        pub(crate) fn a_thread_that_napped_before_finishes_too() {
            check(|| {
                let device = Device::new();
                let ours = device.clone();
                let program = thread::spawn(move || {
                    ours.post(0);
                    ours.help();
                });
                if device.sleep.begin(0, NAP, || device.dirty.any()) {
                    // Its time is over at once.
                    device.sleep.end();
                }
                device.run(1);
                program.join().unwrap();
            });
        }

        /// The engine's thread naps while another one helps. That one goes to sleep, and what comes then is found; the
        /// nap of this model does not end by itself.
        pub(crate) fn what_comes_after_a_hand_over_is_found() {
            check(|| {
                let device = Device::new();
                let helped = Arc::new(AtomicU32::new(1));
                let (ours, helping) = (device.clone(), helped.clone());
                let program = thread::spawn(move || {
                    ours.engine.lock().unwrap().left += 1;
                    helping.store(0, Ordering::Relaxed);
                    ours.wake_if(ours.sleep.resume(0));
                });
                if helped.load(Ordering::Relaxed) != 0
                    && device.sleep.begin(0, NAP, || helped.load(Ordering::Relaxed) == 0)
                {
                    device.event.wait();
                    device.sleep.end();
                }
                while !device.is_done(1) {
                    device.turn();
                }
                program.join().unwrap();
            });
        }

        /// One posts and finds that the other one has the engine.
        pub(crate) fn two_threads_that_do_turns_leave_nothing_behind() {
            programs::<2>(|device, qp| {
                device.post(qp);
                device.help();
            });
        }
    };
}

mod with_fences {
    models!(fenced);
}

mod without_fences {
    #![allow(dead_code, reason = "not all models need the fences to fail without them")]
    models!(unfenced);
}

macro_rules! tests_with_fences {
    ($($model:ident,)*) => {
        $(#[test]
        fn $model() {
            with_fences::$model();
        })*
    };
}

tests_with_fences! {
    what_is_posted_is_done,
    what_two_queue_pairs_post_is_done,
    what_is_changed_is_looked_after,
    what_another_thread_began_is_finished,
    a_thread_that_napped_before_finishes_too,
    two_threads_that_do_turns_leave_nothing_behind,
    what_comes_after_a_hand_over_is_found,
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_what_is_posted_is_forgotten() {
    without_fences::what_is_posted_is_done();
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_what_is_changed_is_forgotten() {
    without_fences::what_is_changed_is_looked_after();
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_what_another_thread_began_is_forgotten() {
    without_fences::what_another_thread_began_is_finished();
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_hand_over_is_forgotten() {
    without_fences::what_comes_after_a_hand_over_is_found();
}
