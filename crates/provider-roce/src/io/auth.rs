//! Authenticated packets, between two of our stacks that exchanged keys over their encrypted session.
//!
//! Between the pad and the ICRC stand a counter of 8 bytes and a tag of 16: that of AES-128-GCM over all bytes
//! from the BTH to the pad, with the counter as nonce. The bytes are sent as they are, and the ciphertext is
//! thrown away at both ends. It hides nothing, but takes a quarter of the time that the same bytes take as
//! additional data, and authenticates as well: two messages of one nonce differ by as much as their
//! ciphertexts, which is all that the tag depends on.
//!
//! Each side has drawn the key of what it sends, and gives every packet another counter, a retransmission too:
//! so no nonce is used twice. The receiver takes each counter once.
use catchment_roce::wire::DropReason;
use catchment_verbs::PacketKey;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use subtle::ConstantTimeEq;

const COUNTER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Bytes of a packet between pad and ICRC.
pub const AUTH_BYTES: usize = COUNTER_BYTES + TAG_BYTES;

/// Counters that are remembered: a packet that this many others have overtaken counts as a copy.
const WINDOW: u64 = 1 << 14;
const WORD_BITS: u64 = u64::BITS as u64;

/// A key as `ring` takes it. It refuses no 16 bytes.
fn key(key: PacketKey) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_128_GCM, &key.0).ok().map(LessSafeKey::new)
}

/// Returns the tag of a packet, whose bytes are changed; `None` if it is longer than the algorithm takes.
fn tag(
    key: &LessSafeKey,
    counter: [u8; COUNTER_BYTES],
    transport: &mut [u8],
) -> Option<[u8; TAG_BYTES]> {
    let mut nonce = [0; 12];
    nonce[12 - COUNTER_BYTES..].copy_from_slice(&counter);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), transport).ok()?;
    tag.as_ref().try_into().ok()
}

/// Seals what one queue pair sends.
pub struct Sealer {
    key: LessSafeKey,
    next: AtomicU64,
}

impl Sealer {
    /// Creates the sealer of a new key.
    pub fn new(own: PacketKey) -> Option<Self> {
        Some(Self { key: key(own)?, next: AtomicU64::new(0) })
    }

    /// Returns counter and tag of a packet: all bytes from the BTH to the pad, a copy that is overwritten.
    pub(crate) fn seal(&self, transport: &mut [u8]) -> [u8; AUTH_BYTES] {
        let counter = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut sealed = [0; AUTH_BYTES];
        sealed[..COUNTER_BYTES].copy_from_slice(&counter);
        // No packet is too long; zeros would be no tag.
        sealed[COUNTER_BYTES..]
            .copy_from_slice(&tag(&self.key, counter, transport).unwrap_or_default());
        sealed
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

/// Opens what one queue pair receives.
pub struct Opener {
    key: LessSafeKey,
    window: Window,
    /// One packet, to be overwritten.
    copy: Vec<u8>,
}

impl Opener {
    /// Creates the opener for the peer's key.
    pub fn new(theirs: PacketKey) -> Option<Self> {
        Some(Self { key: key(theirs)?, window: Window::default(), copy: Vec::new() })
    }

    /// Returns the bytes from the BTH to the pad, if the peer sealed them and they did not come before.
    ///
    /// # Errors
    /// [`DropReason::Forged`], [`DropReason::Replayed`].
    pub(crate) fn open<'a>(&mut self, sealed: &'a [u8]) -> Result<&'a [u8], DropReason> {
        let forged = DropReason::Forged;
        let (rest, theirs) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(forged)?;
        let (transport, counter) = rest.split_last_chunk::<COUNTER_BYTES>().ok_or(forged)?;
        let number = u64::from_be_bytes(*counter);
        if self.window.is_old(number) {
            return Err(DropReason::Replayed);
        }
        self.copy.clear();
        self.copy.extend_from_slice(transport);
        let ours = tag(&self.key, *counter, &mut self.copy).ok_or(forged)?;
        if !bool::from(ours.ct_eq(theirs)) {
            return Err(forged);
        }
        self.window.note(number);
        Ok(transport)
    }
}

