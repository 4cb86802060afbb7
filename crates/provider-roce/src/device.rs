//! An open device: its engine, and the threads that do the engine's work.
use crate::RoceOptions;
use crate::device_core::DeviceCore;
use crate::engine::tuning::SINGLE_AFTER_NS;
use crate::engine::{Engine, TurnKind};
use crate::io::{Datagrams, Waiter, Waker};
use crate::sleep::{NAP, Sleep};
use catchment_roce::wire::PathMtu;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Caps, VerbsError};
use std::ops::Deref;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// See the module. Locks are taken in this order: engine, keys, events.
pub(crate) struct Device {
    core: DeviceCore,
    engine: Mutex<Engine>,
    /// The engine thread's.
    sleep: Sleep,
    waker: Waker,
    stop: AtomicBool,
    /// When an application thread last did the engine's work.
    helped_ns: AtomicU64,
    /// When a short request was last posted.
    short_ns: AtomicU64,
}

impl Deref for Device {
    type Target = DeviceCore;

    #[inline]
    fn deref(&self) -> &DeviceCore {
        &self.core
    }
}

impl Device {
    pub(crate) fn new(
        datagrams: Box<dyn Datagrams>,
        path_mtu: PathMtu,
        caps: Caps,
        options: RoceOptions,
        waiter: &Waiter,
    ) -> Result<Self, VerbsError> {
        let engine = Engine::new(&*datagrams, &options);
        Ok(Self {
            core: DeviceCore::new(datagrams, path_mtu, caps, options)?,
            engine: Mutex::new(engine),
            sleep: Sleep::new(),
            waker: waiter.waker(),
            stop: AtomicBool::new(false),
            helped_ns: AtomicU64::new(0),
            short_ns: AtomicU64::new(0),
        })
    }

    /// Returns the engine, for rare changes. What it has to send leaves with its next turn.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let engine = self.engine.lock();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        engine
    }

    /// Returns the engine, if no other thread has it.
    pub(crate) fn try_engine(&self) -> Option<MutexGuard<'_, Engine>> {
        self.engine.try_lock()
    }

    /// Returns whether other threads wait for the engine or the keys.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.contenders.load(Ordering::Relaxed) > 0
    }

    /// Notifies the engine that queue pair `index` has posted requests. A `short` one is sent at
    /// once if no other thread has the engine: waking its thread would take longer.
    #[inline]
    pub(crate) fn posted(&self, index: usize, short: bool) {
        self.dirty.add(index);
        if self.options.inline_polling && self.help(TurnKind::PostedOnly, false) {
            return;
        }
        if !(short && self.send_alone()) {
            self.kick();
        }
    }

    /// Sends a short request at once, if none came just before it (many are better sent together,
    /// by the engine's thread) and no other thread has the engine; returns whether it did.
    fn send_alone(&self) -> bool {
        let now_ns = self.now_ns();
        self.is_alone(now_ns) && self.take_turn(now_ns, TurnKind::PostedOnly)
    }

    fn is_alone(&self, now_ns: u64) -> bool {
        let before_ns = self.short_ns.swap(now_ns, Ordering::Relaxed);
        now_ns.saturating_sub(before_ns) > SINGLE_AFTER_NS
    }

    /// Wakes the engine thread if it sleeps.
    #[inline]
    pub(crate) fn kick(&self) {
        if self.sleep.must_wake() {
            self.waker.wake();
        }
    }

    /// Makes the engine settle a changed queue pair soon.
    pub(crate) fn kick_after_change(&self) {
        if self.sleep.change() {
            self.waker.wake();
        }
    }

    /// With [`RoceOptions::inline_polling`]: does a turn of the engine, if no other thread does;
    /// returns whether it did. A caller that `stays` comes again soon, and the engine's thread naps until it is late;
    /// who only posts, or is about to sleep, does not.
    #[inline]
    pub(crate) fn help(&self, kind: TurnKind, stays: bool) -> bool {
        if !self.options.inline_polling {
            return false;
        }
        let now_ns = self.now_ns();
        let helps = self.take_turn(now_ns, kind);
        if helps && stays {
            self.helped_ns.store(now_ns, Ordering::Relaxed);
        }
        helps
    }

    /// A thread that helped is about to sleep until it is notified: the engine's thread does the work from now on.
    pub(crate) fn hand_over(&self) {
        if self.helped_ns.swap(0, Ordering::Relaxed) != 0 && self.sleep.resume(self.now_ns()) {
            self.waker.wake();
        }
    }

    /// Does a turn of the engine at `now_ns`, if no other thread does; returns whether it did.
    fn take_turn(&self, now_ns: u64, kind: TurnKind) -> bool {
        let Some(mut engine) = self.try_engine() else { return false };
        let turn = engine.turn(&self.core, now_ns, kind);
        drop(engine);
        // The thread may have to do what this one began.
        let due_ns = if turn.is_unfinished() { Some(now_ns) } else { turn.next_ns };
        if self.sleep.after_turn(now_ns, due_ns) {
            self.waker.wake();
        }
        true
    }

    /// Returns when an application thread last did the engine's work; 0 for never.
    pub(crate) fn helped_ns(&self) -> u64 {
        self.helped_ns.load(Ordering::Relaxed)
    }

    /// Announces that the engine thread is about to sleep; returns false if it must not, because
    /// there is work.
    pub(crate) fn begin_sleep(&self, timeout: Duration) -> bool {
        self.sleep.begin(self.now_ns(), timeout, || self.dirty.any() || self.is_stopped())
    }

    /// The same for a nap while other threads do the work, from which it comes back soon whatever happens: there is
    /// work too if they have handed over.
    pub(crate) fn begin_nap(&self) -> bool {
        let handed_over = || self.helped_ns() == 0;
        let has_work = || self.dirty.any() || self.is_stopped() || handed_over();
        self.sleep.begin(self.now_ns(), NAP, has_work)
    }

    /// Notes that the engine thread is awake.
    pub(crate) fn end_sleep(&self) {
        self.sleep.end();
    }

    /// Ends the engine thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns whether the engine thread must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}
