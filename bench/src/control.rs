//! What the two processes of a measurement tell each other beside it: JSON lines over a socket.
use anyhow::{Context, Result, bail};
use catchment_verbs::mem::{Region, RegionOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

/// One end of the channel.
pub(crate) struct Control<S = UnixStream> {
    reader: BufReader<S>,
}

impl<S: Read + Write + AsFd> Control<S> {
    /// Wraps a connected socket.
    pub(crate) fn new(socket: S) -> Control<S> {
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
            .context("the other process is gone")
    }

    /// Whether a message or the end is there within this time.
    pub(crate) fn has_more(&self, patience: Timespec) -> Result<bool> {
        let mut fds = [PollFd::new(self.reader.get_ref(), PollFlags::IN)];
        Ok(!self.reader.buffer().is_empty() || poll(&mut fds, Some(&patience))? > 0)
    }

    /// Waits for a message.
    pub(crate) fn recv<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line);
        if read.context("waiting for the other process")? == 0 {
            bail!("the other process is gone");
        }
        serde_json::from_str(&line).with_context(|| format!("unexpected message {line:?}"))
    }

    /// Waits until both processes are here.
    pub(crate) fn meet(&mut self) -> Result<()> {
        self.send(&())?;
        self.recv()
    }
}

impl Control {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order_and_an_end_and_nonsense_are_errors() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Control::new(a), Control::new(b));
        a.send(&1).unwrap();
        a.send(&"two").unwrap();
        assert_eq!(b.recv::<u32>().unwrap(), 1);
        assert_eq!(b.recv::<String>().unwrap(), "two");
        a.send(&"no number").unwrap();
        let error = b.recv::<u32>().unwrap_err().to_string();
        assert!(error.contains("no number"), "{error}");
        drop(a);
        let error = b.recv::<u32>().unwrap_err().to_string();
        assert!(error.contains("gone"), "{error}");
    }

    #[test]
    fn both_meet() {
        let (a, b) = UnixStream::pair().unwrap();
        let other = std::thread::spawn(move || Control::new(b).meet());
        Control::new(a).meet().unwrap();
        other.join().unwrap().unwrap();
    }
}
