//! The streams of one session: their sockets, the multiplexer and the channel.
use super::connection::{Broken, Connection};
use super::local::{Local, abort, send_at_once};
use super::{CHANNEL, Connected, Counters, add, side};
use crate::frame::Batch;
use crate::mux::{Event, Mux};
use catchment_channel::{Channel, ClaimError};
use catchment_verbs::Watch;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use socket2::Socket;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// Messages that are taken, or sent, before the other direction has its turn.
const TURN: usize = 8;
/// Room in a message that is worth a read.
const LEAST_BYTES: usize = 512;
/// Bytes that a stream may send before others have their turn.
const SHARE_BYTES: usize = 16 << 10;

pub(super) struct Link {
    channel: Channel,
    watch: Arc<dyn Watch>,
    mux: Mux,
    sockets: Sockets,
    /// The message that is sent next.
    batch: Batch,
    /// The message that was received last.
    inbox: Vec<u8>,
    packet: u64,
    failed: oneshot::Sender<String>,
}

/// What events of the multiplexer change.
struct Sockets {
    service: Option<Local>,
    all: Vec<Option<Connection>>,
    /// Streams that may be read, in their turns.
    readable: VecDeque<u32>,
    counters: Arc<Counters>,
}

impl Link {
    pub(super) fn new(
        connected: Connected,
        epoll: &OwnedFd,
        counters: Arc<Counters>,
    ) -> Result<Self, Errno> {
        let Connected { channel, limits, payload_bytes, service, failed } = connected;
        let watch = channel.watch();
        let fd = watch.as_fd().ok_or(Errno::NOTSUP)?;
        epoll::add(epoll, fd, EventData::new_u64(CHANNEL), EventFlags::IN)?;
        Ok(Self {
            mux: Mux::new(side(service.as_ref()), limits),
            sockets: Sockets { service, all: Vec::new(), readable: VecDeque::new(), counters },
            batch: Batch::new(payload_bytes as usize),
            inbox: Vec::with_capacity(payload_bytes as usize),
            packet: 0,
            channel,
            watch,
            failed,
        })
    }

    /// Makes the next completion ring, and has the peer wake this end. Returns whether it may sleep then, after
    /// another look.
    pub(super) fn arm(&mut self) -> Result<bool, String> {
        let may_sleep = self.channel.rest().map_err(|error| error.to_string())?;
        self.watch.arm();
        Ok(may_sleep)
    }

    pub(super) fn take_rings(&self) {
        let _ = self.watch.wait(Duration::ZERO);
    }

    /// Ends all connections, and says why if it was this end's wish.
    pub(super) fn end(self, epoll: &OwnedFd, reason: Option<String>) {
        let Self { channel, watch, mut sockets, failed, .. } = self;
        if let Some(fd) = watch.as_fd() {
            let _ = epoll::delete(epoll, fd);
        }
        drop(watch);
        for stream in 0..sockets.all.len() {
            sockets.abort(stream as u32);
        }
        if let Err(error) = channel.close() {
            tracing::warn!(%error, "a channel was not released");
        }
        if let Some(reason) = reason {
            let _ = failed.send(reason);
        }
    }

    /// Begins the stream of a client; returns its socket if there is no room for one.
    pub(super) fn open(&mut self, socket: Socket, epoll: &OwnedFd) -> Option<Socket> {
        let Some(stream) = self.mux.open() else { return Some(socket) };
        if watch(epoll, &socket, stream).is_err() {
            self.mux.reset(stream);
            return Some(socket);
        }
        self.sockets.put(stream, Connection::new(socket, false));
        None
    }

    /// Notes what epoll says of a stream's socket.
    pub(super) fn note(&mut self, stream: u32, flags: EventFlags) {
        let Some(connection) = self.sockets.get(stream) else { return };
        let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let (read, write) = (flags.contains(EventFlags::IN), flags.contains(EventFlags::OUT));
        connection.note(read, write, hung_up);
        if connection.connecting && (write || hung_up) {
            connection.connecting = false;
            match connection.socket.take_error() {
                Ok(None) => self.mux.accept(stream),
                Ok(Some(error)) | Err(error) => {
                    let Sockets { service, .. } = &self.sockets;
                    let name = service.as_ref().map_or_else(String::new, ToString::to_string);
                    self.mux.refuse(stream, &format!("{name}: {error}"));
                    self.sockets.abort(stream);
                    return;
                }
            }
        }
        let Some(connection) = self.sockets.get(stream) else { return };
        let broke =
            flags.contains(EventFlags::ERR) && !matches!(connection.socket.take_error(), Ok(None));
        if broke || connection.flush(stream, &mut self.mux).is_err() {
            self.sockets.give_up(stream, &mut self.mux);
            return;
        }
        self.sockets.close_if_done(stream, &mut self.mux);
        self.sockets.queue(stream, &self.mux);
    }

    /// Takes messages and sends messages. Returns whether there were any.
    pub(super) fn turn(&mut self, epoll: &OwnedFd) -> Result<bool, String> {
        let received = self.receive(epoll)?;
        let sent = self.send()?;
        Ok(received || sent)
    }

    fn receive(&mut self, epoll: &OwnedFd) -> Result<bool, String> {
        let Self { channel, mux, sockets, inbox, .. } = self;
        for taken in 0..TURN {
            let message = channel.take().map_err(|error| error.to_string())?;
            let Some(message) = message else { return Ok(taken > 0) };
            let payload = message.payload();
            inbox.resize(payload.bytes(), 0);
            payload.read_at(0, inbox).map_err(|error| error.to_string())?;
            drop(message);
            add(&sockets.counters.messages_received, 1);
            let told =
                mux.receive(inbox, |mux, stream, event| sockets.obey(stream, event, mux, epoll));
            told.map_err(|fault| format!("the peer broke the protocol: {fault}"))?;
        }
        Ok(true)
    }

