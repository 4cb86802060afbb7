//! The channel between the two roles for everything that is not measured: JSON lines over a unix
//! socket.
use anyhow::{Context, Result, bail};
use catchment_verbs::mem::{Region, RegionOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::Arc,
};

/// One end of the channel.
pub(crate) struct Control {
    reader: BufReader<UnixStream>,
}

impl Control {
    /// Wraps a connected socket.
    pub(crate) fn new(socket: UnixStream) -> Control {
        Control {
            reader: BufReader::new(socket),
        }
    }

    /// Sends a message.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.reader
            .get_mut()
            .write_all(&line)
            .context("the other role is gone")
    }

    /// Whether a message or the end is there within this time.
    pub(crate) fn has_more(&self, patience: Timespec) -> Result<bool> {
        let mut fds = [PollFd::new(self.reader.get_ref(), PollFlags::IN)];
        Ok(!self.reader.buffer().is_empty() || poll(&mut fds, Some(&patience))? > 0)
    }

    /// Waits for a message.
    pub(crate) fn recv<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("the other role is gone");
        }
        serde_json::from_str(&line).with_context(|| format!("unexpected message {line:?}"))
    }

    /// Allocates memory and lets the other role map it with [`Control::share_in`].
    pub(crate) fn share_out(&mut self, bytes: usize) -> Result<Arc<Region>> {
        let region = Region::alloc(bytes, RegionOptions::default())?;
        self.send(&Shared {
            pid: std::process::id(),
            fd: region.fd().as_raw_fd(),
            bytes,
        })?;
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
