//! What host and guest send each other: a byte that says what, a length, and so many bytes.
use super::{Ended, Start};
use std::io::{self, ErrorKind, Read, Write};

const PAYLOAD_BYTES_MAX: usize = 4 << 20;
const START: u8 = 1;
const SIGNAL: u8 = 2;
const STDOUT: u8 = 3;
const STDERR: u8 = 4;
const ENDED: u8 = 5;
const INPUT: u8 = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Start(Start),
    /// To the guest: send this signal to the program and all that it started.
    Signal(i32),
    Input(Vec<u8>),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(Ended),
}

impl Frame {
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, payload) = match self {
            Self::Start(start) => (START, serde_json::to_vec(start)?),
            Self::Signal(signal) => (SIGNAL, serde_json::to_vec(signal)?),
            Self::Input(bytes) => (INPUT, bytes.clone()),
            Self::Stdout(bytes) => (STDOUT, bytes.clone()),
            Self::Stderr(bytes) => (STDERR, bytes.clone()),
            Self::Ended(ended) => (ENDED, serde_json::to_vec(ended)?),
        };
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let head = [&[kind][..], &length.to_be_bytes()].concat();
        to.write_all(&[head, payload].concat())
    }

    /// Reads a frame; none at the end of the connection.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut kind = [0];
        if from.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > PAYLOAD_BYTES_MAX {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        Self::of(kind[0], payload).map(Some)
    }

    fn of(kind: u8, payload: Vec<u8>) -> io::Result<Self> {
        Ok(match kind {
            START => Self::Start(serde_json::from_slice(&payload)?),
            SIGNAL => Self::Signal(serde_json::from_slice(&payload)?),
            INPUT => Self::Input(payload),
            STDOUT => Self::Stdout(payload),
            STDERR => Self::Stderr(payload),
            ENDED => Self::Ended(serde_json::from_slice(&payload)?),
            other => return Err(invalid(format!("a frame of the unknown kind {other}"))),
        })
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_as_they_went() {
        let frames = [
            Frame::Start(Start::like_here(["ip", "link"])),
            Frame::Signal(9),
            Frame::Input(b"words\n".to_vec()),
            Frame::Stdout(vec![0, 255, 10]),
            Frame::Stderr(Vec::new()),
            Frame::Ended(Ended::Signal(9)),
        ];
        let mut wire = Vec::new();
        for frame in &frames {
            frame.write(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        for frame in frames {
            assert_eq!(Frame::read(&mut rest).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [&[9, 0, 0, 0, 0][..], &[3, 0xff, 0, 0, 0], &[3, 0, 0], &[1, 0, 0, 0, 1, b'{']]
        {
            assert!(Frame::read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
