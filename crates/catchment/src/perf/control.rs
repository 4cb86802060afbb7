//! The control connection: lines of JSON over TCP, none longer than a limit, none awaited for ever.

use super::PerfError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Longest line.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Of what cannot be understood, so much is shown.
const SHOWN_CHARS: usize = 80;
/// An answer that takes longer never comes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// One end of the connection.
pub(super) struct Control {
    reader: BufReader<TcpStream>,
}

impl Control {
    pub(super) fn new(stream: TcpStream) -> Result<Control, PerfError> {
        stream.set_nodelay(true).map_err(PerfError::Control)?;
        let patience = Some(PATIENCE);
        stream
            .set_write_timeout(patience)
            .map_err(PerfError::Control)?;
        Ok(Control {
            reader: BufReader::new(stream),
        })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    pub(super) fn send<T: Serialize>(&mut self, message: &T) -> Result<(), PerfError> {
        let mut line =
            serde_json::to_vec(message).map_err(|error| PerfError::Control(error.into()))?;
        line.push(b'\n');
        let mut stream = self.reader.get_ref();
        stream.write_all(&line).map_err(PerfError::Control)
    }

    /// Whether a message, or the end, is there without waiting.
    pub(super) fn has_more(&self) -> Result<bool, PerfError> {
        if !self.reader.buffer().is_empty() {
            return Ok(true);
        }
        let mut fds = [PollFd::new(self.reader.get_ref(), PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ready = poll(&mut fds, Some(&now));
        Ok(ready.map_err(|errno| PerfError::Control(errno.into()))? > 0)
    }

    /// An error if the other side has ended the connection.
    pub(super) fn check_alive(&self) -> Result<(), PerfError> {
        let ended = self.has_more()?
            && self.reader.buffer().is_empty()
            && self.stream().peek(&mut [0]).map_err(PerfError::Control)? == 0;
        if ended {
            return Err(gone());
        }
        Ok(())
    }

    /// The next message, within this time; `None` at the end of the connection.
    pub(super) fn next<T: DeserializeOwned>(
        &mut self,
        expected: &str,
        within: Duration,
    ) -> Result<Option<T>, PerfError> {
        let stream = self.reader.get_ref();
        stream
            .set_read_timeout(Some(within))
            .map_err(PerfError::Control)?;
        let mut line = Vec::new();
        let read = (&mut self.reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let silent = format!("nothing came in {} s", within.as_secs());
                return Err(PerfError::Control(io::Error::new(
                    ErrorKind::TimedOut,
                    silent,
                )));
            }
            Err(error) => return Err(PerfError::Control(error)),
        }
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| protocol(&line, &format!("{expected} ({error})")))
    }

    /// As [`Control::next`], where an end is an error.
    pub(super) fn recv<T: DeserializeOwned>(
        &mut self,
        expected: &str,
        within: Duration,
    ) -> Result<T, PerfError> {
        self.next(expected, within)?.ok_or_else(gone)
    }
}

fn gone() -> PerfError {
    let gone = io::Error::new(ErrorKind::UnexpectedEof, "the other side is gone");
    PerfError::Control(gone)
}

fn protocol(line: &[u8], expected: &str) -> PerfError {
    let text = String::from_utf8_lossy(line);
    let shown: String = text.trim_end().chars().take(SHOWN_CHARS).collect();
    PerfError::Protocol {
        seen: format!("{shown:?}"),
        expected: expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, Control) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        (ours, Control::new(theirs).unwrap())
    }

    fn told(text: &[u8]) -> Result<Option<u32>, PerfError> {
        let (mut ours, mut control) = pair();
        ours.write_all(text).unwrap();
        drop(ours);
        control.next("a number", PATIENCE)
    }

    #[test]
    fn lines_are_messages_and_anything_else_is_an_error_that_shows_it() {
        assert_eq!(told(b"17\n").unwrap(), Some(17));
        assert_eq!(told(b"").unwrap(), None);
        for wrong in [&b"seventeen\n"[..], b"\n", b"\xff\xfe\n", &[b'1'; 100_000]] {
            let error = told(wrong).unwrap_err();
            assert!(matches!(error, PerfError::Protocol { .. }), "{error}");
            assert!(error.to_string().contains("a number"), "{error}");
            assert!(error.to_string().len() < 400, "{error}");
        }
    }

    #[test]
    fn silence_ends() {
        let (_ours, mut control) = pair();
        let error = control
            .next::<u32>("a number", Duration::from_millis(10))
            .unwrap_err();
        assert!(error.to_string().contains("nothing came"), "{error}");
    }
}
