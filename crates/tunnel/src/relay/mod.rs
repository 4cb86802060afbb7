//! The thread of an end: it moves bytes between the sockets of programs and the channel, and sleeps in one
//! epoll while there is nothing to move, after it has looked a little longer where answers come soon.
mod connection;
mod link;
mod local;

pub use local::Local;

use crate::mux::{Limits, Side};
use catchment_channel::Channel;
use catchment_verbs::event::{self, event_fd, take_rings};
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::SpinBudget;
use link::Link;
use local::{abort, send_at_once};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Numbers under which epoll reports what is not a stream.
const LISTENER: u64 = u64::MAX;
const MAILBOX: u64 = u64::MAX - 1;
const CHANNEL: u64 = u64::MAX - 2;
/// Events that are taken from epoll at a time.
const EVENTS: usize = 128;
/// Clients that are accepted before others have their turn.
const ACCEPTS: usize = 64;
/// Looks that find nothing last so long at most before the thread sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Pause of accepting while the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What an end has done.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections of programs that began.
    pub connections: AtomicU64,
    /// Those that are open.
    pub open: AtomicU64,
    /// Those that broke: a program, the service's refusal, or the end of the session.
    pub broken: AtomicU64,
    /// Clients that were turned away at once: no session, or too many.
    pub turned_away: AtomicU64,
    /// Bytes read from programs.
    pub bytes_sent: AtomicU64,
    /// Bytes for programs.
    pub bytes_received: AtomicU64,
    /// Messages that went over the queue pair.
    pub messages_sent: AtomicU64,
    /// Messages that came over it.
    pub messages_received: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// A session whose streams are to be moved.
pub(crate) struct Connected {
    pub(crate) channel: Channel,
    pub(crate) limits: Limits,
    /// Longest message.
    pub(crate) payload_bytes: u32,
    /// The service, at its end.
    pub(crate) service: Option<Local>,
    /// Told why, if the channel ends before it is taken away.
    pub(crate) failed: oneshot::Sender<String>,
}

enum Command {
    Connect(Box<Connected>),
    Disconnect,
    Stop,
}

/// How other threads reach the relay.
pub(crate) struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    bell: OwnedFd,
}

impl Mailbox {
    fn put(&self, command: Command) {
        self.commands.lock().push_back(command);
        event::ring(&self.bell);
    }
}

/// The thread. It ends when this is dropped, and with it all connections.
pub(crate) struct Relay {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts it, without a session. Clients of the listener are turned away until there is one.
    pub(crate) fn start(listener: Option<Socket>, counters: Arc<Counters>) -> io::Result<Self> {
        let bell = event_fd()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &bell, EventData::new_u64(MAILBOX), EventFlags::IN)?;
        if let Some(listener) = &listener {
            epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        }
        let mailbox = Arc::new(Mailbox { commands: Mutex::new(VecDeque::new()), bell });
        let worker = Worker {
            epoll,
            mailbox: Arc::clone(&mailbox),
            listener,
            accepts_at: None,
            link: None,
            counters,
            stopping: false,
        };
        let thread = std::thread::Builder::new().name("tunnel".to_owned());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Self { mailbox, thread: Some(thread) })
    }

    /// Moves the streams of this session from now on.
    pub(crate) fn connect(&self, connected: Connected) {
        self.mailbox.put(Command::Connect(Box::new(connected)));
    }

    /// Ends the streams of the session: their programs see that the connections broke.
    pub(crate) fn disconnect(&self) {
        self.mailbox.put(Command::Disconnect);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.mailbox.put(Command::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the tunnel panicked");
        }
    }
}

struct Worker {
    epoll: OwnedFd,
    mailbox: Arc<Mailbox>,
    listener: Option<Socket>,
    /// When to accept again.
    accepts_at: Option<Instant>,
    link: Option<Link>,
    counters: Arc<Counters>,
    stopping: bool,
}

