//! The control connection: lines of JSON, none longer than a limit, none awaited for ever.
use crate::PerfError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Longest line.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes taken from the connection at a time.
const CHUNK_BYTES: usize = 4 << 10;
/// Of what cannot be understood, so much is shown.
const SHOWN_CHARS: usize = 80;
/// An answer that takes longer never comes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One end of the connection.
#[derive(Debug)]
pub struct Control<S = TcpStream> {
    stream: S,
    /// What came and was not taken yet.
    buffer: Vec<u8>,
    /// Bytes of it in which no line ends.
    scanned: usize,
    line_bytes_max: usize,
}

impl Control {
    /// Wraps a TCP connection. Sending fails after [`PATIENCE`].
    ///
    /// # Errors
    /// [`PerfError::Control`] if the socket cannot be set up.
    pub fn over_tcp(stream: TcpStream) -> Result<Self, PerfError> {
        stream.set_nodelay(true).map_err(PerfError::Control)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(PerfError::Control)?;
        Ok(Self::new(stream))
    }
}

impl<S: Read + Write + AsFd> Control<S> {
    /// Wraps a connected socket to a peer that is not trusted: lines have 64 KiB at most.
    pub fn new(stream: S) -> Self {
        Self::with_limit(stream, LINE_BYTES_MAX)
    }

    /// Wraps a connected socket; no line that comes may be longer than this.
    pub fn with_limit(stream: S, line_bytes_max: usize) -> Self {
        Self { stream, buffer: Vec::new(), scanned: 0, line_bytes_max }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`PerfError::Control`].
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), PerfError> {
        let mut line =
            serde_json::to_vec(message).map_err(|error| PerfError::Control(error.into()))?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(PerfError::Control)
    }

    /// Returns whether a message, or the end of the connection, comes within this time.
    ///
    /// # Errors
    /// [`PerfError::Control`].
    pub fn has_more(&self, within: Duration) -> Result<bool, PerfError> {
        Ok(!self.buffer.is_empty() || self.is_readable(within)?)
    }

    fn is_readable(&self, within: Duration) -> Result<bool, PerfError> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        // Without a limit where there is none that the kernel can count.
        let limit = Timespec::try_from(within).ok();
        match poll(&mut fds, limit.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(PerfError::Control(errno.into())),
        }
    }

    /// Takes what is there; false at the end of the connection.
    fn fill(&mut self) -> Result<bool, PerfError> {
        let mut chunk = [0; CHUNK_BYTES];
        let count = self.stream.read(&mut chunk).map_err(PerfError::Control)?;
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(count > 0)
    }

    /// Fails if the other side has ended the connection.
    ///
    /// # Errors
    /// [`PerfError::Control`].
    pub fn check_alive(&mut self) -> Result<(), PerfError> {
        if self.buffer.is_empty() && self.is_readable(Duration::ZERO)? && !self.fill()? {
            return Err(gone());
        }
        Ok(())
    }

    /// Returns the next message, or `None` at the end of the connection. `expected` names what should
    /// come, for the error.
    ///
    /// # Errors
    /// [`PerfError::Control`] if nothing comes within this time, [`PerfError::Protocol`] for anything but
    /// the expected message.
    pub fn next<T: DeserializeOwned>(
        &mut self,
        expected: &str,
        within: Duration,
    ) -> Result<Option<T>, PerfError> {
        let Some(line) = self.line(expected, within)? else { return Ok(None) };
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| unexpected(&line, &format!("{expected} ({error})")))
    }

    /// As [`Control::next`], where an end is an error.
    ///
    /// # Errors
    /// As [`Control::next`].
    pub fn recv<T: DeserializeOwned>(
        &mut self,
        expected: &str,
        within: Duration,
    ) -> Result<T, PerfError> {
        self.next(expected, within)?.ok_or_else(gone)
    }

    /// Waits until both sides are here.
    ///
    /// # Errors
    /// As [`Control::recv`].
    pub fn meet(&mut self, within: Duration) -> Result<(), PerfError> {
        self.send(&())?;
        self.recv("the other side to get as far", within)
    }

    fn line(&mut self, expected: &str, within: Duration) -> Result<Option<Vec<u8>>, PerfError> {
        let start = Instant::now();
        loop {
            let mut unseen = self.buffer[self.scanned..].iter();
            if let Some(end) = unseen.position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.scanned + end + 1);
                self.scanned = 0;
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            self.scanned = self.buffer.len();
            if self.buffer.len() >= self.line_bytes_max {
                let expected = format!("{expected} in at most {} bytes", self.line_bytes_max);
                return Err(unexpected(&self.buffer, &expected));
            }
            let left = within.saturating_sub(start.elapsed());
            if self.is_readable(left)? {
                if !self.fill()? {
                    self.scanned = 0;
                    let rest = std::mem::take(&mut self.buffer);
                    return Ok((!rest.is_empty()).then_some(rest));
                }
            } else if start.elapsed() >= within {
                let silent = format!("nothing came in {} s", within.as_secs());
                return Err(PerfError::Control(io::Error::new(ErrorKind::TimedOut, silent)));
            }
        }
    }
}

