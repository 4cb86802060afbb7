//! The server: accepts clients, and runs a thread for each.
use super::error::failed;
use super::{Control, Link, LinkError, LinkOptions, Listener, Stopper};
use catchment_channel::EndError;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Context, event};
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the server wakes without an event.
const WAKE_EVERY: Duration = Duration::from_secs(1);

/// What is done for a client.
pub trait Service: Send + Sync + 'static {
    /// Serves one client from its first to its last message, on a thread of its own. The link is
    /// closed when this returns: received messages must be released by then.
    fn serve(&self, client: u64, link: &mut Link) -> Result<(), EndError>;
}

impl<F> Service for F
where
    F: Fn(u64, &mut Link) -> Result<(), EndError> + Send + Sync + 'static,
{
    fn serve(&self, client: u64, link: &mut Link) -> Result<(), EndError> {
        self(client, link)
    }
}

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub link: LinkOptions,
    /// Clients served at once; more are refused.
    pub max_clients: usize,
}

impl ServerOptions {
    /// With 256 clients at most.
    pub fn new(link: LinkOptions) -> Self {
        Self { link, max_clients: 256 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerCounts {
    /// Clients that have a thread now.
    pub present: u64,
    /// Clients that connected and ended without an error.
    pub served: u64,
    pub failed: u64,
    pub refused: u64,
}

/// A running server. Dropping it ends all its links.
pub struct Server {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    context: Arc<dyn Context>,
    options: ServerOptions,
    service: Box<dyn Service>,
    stop: AtomicBool,
    wake: OwnedFd,
    clients: Mutex<BTreeMap<u64, Client>>,
    /// Without those present.
    counts: Mutex<ServerCounts>,
}

#[derive(Default)]
struct Client {
    stopper: Option<Stopper>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl Server {
    /// Starts accepting clients.
    pub fn start(
        listener: Listener,
        context: Arc<dyn Context>,
        options: ServerOptions,
        service: impl Service,
    ) -> Result<Self, LinkError> {
        let shared = Arc::new(Shared {
            context,
            options,
            service: Box::new(service),
            stop: AtomicBool::new(false),
            wake: event::event_fd().map_err(failed("an event counter"))?,
            clients: Mutex::default(),
            counts: Mutex::default(),
        });
        let address = listener.address();
        let acceptor = Arc::clone(&shared);
        let thread = thread::Builder::new().name("duplex-accept".into());
        let thread = thread.spawn(move || acceptor.accept_clients(&listener));
        let thread =
            thread.map_err(|source| LinkError::Thread { what: "accepting clients", source })?;
        Ok(Self { shared, address, acceptor: Some(thread) })
    }

    /// Returns the address to connect to; `None` for a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub fn counts(&self) -> ServerCounts {
        let present = self.shared.clients.lock().values().filter(|c| !c.ended).count();
        ServerCounts { present: present as u64, ..*self.shared.counts.lock() }
    }

    /// Ends all links, waits until every thread has ended, and returns the final counts.
    pub fn stop(mut self) -> ServerCounts {
        self.end();
        self.counts()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        event::ring(&self.shared.wake);
        if let Some(acceptor) = self.acceptor.take() {
            // A service that panicked ended its own thread only.
            let _ = acceptor.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn accept_clients(self: Arc<Self>, listener: &Listener) {
        let mut number = 0;
        while !self.stop.load(Ordering::SeqCst) {
            self.sleep(listener);
            self.reap(|client| client.ended);
            loop {
                match listener.accept() {
                    Ok(Some(control)) => self.take_client(number, control),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!("cannot accept a client: {error}");
                        break;
                    }
                }
                number += 1;
            }
        }
        for client in self.clients.lock().values() {
            client.stopper.iter().for_each(Stopper::stop);
        }
        self.reap(|_| true);
    }

    /// Waits until a client connects or ends.
    fn sleep(&self, listener: &Listener) {
        let mut fds = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        // Interrupted or not, the caller checks for clients that came and went.
        let _ = rustix::event::poll(&mut fds, Some(&event::timespec(WAKE_EVERY)));
        event::take_rings(&self.wake);
    }

    /// Joins the threads of these clients.
    fn reap(&self, which: impl Fn(&Client) -> bool) {
        let gone: Vec<_> = {
            let mut clients = self.clients.lock();
            let numbers: Vec<u64> = clients
                .iter()
                .filter(|(_, client)| which(client))
                .map(|(number, _)| *number)
                .collect();
            numbers.iter().filter_map(|n| clients.remove(n)).collect()
        };
        for thread in gone.into_iter().filter_map(|client| client.thread) {
            // A service that panicked has ended its own link only.
            let _ = thread.join();
        }
    }

    fn take_client(self: &Arc<Self>, number: u64, control: Control) {
        if self.clients.lock().len() >= self.options.max_clients {
            control.refuse("it has as many clients as it takes");
            self.counts.lock().refused += 1;
            return;
        }
        self.clients.lock().insert(number, Client::default());
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("duplex-{number}")).spawn(move || {
            // Notes the end even when the service panics.
            let _ended = Ended { shared: &shared, number };
            shared.serve(number, control);
        });
        match thread {
            Ok(thread) => {
                if let Some(client) = self.clients.lock().get_mut(&number) {
                    client.thread = Some(thread);
                }
            }
            Err(error) => {
                tracing::warn!("cannot start a thread for a client: {error}");
                self.clients.lock().remove(&number);
                self.counts.lock().refused += 1;
            }
        }
    }

    fn serve(&self, number: u64, control: Control) {
        let options = LinkOptions {
            name: format!("{}-{number}", self.options.link.name),
            ..self.options.link.clone()
        };
        let mut link = match Link::accept(control, Arc::clone(&self.context), &options) {
            Ok(link) => link,
            Err(error) => {
                tracing::debug!("client {number} was not connected: {error}");
                self.counts.lock().refused += 1;
                return;
            }
        };
        if let Some(client) = self.clients.lock().get_mut(&number) {
            client.stopper = Some(link.stopper());
        }
        if self.stop.load(Ordering::SeqCst) {
            link.stopper().stop();
        }
        let result = self.service.serve(number, &mut link);
        let closed = link.close();
        match result {
            Ok(()) => self.counts.lock().served += 1,
            Err(error) => {
                self.counts.lock().failed += 1;
                tracing::debug!("client {number}: {error}");
            }
        }
        if let Err(error) = closed {
            tracing::warn!("client {number} was not closed cleanly: {error}");
        }
    }
}

struct Ended<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.shared.clients.lock().get_mut(&self.number) {
            client.ended = true;
        }
        event::ring(&self.shared.wake);
    }
}
