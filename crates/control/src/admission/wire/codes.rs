//! Both directions of a session at one of its ends.
use super::header::Header;
use super::key::{ROOT_BYTES, Root};
use super::record::Code;
use super::seal::{Exhausted, OpenError, Reading, Writing};

/// A [`Seal`](super::Seal) of what this end says and an [`Opener`](super::Opener) of what it hears, which share the root: a
/// controller has one for each source.
#[derive(Debug)]
pub(in crate::admission) struct Codes<W, R> {
    root: Root,
    writing: Writing<W>,
    reading: Reading<R>,
}

impl<W: Code, R: Code> Codes<W, R> {
    pub(in crate::admission) fn new(root: &[u8; ROOT_BYTES]) -> Self {
        Self { root: Root(*root), writing: Writing::new(), reading: Reading::new() }
    }

    /// Needs little memory again until something comes or is said.
    pub(in crate::admission) fn rest(&mut self) {
        self.writing.rest();
        self.reading.rest();
    }

    /// Writes a datagram over `out` ([`Seal::seal`](super::Seal::seal)).
    pub(in crate::admission) fn seal<'a>(
        &mut self,
        ids: (u32, u32, u64),
        records: impl IntoIterator<Item = &'a W>,
        out: &mut Vec<u8>,
    ) -> Result<(), Exhausted>
    where
        W: 'a,
    {
        self.writing.seal(&self.root, ids, records, out)
    }

    /// Opens a datagram ([`Opener::open`](super::Opener::open)).
    pub(in crate::admission) fn open(
        &mut self,
        datagram: &[u8],
        records: &mut Vec<R>,
    ) -> Result<Header, OpenError> {
        self.reading.open(&self.root, datagram, records)
    }
}
