//! One socket of a program, and what it has not taken yet.
use crate::mux::Mux;
use socket2::Socket;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;

/// Memory that a connection keeps although it has nothing to write.
const KEPT_BYTES: usize = 4 << 10;

/// The connection broke, at this end: it is over.
pub(super) struct Broken;

pub(super) struct Connection {
    pub(super) socket: Socket,
    /// To the service, and not known to have succeeded.
    pub(super) connecting: bool,
    pub(super) readable: bool,
    /// The other program has closed its direction or broken the connection: a read tells.
    hung_up: bool,
    writable: bool,
    /// It is in the queue of those that may be read.
    pub(super) queued: bool,
    /// The program here has closed its direction.
    read_all: bool,
    /// The program there has.
    finished: bool,
    shut: bool,
    /// What the socket did not take, from `written` on: at most a window.
    pending: Vec<u8>,
    written: usize,
}

impl Connection {
    pub(super) fn new(socket: Socket, connecting: bool) -> Self {
        Self {
            socket,
            connecting,
            readable: false,
            hung_up: false,
            writable: !connecting,
            queued: false,
            read_all: false,
            finished: false,
            shut: false,
            pending: Vec::new(),
            written: 0,
        }
    }

    /// Notes what the socket can do, as epoll says.
    pub(super) fn note(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.readable |= readable || hung_up;
        self.writable |= writable;
        self.hung_up |= hung_up;
    }

    /// Returns whether a read may bring bytes or the end.
    pub(super) const fn may_read(&self) -> bool {
        self.readable && !self.read_all && !self.connecting
    }

    /// Returns whether both directions are closed and everything is delivered.
    pub(super) fn is_done(&self) -> bool {
        self.read_all && self.shut
    }

    /// Reads into `space`; returns the number of bytes, `None` if there are none now. 0: the program has closed its
    /// direction.
    pub(super) fn read(&mut self, space: &mut [u8]) -> Result<Option<usize>, Broken> {
        loop {
            match (&self.socket).read(space) {
                Ok(0) => {
                    self.read_all = true;
                    return Ok(Some(0));
                }
                Ok(bytes) => {
                    // Less than asked for: there is no more, and epoll says when there is.
                    self.readable = bytes == space.len() || self.hung_up;
                    return Ok(Some(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken),
            }
        }
    }

    /// Writes bytes of the other program, or keeps them while the socket takes none.
    pub(super) fn deliver(
        &mut self,
        stream: u32,
        bytes: &[u8],
        mux: &mut Mux,
    ) -> Result<(), Broken> {
        let mut taken = 0;
        if self.pending.is_empty() && !self.connecting {
            taken = self.write(bytes)?;
            mux.consume(stream, taken);
        }
        self.pending.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    /// Notes that the other program has closed its direction.
    pub(super) fn finish(&mut self) {
        self.finished = true;
        self.shut_if_delivered();
    }

    /// Writes what was kept.
    pub(super) fn flush(&mut self, stream: u32, mux: &mut Mux) -> Result<(), Broken> {
        if self.connecting || !self.writable {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let written = self.write(&pending[self.written..]);
        if let Ok(bytes) = written {
            mux.consume(stream, bytes);
            self.written += bytes;
        }
        if self.written == pending.len() {
            self.written = 0;
            pending.clear();
            pending.shrink_to(KEPT_BYTES);
        } else if self.written >= pending.len() / 2 {
            pending.drain(..self.written);
            self.written = 0;
        }
        self.pending = pending;
        self.shut_if_delivered();
        written.map(drop)
    }

    fn shut_if_delivered(&mut self) {
        if self.finished && !self.shut && self.pending.is_empty() && !self.connecting {
            self.shut = true;
            // Fails if the connection broke: then a read tells.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut taken = 0;
        while self.writable && taken < bytes.len() {
            match (&self.socket).write(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken),
            }
        }
        Ok(taken)
    }
}
