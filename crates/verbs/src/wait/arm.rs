//! The protocol by which a sleeper is woken only when it sleeps, and always then.
//!
//! ```text
//! sleeper: arm (set the flag), fence, check once more, sleep
//! writer:  store the data,     fence, flag set? take it and ring
//! ```
//! With both fences one of the two sees the other: the sleeper finds the data, or the writer finds
//! the flag. A sleeper may make the writers' fence too ([`super::barrier`]). The code is generic over
//! the flag, which may lie in memory of two processes, so that loom can try every interleaving of it
//! (`tests/loom`).
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A word of flags that sleepers set and writers take.
pub trait Flags {
    /// Sets these bits.
    fn set(&self, bits: u32);
    /// Clears these bits.
    fn clear(&self, bits: u32);
    /// Returns the bits, without any ordering.
    fn peek(&self) -> u32;
    /// Takes all bits.
    fn take(&self) -> u32;
    /// Orders all earlier accesses of this thread before all later ones.
    fn fence();
    /// Orders the set bits of a sleeper before its look: a fence, and whatever the sleeper has promised to do
    /// for its writers.
    #[inline]
    fn sleeper_fence(&self) {
        Self::fence();
    }
}

impl Flags for AtomicU32 {
    #[inline]
    fn set(&self, bits: u32) {
        self.fetch_or(bits, Ordering::Relaxed);
    }

    #[inline]
    fn clear(&self, bits: u32) {
        self.fetch_and(!bits, Ordering::Relaxed);
    }

    #[inline]
    fn peek(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn take(&self) -> u32 {
        self.swap(0, Ordering::AcqRel)
    }

    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Arms: from now on a writer rings. Check the data once more before sleeping.
#[inline]
pub fn arm<F: Flags>(flags: &F, bits: u32) {
    flags.set(bits);
    flags.sleeper_fence();
}

/// After the data are stored: returns the bits of the sleepers that must be rung now.
#[inline]
pub fn take_armed<F: Flags>(flags: &F) -> u32 {
    F::fence();
    take_armed_fenced(flags)
}

/// Like [`take_armed`], for a caller that has made the fence: one is enough for many flags.
#[inline]
pub fn take_armed_fenced<F: Flags>(flags: &F) -> u32 {
    if flags.peek() == 0 { 0 } else { flags.take() }
}
