//! A source's leave to send, from a transmission controller.
//!
//! - In: committed blocks of a link ([`LinkGate`] is its [`PostingGate`](catchment_transfer::PostingGate)), events of
//!   many frames, the controller's datagrams and its answers to registrations.
//! - Out: parts of blocks, posted within the windows that the controller grants and at their rates; what the
//!   application is told ([`Told`]): how the source stands, which frames come too late.
//! - Promises: a block is not posted outside of a window, but out of a bucket that was given for small ones, or at the
//!   safe rate while no controller answers ([`Fallback`]); a block that was refused is asked for again; a frame is dropped
//!   only whole, where the controller says so and nothing of it or of the next one of its device was posted; what a link held that ended is left to the next one.
//!
//! Each block is a transfer, or the frames of an event together: asked for when the first is committed, sent in parts
//! of at most a chunk within the windows that the controller grants, done when all of it has arrived. What decides is
//! [`catchment_control::admission::source_side`], without I/O.
//!
//! | file | |
//! |---|---|
//! | `arrivals` | which frames are late at the collector, whatever was forecast |
//! | `dropped` | packet numbers of frames that were dropped |
//! | `gate` | takes committed blocks of a link until they may go |
//! | `machine` | the thread with the UDP socket, which drives the source's end of the protocol |
//! | `moving` | what is on its way: blocks, and events of many frames |
//! | `small` | small frames, which leave without asking |
//! | `told` | what the application is told |
//! | `register` | registers with the controller, on a thread of its own |
#![forbid(unsafe_code)]

mod arrivals;
mod carried;
mod dropped;
mod gate;
mod machine;
mod moving;
mod register;
mod small;
mod told;

pub use gate::{LinkGate, NewLink};
pub use machine::Streams;
pub use moving::Event;
pub use told::{Missed, OnMissed, Told};

use catchment_session::io::{Address, AddressError, ClientSecurity};
use catchment_session::registration::RegisteredDevice;
use catchment_verbs::sync::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The most that is posted at once of what was granted, where the queue pair keeps no rate.
pub const UNPACED_PART_BYTES: u64 = 128 << 10;

/// What a source does while no controller answers and no window is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// It sends at the rate that the controller told it for this case; nobody has reserved it.
    #[default]
    SafeRate,
    /// It sends nothing.
    Stop,
    /// It sends as if there were no controller, also before it has ever reached one.
    Free,
}

/// Which controller a source asks.
#[derive(Debug, Clone)]
pub struct ControllerSpec {
    /// `HOST:PORT`; several, separated by commas, stand in for each other.
    pub addresses: String,
    /// What to do while it does not answer.
    pub fallback: Fallback,
}

/// What a device wants of a controller.
#[derive(Debug, Clone)]
pub struct DeviceWish {
    /// With what it registers.
    pub registered: RegisteredDevice,
    /// A rate, so that its frames need not ask.
    pub periodic: Option<Periodic>,
}

/// So much in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic {
    /// Bytes of blocks in each period.
    pub bytes: u64,
    /// The period, in nanoseconds.
    pub period_ns: u64,
}

/// A source cannot ask a controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The controller's address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The system refuses something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What the threads of a source share with the one that is granted leave.
pub struct Granting {
    bell: OwnedFd,
    stopped: AtomicBool,
    links: Mutex<Vec<NewLink>>,
    /// Told, and not taken by the thread.
    events: Mutex<Vec<Event>>,
    registrations: Mutex<Vec<register::Registration>>,
}

impl std::fmt::Debug for Granting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Granting")
    }
}

impl Granting {
    /// Prepares what the threads share; nothing is asked for before [`Granting::start`].
    ///
    /// # Errors
    /// [`StartError::Io`] if the process has no descriptor left.
    pub fn new() -> Result<Arc<Self>, StartError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell =
            eventfd(0, flags).map_err(|error| failed("make an event descriptor")(error.into()))?;
        Ok(Arc::new(Self {
            bell,
            stopped: AtomicBool::new(false),
            links: Mutex::default(),
            events: Mutex::default(),
            registrations: Mutex::default(),
        }))
    }

    /// Starts the thread; `streams` finds the place of the device of a stream among `devices`.
    ///
    /// # Errors
    /// [`StartError::Address`]; [`StartError::Io`] if there are no random bytes, sockets or threads.
    pub fn start(
        self: &Arc<Self>,
        spec: &ControllerSpec,
        security: ClientSecurity,
        collector: &str,
        devices: Vec<DeviceWish>,
        streams: Streams,
        told: Told,
    ) -> Result<JoinHandle<()>, StartError> {
        let addresses = spec.addresses.split(',').map(|address| address.trim().parse());
        let addresses: Vec<Address> = addresses.collect::<Result<_, _>>()?;
        let (devices, periodic): (Vec<_>, Vec<_>) =
            devices.into_iter().map(|device| (device.registered, device.periodic)).unzip();
        let wish = register::Wish::new(addresses, security, collector.to_owned(), devices)
            .map_err(failed("draw a secret"))?;
        let machine = machine::Machine::new(self.clone(), wish, spec.fallback, streams, told)
            .map(|machine| machine.with_rates(&periodic))
            .map_err(failed("open a UDP socket"))?;
        std::thread::Builder::new()
            .name("catchment-grant".to_owned())
            .spawn(move || machine.run())
            .map_err(failed("start a thread"))
    }

    /// Makes the gate of a new link.
    pub fn gate(self: &Arc<Self>, blocks: u32) -> Arc<LinkGate> {
        LinkGate::new(self.clone(), blocks as usize)
    }

    /// Hands a link to the thread.
    pub fn add(&self, link: NewLink) {
        self.links.lock().push(link);
        self.ring();
    }

    /// Tells of an event, before its first frame is committed.
    pub fn begin(&self, event: Event) {
        self.events.lock().push(event);
    }

    /// Lets the thread end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.ring();
    }

    /// Wakes the thread.
    fn ring(&self) {
        // Fails only after 2^64 rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { action, source }
}
