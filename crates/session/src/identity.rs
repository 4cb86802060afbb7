//! Who a source is, and how it proves that a Hello is its own and of this moment.
//!
//! A source draws a key pair at its start. Hello names the public key; the collector answers with a number
//! that it has never used, and the source signs it. So who has read or recorded a Hello gains nothing: a
//! replayed one cannot answer, nor one that its source gave up while it waited in the collector's queue.
use catchment_verbs::provider::random_bytes;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;
use std::{fmt, io};

/// What the signature is about, so that it says nothing in another place.
const PURPOSE: &[u8] = b"catchment session proof\0";

/// Bytes that are written as hexadecimal digits, two for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hex<const N: usize>(pub [u8; N]);

/// A number that a collector uses once.
pub type Nonce = Hex<16>;
/// An Ed25519 signature.
pub type Signature = Hex<64>;

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> Hex<N> {
    /// Draws bytes from the random source of the system.
    ///
    /// # Errors
    /// The system fails to provide them.
    pub fn random() -> io::Result<Self> {
        random_bytes().map(Self).map_err(io::Error::other)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; N];
        if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, i) in bytes.iter_mut().zip(0..) {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let (seen, digits) = (crate::names::printable(&text, 32), 2 * N);
            D::Error::custom(format_args!("\"{seen}\" is not {digits} hexadecimal digits"))
        })
    }
}

/// The public key of a source process: the same in all its sessions, another after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, derive_more::Display)]
#[serde(transparent)]
pub struct Instance(pub Hex<32>);

impl Instance {
    /// Returns a short number for it, for counters. Not a proof of anything.
    pub fn number(self) -> u64 {
        let Self(Hex(key)) = self;
        let mut number = [0; 8];
        number.copy_from_slice(&key[..8]);
        u64::from_be_bytes(number)
    }

    /// Returns whether this process signed `nonce` for its attempt of this number.
    pub(crate) fn proves(self, nonce: Nonce, attempt: u64, signature: &Signature) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.0.0);
        key.verify(&signed(nonce, attempt), &signature.0).is_ok()
    }
}

/// The key pair of a source process. Clones are the same process.
#[derive(Clone)]
pub struct Identity(Arc<Ed25519KeyPair>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.instance())
    }
}

impl Identity {
    /// Draws a new one.
    ///
    /// # Errors
    /// The system fails to provide random bytes.
    pub fn random() -> io::Result<Self> {
        Self::from_seed(Hex::random()?)
    }

    /// Returns the one of `seed`, which must be secret.
    ///
    /// # Errors
    /// The cryptography refuses the seed, which no seed of this length has shown so far.
    pub fn from_seed(seed: Hex<32>) -> io::Result<Self> {
        let key = Ed25519KeyPair::from_seed_unchecked(&seed.0)
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(Arc::new(key)))
    }

    /// Returns the public key.
    pub fn instance(&self) -> Instance {
        let mut key = [0; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        Instance(Hex(key))
    }

    /// Signs the collector's `nonce` for the attempt of this number.
    pub fn prove(&self, nonce: Nonce, attempt: u64) -> Signature {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.0.sign(&signed(nonce, attempt)).as_ref());
        Hex(signature)
    }
}

fn signed(nonce: Nonce, attempt: u64) -> Vec<u8> {
    [PURPOSE, &nonce.0, &attempt.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_process_one_nonce_and_one_attempt() {
        let (ours, other) = (Identity::random().unwrap(), Identity::random().unwrap());
        let nonce = Nonce::random().unwrap();
        let signature = ours.prove(nonce, 4);
        assert!(ours.instance().proves(nonce, 4, &signature));
        assert!(!other.instance().proves(nonce, 4, &signature));
        assert!(!ours.instance().proves(nonce, 5, &signature));
        assert!(!ours.instance().proves(Nonce::random().unwrap(), 4, &signature));
        assert!(!Instance(Hex([0; 32])).proves(nonce, 4, &signature));
    }

    #[test]
    fn hexadecimal_digits_come_back_and_others_are_refused() {
        let nonce = Nonce::random().unwrap();
        assert_eq!(Hex::parse(&nonce.to_string()), Some(nonce));
        for text in ["", "00", "0g0102030405060708090a0b0c0d0e0f", "é0102030405060708090a0b0c0d0e0"]
        {
            assert_eq!(Nonce::parse(text), None, "{text}");
        }
    }
}