impl Worker {
    fn run(mut self) {
        let mut armed = false;
        let (mut spin, mut busy_at) = (SpinBudget::new(SPIN), Instant::now());
        loop {
            let turn = self.link.as_mut().map(|link| link.turn(&self.epoll));
            let busy = match turn {
                Some(Ok(busy)) => busy,
                Some(Err(reason)) => {
                    self.end_link(Some(reason));
                    continue;
                }
                None => false,
            };
            let now = Instant::now();
            if busy {
                busy_at = now;
            }
            let mut looks = !busy && self.link.is_some() && now - busy_at < spin.now();
            if looks {
                // On few processors, whoever is to answer runs meanwhile.
                std::thread::yield_now();
            } else if !busy
                && !armed
                && let Some(link) = &mut self.link
            {
                match link.arm() {
                    // What comes between the last look and the arming is found by another look.
                    Ok(true) => {
                        armed = true;
                        continue;
                    }
                    Ok(false) => looks = true,
                    Err(reason) => {
                        self.end_link(Some(reason));
                        continue;
                    }
                }
            }
            if !self.wait(!busy && !looks) {
                break;
            }
            if !busy && !looks {
                busy_at = Instant::now();
                spin.learn(busy_at - now);
            }
            armed = false;
        }
        self.end_link(None);
    }

    fn end_link(&mut self, reason: Option<String>) {
        if let Some(link) = self.link.take() {
            link.end(&self.epoll, reason);
        }
    }

    /// Takes what epoll has, and sleeps before if there is nothing to do. Returns false at the end.
    fn wait(&mut self, may_sleep: bool) -> bool {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let timeout = match self.accepts_at {
            _ if !may_sleep => Some(Timespec::default()),
            None => None,
            Some(at) => Some(event::timespec(at.saturating_duration_since(Instant::now()))),
        };
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(found) => found,
            Err(Errno::INTR) => return true,
            Err(error) => {
                tracing::error!(%error, "cannot wait for sockets");
                return false;
            }
        };
        for event in &*events {
            match event.data.u64() {
                MAILBOX => self.obey(),
                LISTENER => self.accept(),
                CHANNEL => {
                    if let Some(link) = &self.link {
                        link.take_rings();
                    }
                }
                stream => {
                    if let Some(link) = &mut self.link {
                        link.note(stream as u32, event.flags);
                    }
                }
            }
        }
        self.accept_again_if_due();
        !self.stopping
    }

    /// Does what other threads ask for.
    fn obey(&mut self) {
        take_rings(&self.mailbox.bell);
        loop {
            let Some(command) = self.mailbox.commands.lock().pop_front() else { return };
            match command {
                Command::Stop => self.stopping = true,
                Command::Disconnect => self.end_link(None),
                Command::Connect(connected) => {
                    self.end_link(None);
                    match Link::new(*connected, &self.epoll, Arc::clone(&self.counters)) {
                        Ok(link) => self.link = Some(link),
                        Err(error) => tracing::error!(%error, "cannot wait for a channel"),
                    }
                }
            }
        }
    }

    fn accept(&mut self) {
        // A client that knows of the session may be here before the thread knows of it.
        self.obey();
        let Some(listener) = &self.listener else { return };
        for _ in 0..ACCEPTS {
            match listener.accept_raw() {
                Ok((socket, _)) => {
                    send_at_once(&socket);
                    let refused = match &mut self.link {
                        Some(link) if socket.set_nonblocking(true).is_ok() => {
                            link.open(socket, &self.epoll)
                        }
                        Some(_) | None => Some(socket),
                    };
                    if let Some(socket) = refused {
                        add(&self.counters.turned_away, 1);
                        abort(socket);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client; is the limit of open files reached?");
                    let _ = epoll::delete(&self.epoll, listener);
                    self.accepts_at = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn accept_again_if_due(&mut self) {
        if self.accepts_at.is_some_and(|at| at <= Instant::now())
            && let Some(listener) = &self.listener
        {
            self.accepts_at = None;
            let data = EventData::new_u64(LISTENER);
            let _ = epoll::add(&self.epoll, listener.as_fd(), data, EventFlags::IN);
        }
    }
}

/// Returns which side an end with or without a service is.
const fn side(service: Option<&Local>) -> Side {
    if service.is_some() { Side::Service } else { Side::Client }
}
