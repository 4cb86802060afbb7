//! Whether a thread is alone. See the module above.
use super::primitives::{
    AtomicU32, AtomicU64, Ordering, available, heavy, light, thread_number, yield_now,
};
use std::marker::PhantomData;

/// No thread has entered yet.
const NOBODY: u64 = 0;
/// Several threads have.
const ALL: u64 = u64::MAX;
/// Set beside the owner's number while another thread waits for it to leave.
const REVOKED: u64 = 1 << 63;

/// How many threads may use what a [`Bias`] guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The calling one alone: it may load and store.
    One,
    /// Any: it must read-modify-write.
    Many,
}

/// Says whether the calling thread is alone. It belongs to the first thread that enters, until
/// another one does.
#[derive(Debug)]
pub struct Bias {
    owner: AtomicU64,
    /// Sections that the owner is in.
    busy: AtomicU32,
}

impl Default for Bias {
    fn default() -> Self {
        Self::new()
    }
}

impl Bias {
    /// Creates one that nobody has entered.
    pub fn new() -> Self {
        let owner = if available() { NOBODY } else { ALL };
        Self { owner: AtomicU64::new(owner), busy: AtomicU32::new(0) }
    }

    /// Enters. The first thread that is not the owner waits, once, until the owner has left: keep
    /// sections short. Sections may be nested.
    #[inline]
    pub fn enter(&self) -> Section<'_> {
        let me = thread_number();
        let owner = self.owner.load(Ordering::Acquire);
        if owner == me
            && let Some(section) = self.enter_alone(me)
        {
            return section;
        }
        if owner == ALL { self.enter_with_others() } else { self.enter_slowly(me) }
    }

    #[inline]
    fn enter_alone(&self, me: u64) -> Option<Section<'_>> {
        let before = self.busy.load(Ordering::Relaxed);
        self.busy.store(before + 1, Ordering::Relaxed);
        light();
        if self.owner.load(Ordering::Relaxed) == me {
            return Some(Section { bias: self, threads: Threads::One, _here: PhantomData });
        }
        self.busy.store(before, Ordering::Release);
        None
    }

    #[inline]
    fn enter_with_others(&self) -> Section<'_> {
        Section { bias: self, threads: Threads::Many, _here: PhantomData }
    }

    #[cold]
    fn enter_slowly(&self, me: u64) -> Section<'_> {
        loop {
            let owner = self.owner.load(Ordering::Acquire);
            if owner == NOBODY {
                let ordering = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = self.owner.compare_exchange(NOBODY, me, ordering.0, ordering.1);
            } else if owner == me {
                if let Some(section) = self.enter_alone(me) {
                    return section;
                }
            } else if owner == ALL || owner == me | REVOKED {
                // A revoked owner need not wait for itself: nobody else is in before it has left.
                return self.enter_with_others();
            } else {
                self.revoke(owner);
            }
        }
    }

    /// Waits until the owner has left and will find that it no longer is.
    fn revoke(&self, owner: u64) {
        let revoked = owner | REVOKED;
        let ordering = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.owner.compare_exchange(owner, revoked, ordering.0, ordering.1);
        heavy();
        while self.busy.load(Ordering::Acquire) != 0 {
            yield_now();
        }
        self.owner.store(ALL, Ordering::Release);
    }
}

/// The time in which the calling thread uses what a [`Bias`] guards.
#[derive(Debug)]
pub struct Section<'a> {
    bias: &'a Bias,
    threads: Threads,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Section<'_> {
    /// Returns whether the thread is alone until it leaves.
    #[inline]
    pub fn threads(&self) -> Threads {
        self.threads
    }
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.threads == Threads::One {
            let inside = self.bias.busy.load(Ordering::Relaxed);
            self.bias.busy.store(inside - 1, Ordering::Release);
        }
    }
}
