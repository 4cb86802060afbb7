//! The measure for throughput: the same blocks, copied by one process that tells nobody.
use super::{Link, pattern};
use crate::control::Control;
use crate::job::{Job, Role};
use crate::sys;
use anyhow::{Result, bail};
use catchment_verbs::mem::{Region, RegionOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Two shared regions of as many blocks as the others have; the collector has none.
pub(crate) struct Memcpy {
    from: Arc<Region>,
    to: Arc<Region>,
    bytes: usize,
    offset: usize,
    /// Counts finished batches, for the collector that only waits.
    finished: Arc<Region>,
    seen: u64,
}

impl Memcpy {
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Self> {
        let (finished, total) = match role {
            Role::Source => (control.share_out(4096)?, job.bytes * job.blocks),
            Role::Collector => (control.share_in()?, job.bytes),
        };
        let from = Region::alloc(total, RegionOptions::default())?;
        let mut block = vec![0; job.bytes];
        for i in 0..total / job.bytes {
            pattern(i as u64, &mut block);
            from.whole().write_at(i * job.bytes, &block)?;
        }
        Ok(Self {
            from,
            to: Region::alloc(total, RegionOptions::default())?,
            bytes: job.bytes,
            offset: 0,
            finished,
            seen: 0,
        })
    }
}

impl Link for Memcpy {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        let from = self.from.slice(self.offset, self.bytes)?;
        let to = self.to.slice(self.offset, self.bytes)?;
        if let Some(content) = content {
            from.write_at(0, content)?;
        }
        sys::plain_memcpy(to, from);
        if let Some(content) = content
            && to.to_vec() != content
        {
            bail!("memcpy produced a wrong copy");
        }
        self.offset += self.bytes;
        if self.offset == self.from.bytes() {
            self.offset = 0;
        }
        Ok(())
    }

    fn recv(&mut self, _content: Option<&mut Vec<u8>>) -> Result<()> {
        bail!("a plain memcpy has no receiver")
    }

    fn finish(&mut self) -> Result<()> {
        self.finished.whole().atomic_u64(0)?.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn attend(&mut self) -> Result<bool> {
        let finished = self.finished.whole().atomic_u64(0)?;
        while finished.load(Ordering::Acquire) == self.seen {
            std::hint::spin_loop();
        }
        self.seen += 1;
        Ok(true)
    }
}
