//! Completion queues, and channels to sleep on for them.
use super::Fabric;
use catchment_verbs::{Completion, CompletionChannel, Cq, CqError, Wake, event};
use std::{
    any::Any,
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// Who sleeps looks so often whether time can move.
const NAP: Duration = Duration::from_millis(1);

/// A completion with the place in its work queue that polling it frees.
pub(super) struct Entry {
    pub(super) completion: Completion,
    pub(super) seq: u64,
    pub(super) of_send: bool,
}

/// What wants an event on the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Nothing,
    Solicited,
    Any,
}

/// A completion queue, as the fabric knows it.
pub(super) struct CqData {
    pub(super) device: u32,
    pub(super) channel: Option<u32>,
    pub(super) overrun: bool,
    capacity: u32,
    entries: VecDeque<Entry>,
    wanted: Wanted,
}

impl CqData {
    pub(super) fn new(device: u32, channel: Option<u32>, capacity: u32) -> CqData {
        CqData {
            device,
            channel,
            overrun: false,
            capacity,
            entries: VecDeque::new(),
            wanted: Wanted::Nothing,
        }
    }

    /// False when there is no room.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        let fits = self.entries.len() < self.capacity as usize;
        if fits {
            self.entries.push_back(entry);
        }
        fits
    }

    /// The channel to ring for a completion, if one is wanted.
    pub(super) fn take_notification(&mut self, solicited: bool) -> Option<u32> {
        let rings = match self.wanted {
            Wanted::Nothing => false,
            Wanted::Solicited => solicited,
            Wanted::Any => true,
        };
        if !rings {
            return None;
        }
        self.wanted = Wanted::Nothing;
        self.channel
    }
}

/// A channel, as the fabric knows it.
pub(super) struct ChannelData {
    fd: Arc<OwnedFd>,
}

impl ChannelData {
    pub(super) fn ring(&self) {
        event::ring(&*self.fd);
    }
}

/// A channel of a device.
pub(super) struct SimChannel {
    pub(super) fabric: Fabric,
    pub(super) device: u32,
    pub(super) id: u32,
    fd: Arc<OwnedFd>,
}

impl SimChannel {
    pub(super) fn new(fabric: Fabric, device: u32) -> io::Result<SimChannel> {
        let fd = Arc::new(event::event_fd()?);
        let mut world = fabric.world();
        let id = world.number();
        let data = ChannelData {
            fd: Arc::clone(&fd),
        };
        world.channels.insert(id, data);
        drop(world);
        Ok(SimChannel {
            fabric,
            device,
            id,
            fd,
        })
    }
}

impl CompletionChannel for SimChannel {
    /// Lets things happen in virtual time until there is an event; what another thread must do is
    /// waited for in real time.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut left = timeout;
        loop {
            if event::take_rings(&*self.fd) {
                return Ok(true);
            }
            if self.fabric.idle() {
                continue;
            }
            // The other thread may end and leave its last request to us.
            let nap = left.min(NAP);
            if event::wait(self.fd.as_fd(), nap)? == Wake::Rung {
                return Ok(true);
            }
            left -= nap;
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    fn wake(&self) {
        event::ring(&*self.fd);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SimChannel {
    fn drop(&mut self) {
        self.fabric.world().channels.remove(&self.id);
    }
}

/// A completion queue of a device.
pub(super) struct SimCq {
    pub(super) fabric: Fabric,
    pub(super) device: u32,
    pub(super) id: u32,
    pub(super) capacity: u32,
}

impl SimCq {
    fn take(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let mut world = self.fabric.world();
        let world = &mut *world;
        let Some(queue) = world.cqs.get_mut(&self.id) else {
            return Ok(0);
        };
        if queue.overrun {
            let capacity = self.capacity;
            return Err(CqError::Overrun { capacity });
        }
        let count = out.len().min(queue.entries.len());
        for (place, entry) in out.iter_mut().zip(queue.entries.drain(..count)) {
            *place = entry.completion;
            if let Some(qp) = world.qps.get_mut(&entry.completion.qpn) {
                qp.free_through(entry.seq, entry.of_send);
            }
        }
        Ok(count)
    }
}

impl Cq for SimCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let count = self.take(out)?;
        if count > 0 || !self.fabric.idle() {
            return Ok(count);
        }
        self.take(out)
    }

    fn req_notify(&self, solicited_only: bool) {
        if let Some(queue) = self.fabric.world().cqs.get_mut(&self.id) {
            queue.wanted = match (queue.wanted, solicited_only) {
                (Wanted::Any, _) | (_, false) => Wanted::Any,
                (Wanted::Nothing | Wanted::Solicited, true) => Wanted::Solicited,
            };
        }
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SimCq {
    fn drop(&mut self) {
        self.fabric.world().cqs.remove(&self.id);
    }
}
