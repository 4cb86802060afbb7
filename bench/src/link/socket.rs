//! The kernel's streams: TCP over loopback and unix sockets.
//!
//! The kernel copies twice, in and out, and decides itself how much it buffers. One write a block
//! (no gathering of small ones), `TCP_NODELAY`, buffer sizes as the system sets them.
use super::{Link, Prepared, touch};
use crate::{
    control::Control,
    job::{Job, Role, Wait, What},
};
use anyhow::{Result, bail};
use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

/// A stream socket that carries blocks of one size both ways.
pub(crate) struct Socket<S> {
    stream: S,
    prepared: Prepared,
    buffer: Vec<u8>,
    next: usize,
    bytes: usize,
    wait: Wait,
}

/// Connects over loopback.
pub(crate) fn tcp(job: &Job, role: Role, control: &mut Control) -> Result<Socket<TcpStream>> {
    let stream = match role {
        Role::Collector => {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            control.send(&listener.local_addr()?)?;
            listener.accept()?.0
        }
        Role::Source => TcpStream::connect(control.recv::<std::net::SocketAddr>()?)?,
    };
    stream.set_nodelay(true)?;
    stream.set_nonblocking(job.what != What::TcpBlocking)?;
    Ok(Socket::new(job, role, stream))
}

/// Connects by a name in the abstract namespace, which leaves no file. Calls block: polling a
/// full unix socket costs more than it brings.
pub(crate) fn unix(job: &Job, role: Role, control: &mut Control) -> Result<Socket<UnixStream>> {
    let address = SocketAddr::from_abstract_name(format!("catchment-bench-{}", job.unique))?;
    let stream = match role {
        Role::Collector => {
            let listener = UnixListener::bind_addr(&address)?;
            control.send(&())?;
            listener.accept()?.0
        }
        Role::Source => {
            control.recv::<()>()?;
            UnixStream::connect_addr(&address)?
        }
    };
    Ok(Socket::new(job, role, stream))
}

impl<S> Socket<S> {
    fn new(job: &Job, role: Role, stream: S) -> Socket<S> {
        let (out, back) = match role {
            Role::Source => (job.blocks, job.back_blocks()),
            Role::Collector => (job.back_blocks(), job.blocks),
        };
        Socket {
            stream,
            prepared: Prepared::new(job.bytes, out),
            buffer: vec![1; job.bytes * back],
            next: 0,
            bytes: job.bytes,
            wait: job.wait,
        }
    }
}

impl<S: Read + Write> Link for Socket<S> {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        let mut rest = match content {
            Some(content) => content,
            None => self.prepared.take(),
        };
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait.pause(),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()> {
        let block = &mut self.buffer[self.next..self.next + self.bytes];
        let mut at = 0;
        while at < block.len() {
            match self.stream.read(&mut block[at..]) {
                Ok(0) => bail!("the stream ended"),
                Ok(n) => at += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait.pause(),
                Err(e) => return Err(e.into()),
            }
        }
        touch(block[0]);
        touch(block[self.bytes - 1]);
        if let Some(content) = content {
            content.clear();
            content.extend_from_slice(block);
        }
        self.next += self.bytes;
        if self.next == self.buffer.len() {
            self.next = 0;
        }
        Ok(())
    }
}
