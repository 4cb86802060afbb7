//! The local side of a request: its bytes, and copying them.
use crate::region::MrCore;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A checked piece of a local region. Holding it keeps the region mapped.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) mr: Arc<MrCore>,
    pub(crate) addr: u64,
    pub(crate) bytes: u32,
}

impl Piece {
    #[inline]
    fn memory(&self) -> VolatileSlice<'_> {
        self.mr
            .at(self.addr, self.bytes as usize)
            .expect("the bounds were checked when the piece was made")
    }
}

/// Bytes to send.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Plain bytes.
    Inline(&'a [u8]),
    /// Registered memory.
    Pieces(&'a [Piece]),
}

/// A part of a source.
pub(crate) enum Part<'a> {
    /// Plain bytes.
    Plain(&'a [u8]),
    /// Registered memory.
    Memory(VolatileSlice<'a>),
}

impl Source<'_> {
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Source::Inline(data) => data.len() as u64,
            Source::Pieces(pieces) => pieces.iter().map(|p| u64::from(p.bytes)).sum(),
        }
    }

    /// Visits `bytes` bytes from `skip` on, with their distance from `skip`.
    pub(crate) fn parts(&self, skip: usize, bytes: usize, mut see: impl FnMut(usize, Part<'_>)) {
        match self {
            Source::Inline(data) => see(0, Part::Plain(&data[skip..skip + bytes])),
            Source::Pieces(pieces) => {
                let (mut skip, mut done) = (skip, 0);
                for piece in *pieces {
                    let len = piece.bytes as usize;
                    if skip >= len {
                        skip -= len;
                        continue;
                    }
                    let take = (len - skip).min(bytes - done);
                    if take == 0 {
                        break;
                    }
                    let part = piece.memory().subslice(skip, take);
                    see(done, Part::Memory(part.expect("inside of the piece")));
                    done += take;
                    skip = 0;
                }
            }
        }
    }

    /// Returns the eight bytes from `skip` on.
    fn word(&self, skip: usize) -> [u8; 8] {
        let mut word = [0; 8];
        self.parts(skip, 8, |at, part| match part {
            Part::Plain(data) => word[at..at + data.len()].copy_from_slice(data),
            Part::Memory(memory) => {
                let to = at + memory.bytes();
                memory.read_at(0, &mut word[at..to]).expect("the part has the given length");
            }
        });
        word
    }

    /// Copies all of it to `offset` of `to`, whose bounds and rights are checked; `bytes` is its
    /// length.
    ///
    /// The last eight bytes become visible last if they end on an eight-byte boundary and the
    /// length is a multiple of eight. Earlier writes, in program order, become visible before.
    #[inline]
    pub(crate) fn write_to(&self, to: VolatileSlice<'_>, offset: usize, bytes: usize) {
        if let (Source::Inline([byte]), Ok(target)) = (self, to.atomic_u8(offset)) {
            target.store(*byte, Ordering::Release);
            return;
        }
        std::sync::atomic::fence(Ordering::Release);
        let in_order = bytes >= 8
            && bytes.is_multiple_of(8)
            && (to.addr() as usize + offset).is_multiple_of(8);
        let plain = if in_order { bytes - 8 } else { bytes };
        self.parts(0, plain, |at, part| put(to, offset + at, &part));
        if in_order && let Ok(last) = to.atomic_u64(offset + plain) {
            last.store(u64::from_ne_bytes(self.word(plain)), Ordering::Release);
        }
    }
}

fn put(to: VolatileSlice<'_>, offset: usize, part: &Part<'_>) {
    let done = match part {
        Part::Plain(data) => to.write_at(offset, data),
        Part::Memory(memory) => to.copy_from(offset, *memory),
    };
    debug_assert!(done.is_ok(), "bounds and rights are checked: {done:?}");
}

/// Scatters `from` over the pieces, beginning after `skip` bytes of them. What has no room is
/// omitted; the caller checks lengths before.
pub(crate) fn scatter(pieces: &[Piece], skip: usize, from: VolatileSlice<'_>) {
    Source::Pieces(pieces).parts(skip, from.bytes(), |at, part| {
        if let (Part::Memory(to), Ok(from)) = (&part, from.subslice(at, part.bytes())) {
            let copied = to.copy_from(0, from);
            debug_assert!(copied.is_ok(), "local write was checked: {copied:?}");
        }
    });
}

/// Scatters plain bytes over the pieces.
pub(crate) fn scatter_plain(pieces: &[Piece], from: &[u8]) {
    Source::Pieces(pieces).parts(0, from.len(), |at, part| {
        if let Part::Memory(to) = &part {
            let copied = to.write_at(0, &from[at..at + to.bytes()]);
            debug_assert!(copied.is_ok(), "local write was checked: {copied:?}");
        }
    });
}

impl Part<'_> {
    fn bytes(&self) -> usize {
        match self {
            Part::Plain(data) => data.len(),
            Part::Memory(memory) => memory.bytes(),
        }
    }
}