    fn send(&mut self) -> Result<bool, String> {
        for sent in 0..TURN {
            if self.mux.fill(&mut self.batch) {
                self.sockets.read(&mut self.mux, &mut self.batch);
                // What reading has found out goes with it.
                self.mux.fill(&mut self.batch);
            }
            if self.batch.is_empty() {
                return Ok(sent > 0);
            }
            let bytes = self.batch.bytes().len() as u32;
            let claim = match self.channel.claim(0, bytes) {
                Ok(claim) => claim,
                // While the path is busy, more gathers in the message.
                Err(ClaimError::WouldBlock) => return Ok(sent > 0),
                Err(error) => return Err(error.to_string()),
            };
            let memory = self.channel.memory(&claim);
            memory.write_at(0, self.batch.bytes()).map_err(|error| error.to_string())?;
            self.channel.commit(claim, self.packet).map_err(|error| error.to_string())?;
            self.packet += 1;
            self.batch.clear();
            add(&self.sockets.counters.messages_sent, 1);
        }
        Ok(true)
    }
}

/// From now on epoll reports each change of the socket.
fn watch(epoll: &OwnedFd, socket: &Socket, stream: u32) -> Result<(), Errno> {
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(epoll, socket, EventData::new_u64(stream.into()), flags)
}

impl Sockets {
    fn get(&mut self, stream: u32) -> Option<&mut Connection> {
        self.all.get_mut(stream as usize)?.as_mut()
    }

    fn put(&mut self, stream: u32, connection: Connection) {
        let length = self.all.len().max(stream as usize + 1);
        self.all.resize_with(length, || None);
        self.all[stream as usize] = Some(connection);
        add(&self.counters.connections, 1);
        add(&self.counters.open, 1);
    }

    fn remove(&mut self, stream: u32) -> Option<Socket> {
        let connection = self.all.get_mut(stream as usize)?.take()?;
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
        Some(connection.socket)
    }

    /// Closes a socket so that its program sees that the connection broke.
    fn abort(&mut self, stream: u32) {
        if let Some(socket) = self.remove(stream) {
            add(&self.counters.broken, 1);
            abort(socket);
        }
    }

    /// Ends a stream whose connection broke here.
    fn give_up(&mut self, stream: u32, mux: &mut Mux) {
        mux.reset(stream);
        self.abort(stream);
    }

    fn close_if_done(&mut self, stream: u32, mux: &mut Mux) {
        if self.get(stream).is_some_and(|connection| connection.is_done()) {
            mux.close(stream);
            self.remove(stream);
        }
    }

    /// Puts a stream in the queue of those that may be read, if it is and has credit.
    fn queue(&mut self, stream: u32, mux: &Mux) {
        let Some(connection) = self.get(stream) else { return };
        if connection.may_read() && !connection.queued && mux.sendable(stream) > 0 {
            connection.queued = true;
            self.readable.push_back(stream);
        }
    }

    /// Does what the peer says of a stream.
    fn obey(&mut self, stream: u32, event: Event<'_>, mux: &mut Mux, epoll: &OwnedFd) {
        match event {
            Event::Opened => self.connect(stream, mux, epoll),
            Event::Accepted => {}
            Event::Refused(reason) => {
                let reason = catchment_session::names::printable(reason, 256);
                tracing::info!(stream, reason, "the service refused a connection");
                self.abort(stream);
            }
            Event::Reset => self.abort(stream),
            Event::Room => self.queue(stream, mux),
            Event::Data(bytes) => {
                add(&self.counters.bytes_received, bytes.len() as u64);
                let Some(connection) = self.get(stream) else { return };
                if let Err(Broken) = connection.deliver(stream, bytes, mux) {
                    self.give_up(stream, mux);
                }
            }
            Event::Finished => {
                if let Some(connection) = self.get(stream) {
                    connection.finish();
                    self.close_if_done(stream, mux);
                }
            }
        }
    }

    fn connect(&mut self, stream: u32, mux: &mut Mux, epoll: &OwnedFd) {
        let Some(service) = &self.service else { return };
        let socket = service.connect();
        let socket = socket.and_then(|socket| {
            send_at_once(&socket);
            watch(epoll, &socket, stream)?;
            Ok(socket)
        });
        match socket {
            Ok(socket) => self.put(stream, Connection::new(socket, true)),
            Err(error) => mux.refuse(stream, &format!("{service}: {error}")),
        }
    }

    /// Reads what programs have written, each its share, until the message is full or nothing is left.
    fn read(&mut self, mux: &mut Mux, batch: &mut Batch) {
        while batch.room() >= LEAST_BYTES
            && let Some(stream) = self.readable.pop_front()
        {
            let Some(connection) = self.get(stream) else { continue };
            connection.queued = false;
            let limit = mux.sendable(stream).min(SHARE_BYTES);
            if limit == 0 || !connection.may_read() {
                continue;
            }
            match connection.read(batch.space(limit)) {
                Ok(Some(0)) => {
                    mux.finish(stream);
                    self.close_if_done(stream, mux);
                }
                Ok(Some(bytes)) => {
                    mux.sent(stream, bytes, batch);
                    add(&self.counters.bytes_sent, bytes as u64);
                    self.queue(stream, mux);
                }
                Ok(None) => {}
                Err(Broken) => self.give_up(stream, mux),
            }
        }
    }
}
