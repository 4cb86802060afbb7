//! A man in the middle of control connections: notes, changes and holds back messages.
use crate::wire::session;
use anyhow::Result;
use serde_json::Value;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Changes a message, or keeps it: the number of its connection, and the message.
type Hook = dyn Fn(usize, Value) -> Option<Value> + Send + Sync;

struct Shared {
    target: SocketAddr,
    hook: Box<Hook>,
    messages: Mutex<Vec<(usize, Value)>>,
    streams: Mutex<Vec<TcpStream>>,
    stop: AtomicBool,
}

/// A relay to one collector. Dropping it ends its connections.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Relay {
    /// Starts a relay that only notes.
    pub(crate) fn start(ip: Ipv4Addr, target: SocketAddr) -> Result<Self> {
        Self::with(ip, target, |_, message| Some(message))
    }

    pub(crate) fn with(
        ip: Ipv4Addr,
        target: SocketAddr,
        hook: impl Fn(usize, Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            hook: Box::new(hook),
            messages: Mutex::default(),
            streams: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        // Connections are opened by this thread, so they stay in its namespace.
        thread::spawn(move || serve(&listener, &theirs));
        Ok(Self { address, shared })
    }

    /// All messages so far, of both sides.
    pub(crate) fn messages(&self) -> Vec<(usize, Value)> {
        self.shared.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first message of this type.
    pub(crate) fn message(&self, kind: &str) -> Option<Value> {
        self.messages().into_iter().find(|(_, m)| m["type"] == kind).map(|(_, message)| message)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.messages().iter().map(|(number, _)| number + 1).max().unwrap_or(0)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let streams = self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let _ = listener.set_nonblocking(true);
    let mut number = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((source, _)) => {
                let _ = source.set_nonblocking(false);
                let _ = join(number, source, shared);
                number += 1;
            }
            // Stopping has no event here.
            Err(_) => thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

fn join(number: usize, source: TcpStream, shared: &Arc<Shared>) -> Result<()> {
    let collector = TcpStream::connect(shared.target)?;
    let mut streams = shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
    let ways = [
        (source.try_clone()?, collector.try_clone()?),
        (collector.try_clone()?, source.try_clone()?),
    ];
    streams.extend([source, collector]);
    drop(streams);
    for (from, to) in ways {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = carry(number, &from, &to, &shared);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    Ok(())
}

fn carry(number: usize, from: &TcpStream, to: &TcpStream, shared: &Shared) -> Result<()> {
    while let Some(message) = session::read(&mut &*from)? {
        shared
            .messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, message.clone()));
        if let Some(message) = (shared.hook)(number, message) {
            session::write(&mut &*to, &message)?;
        }
    }
    Ok(())
}
