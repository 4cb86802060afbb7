//! Frames of the multiplexer: what stands in a message of the channel. `docs/spec/tunnel.md` describes them.
//!
//! A message is frames, one behind the other, each a header of [`HEADER_BYTES`] and the bytes that it
//! announces. No frame spans two messages.

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 12;
/// Longest reason of a refusal, in bytes.
pub const REASON_BYTES: usize = 256;

/// What a frame says of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A client has connected: the stream begins.
    Open = 1,
    /// The service has accepted the connection.
    Accepted = 2,
    /// It has not; the bytes say why. The last frame of its sender.
    Refused = 3,
    /// Bytes of the connection.
    Data = 4,
    /// No more bytes follow: the sender's program has closed its direction.
    Finish = 5,
    /// The sender has closed its socket, with everything delivered. Its last frame.
    Close = 6,
    /// The connection broke. The last frame of its sender.
    Reset = 7,
    /// So many bytes more may be sent.
    Credit = 8,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Open,
            2 => Self::Accepted,
            3 => Self::Refused,
            4 => Self::Data,
            5 => Self::Finish,
            6 => Self::Close,
            7 => Self::Reset,
            8 => Self::Credit,
            _ => return None,
        })
    }

    const fn has_bytes(self) -> bool {
        matches!(self, Self::Data | Self::Refused)
    }
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it says.
    pub kind: Kind,
    /// Of which stream.
    pub stream: u32,
    /// Bytes of credit; the number of bytes that follow the header; 0 for other kinds.
    pub value: u32,
    /// The bytes behind the header.
    pub bytes: &'a [u8],
}

/// Bytes that are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A message without a frame.
    #[error("an empty message")]
    Empty,
    /// The message ends within a frame.
    #[error("a frame of {needed} bytes where the message has {left} more")]
    Truncated {
        /// Bytes of the frame.
        needed: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// A kind that this version does not have.
    #[error("frame kind {0} is unknown")]
    Kind(u8),
    /// Reserved bytes that are not zero.
    #[error("reserved bytes of a frame are not zero")]
    Reserved,
    /// A value that frames of this kind do not have.
    #[error("a frame of kind {kind:?} has the value {value}")]
    Value {
        /// Its kind.
        kind: Kind,
        /// Its value.
        value: u32,
    },
}

/// Takes the first frame off `bytes`.
///
/// # Errors
/// [`FrameError`]; nothing after it can be read.
pub fn take<'a>(bytes: &mut &'a [u8]) -> Result<Frame<'a>, FrameError> {
    let left = bytes.len();
    let short = |needed| FrameError::Truncated { needed, left };
    let (header, rest) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| short(HEADER_BYTES))?;
    let [code, r0, r1, r2, s0, s1, s2, s3, v0, v1, v2, v3] = *header;
    let kind = Kind::of(code).ok_or(FrameError::Kind(code))?;
    if [r0, r1, r2] != [0; 3] {
        return Err(FrameError::Reserved);
    }
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    let value = u32::from_be_bytes([v0, v1, v2, v3]);
    let wrong = match kind {
        Kind::Data | Kind::Credit => value == 0,
        Kind::Refused => value as usize > REASON_BYTES,
        Kind::Open | Kind::Accepted | Kind::Finish | Kind::Close | Kind::Reset => value != 0,
    };
    if wrong {
        return Err(FrameError::Value { kind, value });
    }
    let length = if kind.has_bytes() { value as usize } else { 0 };
    let (body, rest) =
        rest.split_at_checked(length).ok_or_else(|| short(HEADER_BYTES.saturating_add(length)))?;
    *bytes = rest;
    Ok(Frame { kind, stream, value, bytes: body })
}

/// A message that is being put together. Its memory is allocated once.
#[derive(Debug)]
pub struct Batch {
    memory: Box<[u8]>,
    used: usize,
}