/// Which of the latest counters have come.
struct Window {
    /// The one after the highest.
    next: u64,
    seen: Box<[u64]>,
}

impl Default for Window {
    fn default() -> Self {
        Self { next: 0, seen: vec![0; (WINDOW / WORD_BITS) as usize].into() }
    }
}

impl Window {
    fn bit(counter: u64) -> (usize, u64) {
        let place = counter % WINDOW;
        ((place / WORD_BITS) as usize, 1 << (place % WORD_BITS))
    }

    /// Returns whether a counter has come, or is too far behind to know.
    fn is_old(&self, counter: u64) -> bool {
        let (word, bit) = Self::bit(counter);
        let is_behind = counter < self.next && self.next - counter > WINDOW;
        is_behind || counter < self.next && self.seen[word] & bit != 0
    }

    fn note(&mut self, counter: u64) {
        if counter >= self.next {
            if counter - self.next >= WINDOW {
                self.seen.fill(0);
            } else {
                for between in self.next..=counter {
                    let (word, bit) = Self::bit(between);
                    self.seen[word] &= !bit;
                }
            }
            self.next = counter.saturating_add(1);
        }
        let (word, bit) = Self::bit(counter);
        self.seen[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PacketKey = PacketKey([7; 16]);

    #[test]
    fn a_packet_is_opened_once_and_only_as_it_was_sealed() {
        let (sealer, mut opener) = (Sealer::new(KEY).unwrap(), Opener::new(KEY).unwrap());
        let whole = |bytes: &[u8]| [bytes, &sealer.seal(&mut bytes.to_vec())].concat();
        let (first, second) = (whole(b"the same"), whole(b"the same"));
        assert_ne!(first, second, "a retransmission has a counter of its own");
        assert_eq!(opener.open(&second), Ok(&b"the same"[..]));
        assert_eq!(opener.open(&first), Ok(&b"the same"[..]));
        assert_eq!(opener.open(&first), Err(DropReason::Replayed));
        let third = whole(b"altered");
        for bit in 0..third.len() * 8 {
            let mut altered = third.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(opener.open(&altered).is_err(), "bit {bit}");
        }
        for short in 0..third.len() {
            assert!(opener.open(&third[..short]).is_err(), "{short} bytes");
        }
        assert_eq!(opener.open(&third), Ok(&b"altered"[..]));
        let mut other = Opener::new(PacketKey([8; 16])).unwrap();
        assert_eq!(other.open(&third), Err(DropReason::Forged));
    }

    /// Test cases 1 and 2 of the specification of GCM (McGrew and Viega): zeros.
    #[test]
    fn the_tag_is_that_of_the_standard() {
        let sealed = |bytes: &mut [u8]| Sealer::new(PacketKey([0; 16])).unwrap().seal(bytes);
        for (bytes, tag) in [
            (0, 0x58e2_fcce_fa7e_3061_367f_1d57_a4e7_455a_u128),
            (16, 0xab6e_47d4_2cec_13bd_f53a_67b2_1257_bddf),
        ] {
            let sealed = sealed(&mut vec![0; bytes]);
            assert_eq!(sealed[..COUNTER_BYTES], [0; COUNTER_BYTES]);
            assert_eq!(sealed[COUNTER_BYTES..], tag.to_be_bytes());
        }
    }

    #[test]
    fn every_counter_is_taken_once_and_an_old_one_not_at_all() {
        let mut window = Window::default();
        let mut take = |counter| {
            let is_new = !window.is_old(counter);
            if is_new {
                window.note(counter);
            }
            is_new
        };
        assert!(take(5) && take(0) && !take(5) && !take(0) && take(3));
        assert!(take(WINDOW + 4) && !take(4), "4 is too old");
        assert!(take(WINDOW + 3) && take(6) && !take(6) && !take(5));
        assert!(take(10 * WINDOW) && take(9 * WINDOW + 1) && !take(9 * WINDOW));
        assert!(take(u64::MAX) && !take(u64::MAX - WINDOW - 1));
    }
}
