//! Leave to send, from a transmission controller.
//!
//! | file | |
//! |---|---|
//! | `mod` | what others see: how it is set up, and whether a controller answers |
//! | `gate` | takes committed blocks of a link until they may go; posts their parts |
//! | `machine` | the thread with the UDP socket, which drives the source's end of the protocol |
//! | `moving` | what is on its way: blocks, and events of many frames |
//! | `told` | what the application is told: how the source stands, which frames come too late |
//! | `register` | registers with the controller, on a thread of its own |
//!
//! Each block is a transfer, or the frames of an event together: asked for when the first is committed, sent in parts
//! of at most a chunk within the windows that the controller grants, done when all of it has arrived.
mod gate;
mod machine;
mod moving;
mod register;
mod told;

pub(super) use gate::{LinkGate, NewLink};
pub(super) use machine::Streams;
pub(super) use moving::Event;
pub use told::Missed;
pub(super) use told::{OnMissed, Told};

use super::SourceError;
use crate::session::io::{Address, ClientSecurity};
use crate::session::registration::{Admitted, RegisterError, RegisteredDevice};
use catchment_verbs::sync::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What a source does while no controller answers and no window is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// It sends at the rate that the controller told it for this case; nobody has reserved it.
    #[default]
    SafeRate,
    /// It sends nothing.
    Stop,
}

/// Which controller a source asks.
#[derive(Debug, Clone)]
pub(super) struct ControllerSpec {
    pub(super) address: String,
    pub(super) fallback: Fallback,
}

/// What the threads of a source share with the one that is granted leave.
pub(super) struct Granting {
    bell: OwnedFd,
    stopped: AtomicBool,
    links: Mutex<Vec<NewLink>>,
    /// Told, and not taken by the thread.
    events: Mutex<Vec<Event>>,
    registrations: Mutex<Vec<Result<Admitted, RegisterError>>>,
}

impl std::fmt::Debug for Granting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Granting")
    }
}

impl Granting {
    pub(super) fn new() -> Result<Arc<Self>, SourceError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).map_err(|error| {
            SourceError::Config(format!("cannot make an event descriptor: {error}"))
        })?;
        Ok(Arc::new(Self {
            bell,
            stopped: AtomicBool::new(false),
            links: Mutex::default(),
            events: Mutex::default(),
            registrations: Mutex::default(),
        }))
    }

    /// Starts the thread; `streams` finds the place of the device of a stream.
    pub(super) fn start(
        self: &Arc<Self>,
        spec: &ControllerSpec,
        security: ClientSecurity,
        collector: &str,
        devices: Vec<RegisteredDevice>,
        streams: Streams,
        told: Told,
    ) -> Result<JoinHandle<()>, SourceError> {
        let wrong = |error: &dyn std::fmt::Display| SourceError::Config(error.to_string());
        let address: Address = spec.address.parse().map_err(|error| wrong(&error))?;
        let wish = register::Wish::new(address, security, collector.to_owned(), devices)
            .map_err(|error| wrong(&error))?;
        let machine = machine::Machine::new(self.clone(), wish, spec.fallback, streams, told)
            .map_err(|error| wrong(&error))?;
        std::thread::Builder::new()
            .name("catchment-grant".to_owned())
            .spawn(move || machine.run())
            .map_err(|error| wrong(&error))
    }

    /// Makes the gate of a new link.
    pub(super) fn gate(self: &Arc<Self>, blocks: u32) -> Arc<LinkGate> {
        LinkGate::new(self.clone(), blocks as usize)
    }

    /// Hands a link to the thread.
    pub(super) fn add(&self, link: NewLink) {
        self.links.lock().push(link);
        self.ring();
    }

    /// Tells of an event, before its first frame is committed.
    pub(super) fn begin(&self, event: Event) {
        self.events.lock().push(event);
    }

    /// Lets the thread end.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.ring();
    }

    /// Wakes the thread.
    fn ring(&self) {
        // Fails only after 2^64 rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}
