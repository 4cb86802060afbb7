//! The control group: messages over TCP through as many threads, queues and buffers as a [`Link`] has
//! (S3.15). `TCP_NODELAY` is set.
//!
//! ```text
//! program ─ full buffers ─▶ -sq ─ socket ─▶ -cq ─ arrivals ─▶ -rq ─ inbox ─▶ program
//! ```
//!
//! The thread of the completion queue sleeps in poll(2) until the socket is readable, as that of a
//! [`Link`] sleeps on its completion channel, and reads each message into a free buffer. A message on
//! the wire is 16 bytes of header, little endian (stream: u32, length: u32, packet: u64), and its
//! payload. TCP's own window says when the sender waits.
//!
//! [`Link`]: super::Link
use super::LinkError;
use super::error::failed;
use catchment_channel::{ClaimError, EndError, Tag};
use catchment_verbs::event;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::event::{PollFd, PollFlags};
use std::io::{BufReader, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

const HEADER_BYTES: usize = 16;
/// How often a sleeping thread wakes without an event, as those of a link do.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Short messages are taken out of the socket with one call.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// How many buffers a link has in each direction, and their length.
#[derive(Debug, Clone, Copy)]
pub struct TcpShape {
    pub blocks: u32,
    pub payload_bytes: u32,
}

/// One end of a TCP connection with a thread for what is sent, one that waits for the socket, and one
/// for received messages.
pub struct TcpLink {
    shape: TcpShape,
    free: Receiver<Vec<u8>>,
    jobs: Option<Sender<Job>>,
    inbox: Option<Receiver<TcpMessage>>,
    socket: Arc<Socket>,
    error: Arc<OnceLock<EndError>>,
    threads: Vec<JoinHandle<()>>,
}

/// The socket, and whether this end gives up what was not sent and received.
struct Socket {
    stream: TcpStream,
    stop: AtomicBool,
}

/// A message that is to be sent.
struct Job {
    tag: Tag,
    bytes: usize,
    buffer: Vec<u8>,
}

/// A received message. Dropping it gives its buffer back.
pub struct TcpMessage {
    tag: Tag,
    bytes: usize,
    buffer: Vec<u8>,
    free: Sender<Vec<u8>>,
}

impl TcpMessage {
    pub fn tag(&self) -> Tag {
        self.tag
    }

    pub fn payload(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

impl Drop for TcpMessage {
    fn drop(&mut self) {
        // The link may have ended.
        let _ = self.free.try_send(std::mem::take(&mut self.buffer));
    }
}

impl TcpLink {
    /// Starts the threads of a connected socket; their names begin with `name`.
    pub fn start(stream: TcpStream, shape: TcpShape, name: &str) -> Result<Self, LinkError> {
        stream.set_nodelay(true).map_err(failed("TCP_NODELAY"))?;
        stream.set_nonblocking(true).map_err(failed("setting it non-blocking"))?;
        let socket = Arc::new(Socket { stream, stop: AtomicBool::new(false) });
        let error = Arc::new(OnceLock::new());
        let blocks = shape.blocks as usize;
        let (give, free) = buffers(shape);
        let (jobs, work) = bounded(blocks);
        let (give_back, room) = buffers(shape);
        let (arrivals, arrived) = bounded(blocks);
        let (inbox, messages) = bounded(blocks);
        let mut link = Self {
            shape,
            free,
            jobs: Some(jobs),
            inbox: Some(messages),
            socket: Arc::clone(&socket),
            error: Arc::clone(&error),
            threads: Vec::with_capacity(3),
        };
        link.spawn(format!("{name}-rq"), "the receive queue", move || {
            receive_all(&arrived, &inbox);
            Ok(())
        })?;
        let sending = Arc::clone(&socket);
        link.spawn(format!("{name}-sq"), "the send queue", move || sending.send_all(&work, &give))?;
        let reader = Reader { socket, shape, room, give_back, arrivals };
        link.spawn(format!("{name}-cq"), "the completion queue", move || reader.read_all())?;
        Ok(link)
    }

    fn spawn(
        &mut self,
        name: String,
        what: &'static str,
        run: impl FnOnce() -> Result<(), EndError> + Send + 'static,
    ) -> Result<(), LinkError> {
        let error = Arc::clone(&self.error);
        let thread = thread::Builder::new().name(name).spawn(move || {
            if let Err(end) = run() {
                let _ = error.set(end);
            }
        });
        self.threads.push(thread.map_err(|source| LinkError::Thread { what, source })?);
        Ok(())
    }

    /// Sends these bytes as soon as a buffer is free; gives up after `patience`.
    pub fn send(&mut self, tag: Tag, payload: &[u8], patience: Duration) -> Result<(), ClaimError> {
        let limit = self.shape.payload_bytes;
        if payload.len() > limit as usize {
            let asked = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            return Err(ClaimError::Length { asked, limit, exactly: false });
        }
        let mut buffer = match self.free.recv_timeout(patience) {
            Ok(buffer) => buffer,
            Err(RecvTimeoutError::Timeout) => return Err(ClaimError::WouldBlock),
            Err(RecvTimeoutError::Disconnected) => return Err(self.end().into()),
        };
        buffer[..payload.len()].copy_from_slice(payload);
        let job = Job { tag, bytes: payload.len(), buffer };
        match self.jobs.as_ref().map(|jobs| jobs.send(job)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.end().into()),
        }
    }

    /// Returns the next message; `None` if none came within `patience`.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<TcpMessage>, EndError> {
        let Some(inbox) = &self.inbox else { return Err(EndError::Closed) };
        match inbox.recv_timeout(patience) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.end()),
        }
    }

    fn end(&self) -> EndError {
        self.error.get().copied().unwrap_or(EndError::PeerGone)
    }

    /// Sends what is left, ends the connection, and joins the threads.
    pub fn close(mut self) {
        self.end_threads();
    }

    fn end_threads(&mut self) {
        self.jobs = None;
        self.inbox = None;
        let mut threads = self.threads.drain(..);
        let (receive, send) = (threads.next(), threads.next());
        // What was sent before goes out first, unless the link is dropped.
        let _ = send.map(JoinHandle::join);
        self.socket.end();
        let _ = threads.next().map(JoinHandle::join);
        let _ = receive.map(JoinHandle::join);
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        self.socket.end();
        self.end_threads();
    }
}

