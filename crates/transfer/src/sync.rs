//! The atomics of the slot protocol: those of loom in the model checker.
pub(crate) use catchment_verbs::bias::Threads;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Orders a SeqCst store before a SeqCst load of another location. The model checker treats such
/// accesses as acquire and release, and needs a fence for what they promise.
#[cfg(loom)]
pub(crate) fn between_seq_cst() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// The accesses themselves keep the order.
#[cfg(not(loom))]
#[inline]
pub(crate) fn between_seq_cst() {}

/// Read-modify-write of a word that other threads change only when they are not kept out.
pub(crate) trait Update<T> {
    /// Adds, and returns the value before.
    fn add_by(&self, threads: Threads, n: T, order: Ordering) -> T;
    /// Subtracts, and returns the value before.
    fn sub_by(&self, threads: Threads, n: T, order: Ordering) -> T;
    /// Sets bits, and returns the value before.
    fn or_by(&self, threads: Threads, bits: T, order: Ordering) -> T;
    /// Flips bits, and returns the value before.
    fn xor_by(&self, threads: Threads, bits: T, order: Ordering) -> T;
    /// Stores, and returns the value before.
    fn swap_by(&self, threads: Threads, value: T, order: Ordering) -> T;
    /// Stores if the value before is the expected one, acquires and releases; returns the value
    /// before, as an error if it is another one.
    fn replace_by(&self, threads: Threads, expected: T, value: T) -> Result<T, T>;
}

/// Stores what the closure makes of the value before, and yields that.
macro_rules! store_new {
    ($word:ident, |$before:pat_param| $new:expr) => {{
        let seen = $word.load(Ordering::Acquire);
        let $before = seen;
        $word.store($new, Ordering::Release);
        seen
    }};
}

macro_rules! update {
    ($word:ty, $value:ty) => {
        impl Update<$value> for $word {
            #[inline]
            fn add_by(&self, threads: Threads, n: $value, order: Ordering) -> $value {
                match threads {
                    Threads::One => store_new!(self, |before| before.wrapping_add(n)),
                    Threads::Many => self.fetch_add(n, order),
                }
            }

            #[inline]
            fn sub_by(&self, threads: Threads, n: $value, order: Ordering) -> $value {
                match threads {
                    Threads::One => store_new!(self, |before| before.wrapping_sub(n)),
                    Threads::Many => self.fetch_sub(n, order),
                }
            }

            #[inline]
            fn or_by(&self, threads: Threads, bits: $value, order: Ordering) -> $value {
                match threads {
                    Threads::One => store_new!(self, |before| before | bits),
                    Threads::Many => self.fetch_or(bits, order),
                }
            }

            #[inline]
            fn xor_by(&self, threads: Threads, bits: $value, order: Ordering) -> $value {
                match threads {
                    Threads::One => store_new!(self, |before| before ^ bits),
                    Threads::Many => self.fetch_xor(bits, order),
                }
            }

            #[inline]
            fn swap_by(&self, threads: Threads, value: $value, order: Ordering) -> $value {
                match threads {
                    Threads::One => store_new!(self, |_| value),
                    Threads::Many => self.swap(value, order),
                }
            }

            #[inline]
            fn replace_by(
                &self,
                threads: Threads,
                expected: $value,
                value: $value,
            ) -> Result<$value, $value> {
                match threads {
                    Threads::One => {
                        let before = self.load(Ordering::Acquire);
                        if before != expected {
                            return Err(before);
                        }
                        self.store(value, Ordering::Release);
                        Ok(before)
                    }
                    Threads::Many => {
                        let (done, not) = (Ordering::AcqRel, Ordering::Relaxed);
                        self.compare_exchange(expected, value, done, not)
                    }
                }
            }
        }
    };
}

update!(AtomicU32, u32);
update!(AtomicU64, u64);
