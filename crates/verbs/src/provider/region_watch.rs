//! The doorbell of a region, created when a thread first wants to sleep on it.
use crate::Watch;
use crate::wait::Doorbell;
use crate::wait::arm::Flags;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

/// A [`Doorbell`] that needs a descriptor only once it is used. Ringing an unused one is one load.
#[derive(Debug)]
pub struct RegionWatch<F = AtomicU32>(OnceLock<Arc<Doorbell<F>>>);

impl<F> Default for RegionWatch<F> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<F: Flags + Send + Sync> RegionWatch<F> {
    /// Returns the doorbell; the first call creates it, armed by the flag that `flag` returns.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn get_or_create(&self, flag: impl FnOnce() -> F) -> io::Result<&Arc<Doorbell<F>>> {
        if let Some(doorbell) = self.0.get() {
            return Ok(doorbell);
        }
        let doorbell = Arc::new(Doorbell::with_flag(flag())?);
        // Of two threads that create one, the second drops its own.
        Ok(self.0.get_or_init(|| doorbell))
    }

    /// Returns whether the doorbell was created.
    #[inline]
    pub fn exists(&self) -> bool {
        self.0.get().is_some()
    }

    /// Rings the sleeper that has armed. The caller has made a fence after the data.
    #[inline]
    pub fn ring_fenced(&self) {
        if let Some(doorbell) = self.0.get() {
            doorbell.ring_fenced();
        }
    }

    /// Wakes a sleeper, armed or not.
    pub fn wake(&self) {
        if let Some(doorbell) = self.0.get() {
            doorbell.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wake;
    use std::time::Duration;

    #[test]
    fn all_sleepers_share_the_doorbell_that_the_first_one_created() {
        let watch = RegionWatch::default();
        watch.ring_fenced();
        watch.wake();
        assert!(!watch.exists());
        let first = Arc::clone(watch.get_or_create(AtomicU32::default).unwrap());
        assert!(Arc::ptr_eq(&first, watch.get_or_create(AtomicU32::default).unwrap()));
        first.arm();
        watch.ring_fenced();
        assert_eq!(first.wait(Duration::ZERO).unwrap(), Wake::Rung);
    }
}
