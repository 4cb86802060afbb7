//! The ICRC of what goes out, computed over registered memory just before the system call.
use super::{
    SendBatch,
    batch::{PacketSlot, Train},
    fold::{self, MIN_WORDS, STEP_BYTES, WORD_BYTES},
    icrc::{self, ICRC_BYTES},
};
use catchment_roce::wire::{CrcWay, Icrc, NetHeader, net::Ipv4Id};
use std::net::SocketAddr;

/// Bytes copied at a time of what is not folded: the checksum needs a slice that nobody changes, and
/// registered memory may change at any time. The copy stays in the first-level cache.
const CHUNK_BYTES: usize = 2048;

/// Writes the ICRC of all packets of a train, once.
pub(super) fn seal(batch: &mut SendBatch, at: usize) {
    let train = batch.trains[at].clone();
    if train.sealed {
        return;
    }
    batch.trains[at].sealed = true;
    let from = SocketAddr::new(train.route.local, batch.local.port());
    let Some(net) = icrc::header(from, train.route.remote) else {
        // An address of each family: the kernel will refuse the train, whatever its ICRC.
        return;
    };
    let mut begun = Begun::new(batch.crc, net, &train);
    let in_place = InPlace::new(batch.crc);
    for (index, at) in train.packets.enumerate() {
        let slot = batch.packets[at];
        let icrc = begun.of(index, slot.bytes - ICRC_BYTES);
        let value = gather(batch, slot, icrc, in_place);
        let trailer = batch.trailer_mut(slot);
        let (pad, icrc) = trailer.split_at_mut(slot.pad);
        pad.fill(0);
        icrc.copy_from_slice(&value.to_le_bytes());
    }
}

/// What the ICRC covers before the transport, for the packets of one train.
struct Begun {
    crc: CrcWay,
    net: NetHeader,
    /// The kernel gives the segments of a train the identifications 0, 1, 2 ... over IPv4.
    counts: bool,
    /// Over IPv6, and for what is not cut, packets of one length begin alike.
    kept: Option<(usize, Icrc)>,
}

impl Begun {
    fn new(crc: CrcWay, net: NetHeader, train: &Train) -> Begun {
        Begun {
            crc,
            net,
            counts: train.is_cut() && train.route.remote.is_ipv4(),
            kept: None,
        }
    }

    fn of(&mut self, index: usize, transport_bytes: usize) -> Icrc {
        if self.counts {
            let net = self.net.with_ipv4_id(Ipv4Id::new(index as u16));
            return Icrc::begin_by(self.crc, &net, transport_bytes);
        }
        if let Some((bytes, icrc)) = &self.kept
            && *bytes == transport_bytes
        {
            return icrc.clone();
        }
        let icrc = Icrc::begin_by(self.crc, &self.net, transport_bytes);
        self.kept = Some((transport_bytes, icrc.clone()));
        icrc
    }
}

/// How payload is folded where it lies.
#[derive(Clone, Copy)]
enum InPlace {
    Instructions,
    Shifts,
    /// By library functions, over copies.
    Not,
}

impl InPlace {
    fn new(crc: CrcWay) -> InPlace {
        match crc {
            CrcWay::Instructions if fold::is_available() => InPlace::Instructions,
            CrcWay::Instructions => InPlace::Not,
            CrcWay::Shifts => InPlace::Shifts,
        }
    }

    /// Folds the first bytes of a piece, and says how many.
    #[inline]
    fn fold(self, icrc: &mut Icrc, piece: &libc::iovec) -> usize {
        let from = piece.iov_base.cast::<u8>();
        let (steps, words) = (piece.iov_len / STEP_BYTES, piece.iov_len / WORD_BYTES);
        match self {
            InPlace::Instructions if steps > 0 => {
                // SAFETY: the entry leads to `iov_len` bytes that the batch owns or keeps mapped;
                // `new` has seen that the processor can do it.
                icrc.payload_folded(|register| unsafe { fold::fold(register, from, steps) });
                steps * STEP_BYTES
            }
            InPlace::Shifts if words >= MIN_WORDS => {
                // SAFETY: as above.
                icrc.payload_folded(|register| unsafe {
                    fold::fold_by_shifts(register, from, words)
                });
                words * WORD_BYTES
            }
            InPlace::Instructions | InPlace::Shifts | InPlace::Not => 0,
        }
    }
}

/// The ICRC over head, pieces and pad.
fn gather(batch: &SendBatch, slot: PacketSlot, mut icrc: Icrc, in_place: InPlace) -> u32 {
    let parts = &batch.vectors[slot.first_vector..slot.first_vector + slot.vectors - 1];
    let (head, pieces) = parts.split_first().expect("a packet has a head");
    for_each_chunk(head, |chunk, first| {
        if first {
            icrc.headers(chunk);
        } else {
            icrc.payload(chunk);
        }
    });
    for piece in pieces {
        let bytes = in_place.fold(&mut icrc, piece);
        let rest = libc::iovec {
            iov_base: piece.iov_base.wrapping_byte_add(bytes),
            iov_len: piece.iov_len - bytes,
        };
        for_each_chunk(&rest, |chunk, _| icrc.payload(chunk));
    }
    icrc.pad(slot.pad as u8);
    icrc.finish()
}

/// Shows the bytes of a gather entry in order, by copying small pieces.
#[inline]
fn for_each_chunk(part: &libc::iovec, mut see: impl FnMut(&[u8], bool)) {
    let mut chunk = [std::mem::MaybeUninit::<u8>::uninit(); CHUNK_BYTES];
    let mut offset = 0;
    while offset < part.iov_len {
        let bytes = CHUNK_BYTES.min(part.iov_len - offset);
        // SAFETY: the entry leads to `iov_len` bytes that the batch owns or keeps mapped, and at
        // most as many as the chunk has are copied; they are initialised after that.
        let copied = unsafe {
            let from = part.iov_base.cast::<u8>().add(offset);
            std::ptr::copy_nonoverlapping(from, chunk.as_mut_ptr().cast(), bytes);
            std::slice::from_raw_parts(chunk.as_ptr().cast::<u8>(), bytes)
        };
        see(copied, offset == 0);
        offset += bytes;
    }
}