/// The buffers of one direction, all of them free.
fn buffers(shape: TcpShape) -> (Sender<Vec<u8>>, Receiver<Vec<u8>>) {
    let (give, free) = bounded(shape.blocks as usize);
    for _ in 0..shape.blocks {
        // There is room for all of them. Their pages are touched.
        let _ = give.send(vec![1; shape.payload_bytes as usize]);
    }
    (give, free)
}

fn end_of(error: &io::Error) -> EndError {
    let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
    if gone.contains(&error.kind()) { EndError::PeerGone } else { EndError::Socket(error.kind()) }
}

impl Socket {
    fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        // It fails where the peer has ended it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn alive(&self) -> Result<(), EndError> {
        if self.stop.load(Ordering::SeqCst) { Err(EndError::Closed) } else { Ok(()) }
    }

    /// Repeats a call until it has moved bytes, and returns how many; sleeps while the socket is not
    /// ready for it.
    fn transfer(
        &self,
        ready: PollFlags,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> Result<usize, EndError> {
        loop {
            match call() {
                Ok(0) => return Err(EndError::PeerGone),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.alive()?;
                    let mut fds = [PollFd::from_borrowed_fd(self.stream.as_fd(), ready)];
                    // Interrupted or not, the call says whether the socket is ready.
                    let _ = rustix::event::poll(&mut fds, Some(&event::timespec(CHECK_EVERY)));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(end_of(&error)),
            }
        }
    }

    fn send_all(&self, jobs: &Receiver<Job>, free: &Sender<Vec<u8>>) -> Result<(), EndError> {
        while let Ok(Job { tag, bytes, buffer }) = jobs.recv() {
            let mut header = [0; HEADER_BYTES];
            header[..4].copy_from_slice(&tag.stream.to_le_bytes());
            header[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
            header[8..].copy_from_slice(&tag.packet.to_le_bytes());
            let mut done = 0;
            while done < HEADER_BYTES + bytes {
                let of_header = done.min(HEADER_BYTES);
                let slices = [&header[of_header..], &buffer[done - of_header..bytes]];
                done += self.transfer(PollFlags::OUT, || {
                    (&self.stream).write_vectored(&slices.map(IoSlice::new))
                })?;
            }
            // There is room: it came from there.
            let _ = free.try_send(buffer);
        }
        Ok(())
    }
}

/// What the thread that waits for the socket has.
struct Reader {
    socket: Arc<Socket>,
    shape: TcpShape,
    room: Receiver<Vec<u8>>,
    give_back: Sender<Vec<u8>>,
    arrivals: Sender<TcpMessage>,
}

impl Reader {
    fn read_all(&self) -> Result<(), EndError> {
        let mut bytes = BufReader::with_capacity(READ_AHEAD_BYTES, &self.socket.stream);
        loop {
            let mut header = [0; HEADER_BYTES];
            self.read_exact(&mut bytes, &mut header)?;
            let [stream, length, low, high] = [0, 4, 8, 12].map(|at: usize| {
                u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            });
            if length > self.shape.payload_bytes {
                return Err(EndError::Socket(ErrorKind::InvalidData));
            }
            let mut buffer = self.buffer()?;
            let length = length as usize;
            self.read_exact(&mut bytes, &mut buffer[..length])?;
            let tag = Tag { stream, packet: u64::from(low) | u64::from(high) << 32 };
            let message = TcpMessage { tag, bytes: length, buffer, free: self.give_back.clone() };
            if self.arrivals.send(message).is_err() {
                return Err(EndError::Closed);
            }
        }
    }

    /// Waits for a free buffer. While the program holds them all, TCP's window closes.
    fn buffer(&self) -> Result<Vec<u8>, EndError> {
        loop {
            match self.room.recv_timeout(CHECK_EVERY) {
                Ok(buffer) => return Ok(buffer),
                Err(_) => self.socket.alive()?,
            }
        }
    }

    fn read_exact(&self, from: &mut impl Read, buffer: &mut [u8]) -> Result<(), EndError> {
        let mut filled = 0;
        while filled < buffer.len() {
            filled += self.socket.transfer(PollFlags::IN, || from.read(&mut buffer[filled..]))?;
        }
        Ok(())
    }
}

/// Passes messages to the program.
fn receive_all(arrived: &Receiver<TcpMessage>, inbox: &Sender<TcpMessage>) {
    while let Ok(message) = arrived.recv() {
        if inbox.send(message).is_err() {
            return;
        }
    }
}