impl Batch {
    /// Makes an empty message of at most `bytes` bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { memory: vec![0; bytes].into(), used: 0 }
    }

    /// Returns what is in it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.used]
    }

    /// Returns whether it has no frame.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Removes all frames.
    pub const fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns how many bytes of a frame fit, beside its header.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.memory.len() - self.used).saturating_sub(HEADER_BYTES)
    }

    /// Returns whether a frame without bytes fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.memory.len() - self.used >= HEADER_BYTES
    }

    /// Returns the memory for the bytes of the next frame, at most `limit`.
    pub fn space(&mut self, limit: usize) -> &mut [u8] {
        let room = self.room().min(limit);
        let start = (self.used + HEADER_BYTES).min(self.memory.len());
        &mut self.memory[start..start + room]
    }

    /// Adds a frame whose bytes were put into [`Batch::space`]. Without room it adds nothing.
    pub fn seal(&mut self, kind: Kind, stream: u32, value: u32) {
        let length = if kind.has_bytes() { value as usize } else { 0 };
        if !self.has_room() || length > self.room() {
            return;
        }
        let header = &mut self.memory[self.used..self.used + HEADER_BYTES];
        header[..4].copy_from_slice(&[kind as u8, 0, 0, 0]);
        header[4..8].copy_from_slice(&stream.to_be_bytes());
        header[8..].copy_from_slice(&value.to_be_bytes());
        self.used += HEADER_BYTES + length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut batch = Batch::new(64);
        batch.seal(Kind::Open, 7, 0);
        batch.space(3).copy_from_slice(b"abc");
        batch.seal(Kind::Data, 7, 3);
        batch.seal(Kind::Credit, 258, 65_536);
        let golden = [
            1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, // open
            4, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, b'a', b'b', b'c', // data
            8, 0, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, // credit
        ];
        assert_eq!(batch.bytes(), golden);
    }

    #[test]
    fn what_is_not_a_frame_is_refused_with_what_was_seen() {
        let refused = |bytes: &[u8]| take(&mut &*bytes).unwrap_err();
        let frame = |code: u8, value: u32| {
            let mut bytes = vec![code, 0, 0, 0, 0, 0, 0, 1];
            bytes.extend(value.to_be_bytes());
            bytes
        };
        assert_eq!(refused(&[1, 0, 0]), FrameError::Truncated { needed: 12, left: 3 });
        assert_eq!(refused(&frame(0, 0)), FrameError::Kind(0));
        assert_eq!(refused(&frame(9, 0)), FrameError::Kind(9));
        assert_eq!(refused(&frame(4, 5)), FrameError::Truncated { needed: 17, left: 12 });
        assert_eq!(refused(&frame(4, 0)), FrameError::Value { kind: Kind::Data, value: 0 });
        assert_eq!(refused(&frame(5, 1)), FrameError::Value { kind: Kind::Finish, value: 1 });
        assert_eq!(refused(&frame(3, 257)), FrameError::Value { kind: Kind::Refused, value: 257 });
        let mut reserved = frame(1, 0);
        reserved[2] = 1;
        assert_eq!(refused(&reserved), FrameError::Reserved);
    }

    proptest! {
        #[test]
        fn frames_read_back(stream: u32, bytes in prop::collection::vec(any::<u8>(), 1..50)) {
            let mut batch = Batch::new(100);
            batch.space(bytes.len()).copy_from_slice(&bytes);
            batch.seal(Kind::Data, stream, bytes.len() as u32);
            batch.seal(Kind::Close, stream, 0);
            let mut rest = batch.bytes();
            let value = bytes.len() as u32;
            prop_assert_eq!(take(&mut rest), Ok(Frame { kind: Kind::Data, stream, value, bytes: &bytes }));
            prop_assert_eq!(take(&mut rest), Ok(Frame { kind: Kind::Close, stream, value: 0, bytes: &[] }));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut rest = &bytes[..];
            while let Ok(frame) = take(&mut rest) {
                prop_assert!(frame.bytes.len() < 40);
            }
        }
    }
}