fn gone() -> PerfError {
    PerfError::Control(io::Error::new(ErrorKind::UnexpectedEof, "the other side is gone"))
}

fn unexpected(line: &[u8], expected: &str) -> PerfError {
    let text = String::from_utf8_lossy(line);
    let shown: String = text.trim_end().chars().take(SHOWN_CHARS).collect();
    PerfError::Protocol { seen: format!("{shown:?}"), expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, Control<UnixStream>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, Control::new(theirs))
    }

    fn received(text: &[u8]) -> Result<Option<u32>, PerfError> {
        let (mut ours, mut control) = pair();
        let text = text.to_vec();
        let writer = std::thread::spawn(move || {
            // The other end may close before all of it was taken.
            let _ = ours.write_all(&text);
        });
        let next = control.next("a number", PATIENCE);
        drop(control);
        writer.join().unwrap();
        next
    }

    #[test]
    fn lines_are_messages_and_anything_else_is_an_error_that_shows_it() {
        assert_eq!(received(b"17\n").unwrap(), Some(17));
        assert_eq!(received(b"").unwrap(), None);
        for wrong in [&b"seventeen\n"[..], b"\n", b"\xff\xfe\n", &[b'1'; 100_000]] {
            let error = received(wrong).unwrap_err();
            assert!(matches!(error, PerfError::Protocol { .. }), "{error}");
            assert!(error.to_string().contains("a number"), "{error}");
            assert!(error.to_string().len() < 400, "{error}");
        }
    }

    #[test]
    fn a_message_is_as_long_as_the_limit_allows() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Control::new(a), Control::with_limit(b, usize::MAX));
        let long: Vec<u64> = (0..100_000).collect();
        let sent = long.clone();
        let sender = std::thread::spawn(move || a.send(&sent).unwrap());
        assert_eq!(b.recv::<Vec<u64>>("numbers", PATIENCE).unwrap(), long);
        sender.join().unwrap();
    }

    #[test]
    fn silence_ends() {
        let (_ours, mut control) = pair();
        let error = control.next::<u32>("a number", Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("nothing came"), "{error}");
    }

    #[test]
    fn messages_come_in_order_and_both_sides_meet() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Control::new(a), Control::new(b));
        a.send(&1).unwrap();
        a.send(&"two").unwrap();
        assert!(b.has_more(Duration::ZERO).unwrap());
        assert_eq!(b.recv::<u32>("one", PATIENCE).unwrap(), 1);
        assert_eq!(b.recv::<String>("two", PATIENCE).unwrap(), "two");
        assert!(!b.has_more(Duration::ZERO).unwrap());
        let other = std::thread::spawn(move || {
            b.meet(PATIENCE).unwrap();
        });
        a.meet(PATIENCE).unwrap();
        other.join().unwrap();
        let error = a.recv::<u32>("three", PATIENCE).unwrap_err().to_string();
        assert!(error.contains("gone"), "{error}");
        assert!(a.check_alive().is_err());
    }
}
