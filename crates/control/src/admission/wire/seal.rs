//! Datagrams with their codes: written by one end, opened by the other, each once.
use super::header::{HEADER_BYTES, Header, HeaderError, Kind, SIGNED_BYTES};
use super::key::{Direction, Key, ROOT_BYTES, Root};
use super::record::{Code, RECORD_BYTES, RECORDS_MAX, RecordError};
use super::replay::Window;
use std::marker::PhantomData;
use subtle::ConstantTimeEq as _;

/// Every sequence number under every key is used: only a new session has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all 256 keys of this session are used up: register again")]
pub struct Exhausted;

/// Why a datagram is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is none.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// It is not of the kind that this end gets.
    #[error("a datagram of kind {seen:?} from the wrong end")]
    WrongKind {
        /// The kind that it has.
        seen: Kind,
    },
    /// Its key is neither the one in use nor the next.
    #[error("key {seen}, in use is {in_use}")]
    Epoch {
        /// The key that it names.
        seen: u8,
        /// The key of the newest datagram.
        in_use: u8,
    },
    /// Nobody who has the key wrote it.
    #[error("wrong authentication code")]
    Forged,
    /// It was opened before, or is too old to tell.
    #[error("sequence {sequence} under key {epoch} was opened before or is more than 1,024 old")]
    Replayed {
        /// Its key.
        epoch: u8,
        /// Its sequence number.
        sequence: u32,
    },
    /// The other end wrote a record that is none.
    #[error("record {at}: {error}")]
    Record {
        /// Which record.
        at: usize,
        /// What is wrong.
        error: RecordError,
    },
}

/// Writes the datagrams of one end.
pub struct Seal<R> {
    root: Root,
    writing: Writing<R>,
}

/// How far the datagrams are that one end writes.
pub(super) struct Writing<R> {
    /// Of this epoch, from the first datagram on: most ends of a controller have nothing to say.
    key: Option<Box<Key>>,
    epoch: u8,
    /// The next one; the key changes after [`sequence_max`](Self::with_sequence_max).
    sequence: u64,
    sequence_max: u32,
    records: PhantomData<R>,
}

impl<R> std::fmt::Debug for Seal<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({:?})", self.writing)
    }
}

impl<R> std::fmt::Debug for Writing<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.epoch, self.sequence)
    }
}

impl<R: Code> Seal<R> {
    /// Makes the writing end of a session.
    #[must_use]
    pub fn new(root: &[u8; ROOT_BYTES]) -> Self {
        Self { root: Root(*root), writing: Writing::new() }
    }

    /// Changes the key after this sequence number already.
    #[must_use]
    pub fn with_sequence_max(mut self, sequence_max: u32) -> Self {
        self.writing.sequence_max = sequence_max;
        self
    }

    /// Writes a datagram over `out`. The first 24 of `records` are in it.
    ///
    /// # Errors
    /// [`Exhausted`]: nothing can be written any more.
    pub fn seal<'a>(
        &mut self,
        (term, source, stamp_ns): (u32, u32, u64),
        records: impl IntoIterator<Item = &'a R>,
        out: &mut Vec<u8>,
    ) -> Result<(), Exhausted>
    where
        R: 'a,
    {
        self.writing.seal(&self.root, (term, source, stamp_ns), records, out)
    }
}

impl<R: Code> Writing<R> {
    pub(super) const fn new() -> Self {
        let (epoch, sequence, sequence_max) = (0, 0, u32::MAX);
        Self { key: None, epoch, sequence, sequence_max, records: PhantomData }
    }

    /// Needs little memory again until the next datagram is written.
    pub(super) fn rest(&mut self) {
        self.key = None;
    }

