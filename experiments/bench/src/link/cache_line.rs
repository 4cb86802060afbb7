//! The floor: one process stores a number, the other one waits for it.
use super::Link;
use crate::control::Control;
use crate::job::{Job, Role, Wait};
use anyhow::Result;
use catchment_verbs::mem::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Two numbers on lines of their own, one for each direction.
pub(crate) struct CacheLine {
    region: Arc<Region>,
    out: usize,
    back: usize,
    sent: u64,
    received: u64,
    wait: Wait,
}

impl CacheLine {
    /// Maps the page of the two lines in both processes.
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Self> {
        let (region, out, back) = match role {
            Role::Source => (control.share_out(4096)?, 0, 256),
            Role::Collector => (control.share_in()?, 256, 0),
        };
        Ok(Self { region, out, back, sent: 0, received: 0, wait: job.wait })
    }
}

impl CacheLine {
    /// Returns how often the other side has sent.
    #[inline]
    pub(super) fn came(&self) -> Result<u64> {
        Ok(self.region.whole().atomic_u64(self.back)?.load(Ordering::Acquire))
    }

    /// Takes the other side's next number if it is there.
    #[inline]
    pub(crate) fn try_recv(&mut self) -> Result<bool> {
        let came = self.came()? != self.received;
        self.received += u64::from(came);
        Ok(came)
    }
}

impl Link for CacheLine {
    #[inline]
    fn send(&mut self, _content: Option<&[u8]>) -> Result<()> {
        self.sent += 1;
        self.region.whole().atomic_u64(self.out)?.store(self.sent, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn recv(&mut self, _content: Option<&mut Vec<u8>>) -> Result<()> {
        let line = self.region.whole().atomic_u64(self.back)?;
        while line.load(Ordering::Acquire) == self.received {
            self.wait.pause();
        }
        self.received += 1;
        Ok(())
    }
}
