//! The thread that waits for the asynchronous events of a device.
use crate::device::Device;
use catchment_verbs::event::{event_fd, ring, timespec};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often to check for the removal of a device that reports no event for it.
const LOOK: Duration = Duration::from_secs(2);

/// The running thread. Dropping this ends it.
pub(crate) struct EventThread {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl EventThread {
    pub(crate) fn start(device: Arc<Device>) -> io::Result<Self> {
        let stop = Arc::new(event_fd()?);
        let stopped = Arc::clone(&stop);
        let name = format!("ibv-{}", device.place.device);
        let thread = thread::Builder::new().name(name).spawn(move || run(&device, &stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        ring(&*self.stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(device: &Device, stop: &OwnedFd) {
    let look = device.quirks.is_rxe.then(|| timespec(LOOK));
    while !device.is_gone() {
        let fds = &mut [
            PollFd::from_borrowed_fd(device.handle.async_fd(), PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match rustix::event::poll(fds, look.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "waiting for device events");
                return;
            }
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        take_events(device);
        if look.is_some() && !device.uverbs.exists() {
            device.lose("it was removed");
        }
    }
}

fn take_events(device: &Device) {
    loop {
        match device.handle.next_event() {
            Ok(event) => device.handle_event(event),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                device.lose(&format!("it was removed ({error})"));
                return;
            }
        }
    }
}