    /// Writes a datagram ([`Seal::seal`]).
    pub(super) fn seal<'a>(
        &mut self,
        root: &Root,
        (term, source, stamp_ns): (u32, u32, u64),
        records: impl IntoIterator<Item = &'a R>,
        out: &mut Vec<u8>,
    ) -> Result<(), Exhausted>
    where
        R: 'a,
    {
        if self.sequence > u64::from(self.sequence_max) {
            self.epoch = self.epoch.checked_add(1).ok_or(Exhausted)?;
            self.key = None;
            self.sequence = 0;
        }
        let sequence = self.sequence as u32;
        self.sequence += 1;
        out.clear();
        out.resize(HEADER_BYTES, 0);
        let mut count = 0;
        for record in records.into_iter().take(RECORDS_MAX) {
            out.extend_from_slice(&record.encode());
            count += 1;
        }
        let kind = match R::DIRECTION {
            Direction::ToController => Kind::Source,
            Direction::ToSource => Kind::Controller,
        };
        let header = Header { kind, epoch: self.epoch, term, source, sequence, stamp_ns };
        let signed = header.write(count);
        let make = || Box::new(root.key(R::DIRECTION, self.epoch));
        let key = self.key.get_or_insert_with(make);
        let code = key.code(&signed, &out[HEADER_BYTES..]);
        out[..SIGNED_BYTES].copy_from_slice(&signed);
        out[SIGNED_BYTES..HEADER_BYTES].copy_from_slice(&code);
        Ok(())
    }
}

/// Opens the datagrams of the other end, each once.
pub struct Opener<R> {
    root: Root,
    reading: Reading<R>,
}

/// How far the datagrams are that one end opens.
pub(super) struct Reading<R> {
    /// Of this epoch, from the first datagram on.
    key: Option<Box<Key>>,
    window: Window,
    records: PhantomData<R>,
}

impl<R> std::fmt::Debug for Opener<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opener({:?})", self.reading)
    }
}

impl<R> std::fmt::Debug for Reading<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.window)
    }
}

impl<R: Code> Opener<R> {
    /// Makes the reading end of a session.
    #[must_use]
    pub fn new(root: &[u8; ROOT_BYTES]) -> Self {
        Self { root: Root(*root), reading: Reading::new() }
    }

    /// Opens a datagram: writes its records over `records` and returns its header.
    ///
    /// # Errors
    /// [`OpenError`]. A datagram that is not opened changes nothing, but for one: whose records alone are
    /// wrong, it counts as opened.
    pub fn open(&mut self, datagram: &[u8], records: &mut Vec<R>) -> Result<Header, OpenError> {
        self.reading.open(&self.root, datagram, records)
    }
}

impl<R: Code> Reading<R> {
    pub(super) const fn new() -> Self {
        Self { key: None, window: Window::new(), records: PhantomData }
    }

    /// Returns the epoch of the newest datagram.
    const fn epoch(&self) -> u8 {
        (self.window.newest() >> 32) as u8
    }

    /// Needs little memory again until the next datagram comes, which then takes a microsecond longer.
    pub(super) fn rest(&mut self) {
        self.key = None;
        self.window.rest();
    }

    /// Opens a datagram ([`Opener::open`]).
    pub(super) fn open(
        &mut self,
        root: &Root,
        datagram: &[u8],
        records: &mut Vec<R>,
    ) -> Result<Header, OpenError> {
        records.clear();
        let header = Header::read(datagram)?;
        let fits = match R::DIRECTION {
            Direction::ToController => header.kind == Kind::Source,
            Direction::ToSource => header.kind == Kind::Controller,
        };
        if !fits {
            return Err(OpenError::WrongKind { seen: header.kind });
        }
        let in_use = self.epoch();
        let is_next = in_use.checked_add(1) == Some(header.epoch);
        if header.epoch != in_use && !is_next {
            return Err(OpenError::Epoch { seen: header.epoch, in_use });
        }
        let make = |epoch| Box::new(root.key(R::DIRECTION, epoch));
        let next = is_next.then(|| make(header.epoch));
        let current = self.key.get_or_insert_with(|| make(in_use));
        let key = next.as_ref().unwrap_or(current);
        let code = key.code(&datagram[..SIGNED_BYTES], &datagram[HEADER_BYTES..]);
        if !bool::from(code.ct_eq(&datagram[SIGNED_BYTES..HEADER_BYTES])) {
            return Err(OpenError::Forged);
        }
        let (Header { epoch, sequence, .. }, number) = (header, header.number());
        if !self.window.is_new(number) {
            return Err(OpenError::Replayed { epoch, sequence });
        }
        self.window.note(number);
        if next.is_some() {
            self.key = next;
        }
        for (at, bytes) in datagram[HEADER_BYTES..].chunks_exact(RECORD_BYTES).enumerate() {
            match R::decode(bytes) {
                Ok(record) => records.push(record),
                Err(error) => {
                    records.clear();
                    return Err(OpenError::Record { at, error });
                }
            }
        }
        Ok(header)
    }
}
