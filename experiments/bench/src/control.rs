//! What the two processes of a measurement tell each other beside it: JSON lines over a socket. They end
//! together, so that nobody waits for ever.
use anyhow::{Context, Result};
use catchment_verbs::mem::{Region, RegionOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Control(catchment_perf::Control<UnixStream>);

impl Control {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self(catchment_perf::Control::with_limit(socket, usize::MAX))
    }

    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        self.0.send(message).context("the other process is gone")
    }

    /// Returns whether a message or the end comes within this time.
    pub(crate) fn has_more(&self, patience: Duration) -> Result<bool> {
        Ok(self.0.has_more(patience)?)
    }

    pub(crate) fn recv<T: DeserializeOwned>(&mut self) -> Result<T> {
        let message = self.0.recv("a message of the other process", Duration::MAX);
        Ok(message?)
    }

    pub(crate) fn meet(&mut self) -> Result<()> {
        Ok(self.0.meet(Duration::MAX)?)
    }

    /// Allocates memory and lets the other role map it with [`Control::share_in`].
    pub(crate) fn share_out(&mut self, bytes: usize) -> Result<Arc<Region>> {
        let region = Region::alloc(bytes, RegionOptions::default())?;
        self.send(&Shared { pid: std::process::id(), fd: region.fd()?.as_raw_fd(), bytes })?;
        self.recv::<()>()?;
        Ok(region)
    }

    /// Maps the memory that the other role allocated.
    pub(crate) fn share_in(&mut self) -> Result<Arc<Region>> {
        let Shared { pid, fd, bytes } = self.recv()?;
        let path = format!("/proc/{pid}/fd/{fd}");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("opening {path}"))?;
        let region = Region::from_peer(file.into(), bytes, true)?;
        self.send(&())?;
        Ok(region)
    }
}

#[derive(Serialize, Deserialize)]
struct Shared {
    pid: u32,
    fd: i32,
    bytes: usize,
}
