//! The ICRC of sent packets, computed over registered memory just before the system call.
use super::SendBatch;
use super::batch::{PacketSlot, Train};
use super::fold::Fold;
use super::icrc::{self, ICRC_BYTES};
use catchment_roce::wire::net::Ipv4Id;
use catchment_roce::wire::{Icrc, NetHeader};

/// Bytes copied at a time of what is not folded: the checksum needs a slice that does not change,
/// and registered memory may change at any time. The copy stays in the first-level cache.
const CHUNK_BYTES: usize = 2048;

/// Writes the ICRC of all packets of a train, once.
pub(super) fn seal(batch: &mut SendBatch, at: usize) {
    let train = batch.trains[at].clone();
    if train.sealed {
        return;
    }
    batch.trains[at].sealed = true;
    let Some(net) = icrc::net_header(train.route.local, train.route.remote) else {
        // An address of each family: the kernel will refuse the train, whatever its ICRC.
        return;
    };
    let mut begun = Begun::new(net, &train);
    let fold = Fold::new();
    for (index, at) in train.packets.enumerate() {
        let slot = batch.packets[at].clone();
        if let Some(sealer) = slot.sealer {
            authenticate(batch, &slot, sealer);
        }
        let icrc = begun.of(index, slot.bytes - ICRC_BYTES);
        let value = gather(batch, &slot, icrc, fold);
        batch.arena[slot.head.end..slot.seal().start].fill(0);
        batch.arena[slot.seal().end..slot.trailer().end].copy_from_slice(&value.to_le_bytes());
    }
}

/// Writes counter and tag of a packet. What it has read of registered memory may change before the kernel
/// reads it again: then the receiver drops the packet, and the next transmission has another counter.
#[cold]
fn authenticate(batch: &mut SendBatch, slot: &PacketSlot, sealer: usize) {
    batch.whole.clear();
    batch.whole.extend_from_slice(&batch.arena[slot.head.clone()]);
    for piece in &batch.vectors[slot.pieces.clone()] {
        for_each_chunk(piece, |chunk| batch.whole.extend_from_slice(chunk));
    }
    batch.whole.resize(batch.whole.len() + slot.pad, 0);
    let sealed = batch.sealers[sealer].seal(&mut batch.whole);
    batch.arena[slot.seal()].copy_from_slice(&sealed);
}

/// What the ICRC covers before the transport, for the packets of one train.
struct Begun {
    net: NetHeader,
    /// The kernel numbers the segments of a train: identifications 0, 1, 2 ... over IPv4.
    counts: bool,
    /// Packets of one length begin alike, but for that.
    kept: Option<(usize, Icrc)>,
}

impl Begun {
    fn new(net: NetHeader, train: &Train) -> Self {
        let counts = train.is_cut() && train.route.remote.is_ipv4();
        let first = net.with_ipv4_id(Ipv4Id::new(0));
        Self { net: if counts { first } else { net }, counts, kept: None }
    }

    fn of(&mut self, index: usize, transport_bytes: usize) -> Icrc {
        let icrc = match self.kept {
            Some((bytes, icrc)) if bytes == transport_bytes => icrc,
            _ => Icrc::begin(&self.net, transport_bytes),
        };
        self.kept = Some((transport_bytes, icrc));
        if self.counts { icrc.flip_ipv4_id(index as u16) } else { icrc }
    }
}

/// Returns the ICRC over head, pieces and pad.
fn gather(batch: &SendBatch, slot: &PacketSlot, mut icrc: Icrc, fold: Fold) -> u32 {
    let head = &batch.arena[slot.head.clone()];
    let pieces = &batch.vectors[slot.pieces.clone()];
    let led = pieces.first().map_or(0, |piece| {
        let (from, bytes) = (piece.iov_base.cast(), fold.takes(piece.iov_len));
        // SAFETY: the entry leads to at least as many bytes, which the batch keeps mapped.
        let led = unsafe { fold.headers(&mut icrc, head, from, bytes) };
        if led { bytes } else { 0 }
    });
    if led == 0 {
        icrc.headers(head);
    }
    let mut done = led;
    for piece in pieces {
        let mut rest = after(piece, done);
        let bytes = fold.takes(rest.iov_len);
        // SAFETY: as above.
        unsafe { fold.payload(&mut icrc, rest.iov_base.cast(), bytes) };
        rest = after(&rest, bytes);
        for_each_chunk(&rest, |chunk| icrc.payload(chunk));
        done = 0;
    }
    icrc.pad(slot.pad as u8);
    icrc.payload(&batch.arena[slot.seal()]);
    icrc.finish()
}

/// Returns the rest of a gather entry after this many bytes.
#[inline]
fn after(entry: &libc::iovec, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: entry.iov_base.wrapping_byte_add(bytes),
        iov_len: entry.iov_len - bytes,
    }
}

/// Passes the bytes of a gather entry in order, by copying small pieces.
#[inline]
pub(super) fn for_each_chunk(part: &libc::iovec, mut see: impl FnMut(&[u8])) {
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
        see(copied);
        offset += bytes;
    }
}
