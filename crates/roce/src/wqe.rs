//! Work queue elements: owned copies of the borrowed work requests of verbs.
//!
//! A provider makes one when the application posts, and the queue pair keeps it until the request
//! completes.
use crate::memory::{AccessError, Memory};
use crate::transmit::{Piece, PieceWriter};
use catchment_verbs_types::{Payload, RecvWr, SendOp, SendWr, Sge};

/// Inline bytes up to this length need no memory of their own.
const SHORT_INLINE: usize = 54;

/// An element of the send queue, made from a [`SendWr`].
#[derive(Clone, Debug)]
pub struct SendWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// The payload; for READ and atomics the destination of the result.
    pub payload: StoredPayload,
    /// Generate a completion on success.
    pub signaled: bool,
    /// Wait for earlier READs and atomics first.
    pub fence: bool,
    /// Set the solicited event bit.
    pub solicited: bool,
}

impl SendWqe {
    /// Copies the list of scatter-gather elements, or the inline bytes. Allocates for more than one
    /// element or more than 54 inline bytes.
    #[inline]
    pub fn new(wr: &SendWr<'_>) -> Self {
        Self {
            wr_id: wr.wr_id,
            op: wr.op,
            payload: StoredPayload::new(wr.payload),
            signaled: wr.signaled,
            fence: wr.fence,
            solicited: wr.solicited,
        }
    }
}

/// An element of the receive queue, made from a [`RecvWr`].
#[derive(Clone, Debug)]
pub struct RecvWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The destination of a message.
    pub payload: StoredPayload,
}

impl RecvWqe {
    /// Copies the list of scatter-gather elements. Allocates for more than one.
    #[inline]
    pub fn new(wr: &RecvWr<'_>) -> Self {
        Self { wr_id: wr.wr_id, payload: StoredPayload::from_sges(wr.sges) }
    }
}

/// The payload of a work queue element: scatter-gather elements, or inline bytes.
#[derive(Clone, Debug)]
pub struct StoredPayload(Stored);

// Elements are moved from the poster to the queue pair.
const _: () = assert!(size_of::<StoredPayload>() == 56);

#[derive(Clone, Debug)]
enum Stored {
    None,
    One(Sge),
    Many(Box<[Sge]>),
    Short { bytes: u8, data: [u8; SHORT_INLINE] },
    Long(Box<[u8]>),
}

impl StoredPayload {
    #[inline]
    fn new(payload: Payload<'_>) -> Self {
        match payload {
            Payload::Sges(sges) => Self::from_sges(sges),
            Payload::Inline(data) if data.len() <= SHORT_INLINE => {
                let mut short = [0; SHORT_INLINE];
                short[..data.len()].copy_from_slice(data);
                Self(Stored::Short { bytes: data.len() as u8, data: short })
            }
            Payload::Inline(data) => Self(Stored::Long(data.into())),
        }
    }

    #[inline]
    fn from_sges(sges: &[Sge]) -> Self {
        Self(match sges {
            [] => Stored::None,
            [one] => Stored::One(*one),
            many => Stored::Many(many.into()),
        })
    }

    fn sges(&self) -> &[Sge] {
        match &self.0 {
            Stored::One(sge) => std::slice::from_ref(sge),
            Stored::Many(sges) => sges,
            Stored::None | Stored::Short { .. } | Stored::Long(_) => &[],
        }
    }

    fn inline(&self) -> Option<&[u8]> {
        match &self.0 {
            Stored::Short { bytes, data } => Some(&data[..usize::from(*bytes)]),
            Stored::Long(data) => Some(data),
            Stored::None | Stored::One(_) | Stored::Many(_) => None,
        }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        match self.inline() {
            Some(data) => data.len() as u64,
            None => self.sges().iter().map(|sge| u64::from(sge.bytes)).sum(),
        }
    }

    /// Adds the bytes from `offset` on to a packet. The range is valid: the caller segmented the
    /// message.
    pub(crate) fn gather(&self, offset: u64, bytes: u64, out: &mut PieceWriter<'_>) {
        if let Some(data) = self.inline() {
            out.copy(&data[offset as usize..(offset + bytes) as usize]);
            return;
        }
        for_each_part(self.sges(), offset, bytes, |sge, skip, part, _| {
            out.piece(Piece::Local {
                lkey: sge.lkey,
                addr: sge.addr.wrapping_add(skip),
                bytes: part as u32,
            });
            Ok(())
        })
        .unwrap_or_default();
    }

    /// Puts received bytes at `offset`. The caller has checked that they fit.
    pub(crate) fn scatter(
        &self,
        offset: u64,
        data: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<(), AccessError> {
        for_each_part(self.sges(), offset, data.len() as u64, |sge, skip, part, at| {
            let piece = &data[at as usize..(at + part) as usize];
            memory.write_local(sge.lkey, sge.addr.wrapping_add(skip), piece)
        })
    }
}

/// Calls `each(element, bytes to skip in it, bytes in it, bytes before)` for every part of a range.
fn for_each_part(
    sges: &[Sge],
    offset: u64,
    bytes: u64,
    mut each: impl FnMut(&Sge, u64, u64, u64) -> Result<(), AccessError>,
) -> Result<(), AccessError> {
    let (mut skip, mut done) = (offset, 0);
    for sge in sges {
        let length = u64::from(sge.bytes);
        if skip >= length {
            skip -= length;
            continue;
        }
        let part = (length - skip).min(bytes - done);
        if part == 0 {
            break;
        }
        each(sge, skip, part, done)?;
        done += part;
        skip = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(sges: &[Sge], offset: u64, bytes: u64) -> Vec<(u32, u64, u64, u64)> {
        let mut found = Vec::new();
        let result = for_each_part(sges, offset, bytes, |sge, skip, part, at| {
            found.push((sge.lkey, skip, part, at));
            Ok(())
        });
        assert!(result.is_ok());
        found
    }

    #[test]
    fn a_range_is_found_across_elements_and_empty_ones() {
        let sge = |lkey, bytes| Sge { addr: 0, bytes, lkey };
        let sges = [sge(1, 10), sge(2, 0), sge(3, 5), sge(4, 100)];
        assert_eq!(parts(&sges, 0, 10), [(1, 0, 10, 0)]);
        assert_eq!(parts(&sges, 9, 3), [(1, 9, 1, 0), (3, 0, 2, 1)]);
        assert_eq!(parts(&sges, 12, 20), [(3, 2, 3, 0), (4, 0, 17, 3)]);
        assert_eq!(parts(&sges, 115, 0), []);
    }
}
