//! A GET, PUT or DELETE as one message, and its answer: `docs/spec/kv.md` section 4.
use crate::layout::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::operation::What;

/// Bytes before key and value, of requests and answers.
pub(crate) const HEADER_BYTES: usize = 24;
/// The longest message.
pub(crate) const MESSAGE_BYTES: usize = HEADER_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX;

const GET: u8 = 1;
const PUT: u8 = 2;
const REPLACE: u8 = 3;
const DELETE: u8 = 4;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    Absent,
    Changed,
    Full,
    Damaged,
    Wrong,
    /// As [`Status::Full`], but memory waits for a client.
    Later,
}

impl Status {
    const ALL: [Self; 7] = [
        Self::Done,
        Self::Absent,
        Self::Changed,
        Self::Full,
        Self::Damaged,
        Self::Wrong,
        Self::Later,
    ];
}

fn header(first: u8, key: usize, value: usize, version: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[0] = first;
    out[4..8].copy_from_slice(&(key as u32).to_le_bytes());
    out[8..12].copy_from_slice(&(value as u32).to_le_bytes());
    out[16..24].copy_from_slice(&version.to_le_bytes());
    out
}

struct Fields {
    first: u8,
    key: usize,
    value: usize,
    version: u64,
}

fn fields(bytes: &[u8]) -> Option<Fields> {
    let head = bytes.get(..HEADER_BYTES)?;
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        u32::from_le_bytes(bytes) as usize
    };
    let version = u64::from(number(16) as u32) | u64::from(number(20) as u32) << 32;
    let is_sound = head[1..4] == [0; 3] && number(12) == 0;
    is_sound.then_some(Fields { first: head[0], key: number(4), value: number(8), version })
}

/// Writes a request into `out`.
pub(crate) fn encode_request(key: &[u8], what: What<'_>, out: &mut Vec<u8>) {
    let (first, value, version) = match what {
        What::Get => (GET, &[][..], 0),
        What::Put { value, only: None } => (PUT, value, 0),
        What::Put { value, only: Some(version) } => (REPLACE, value, version),
        What::Delete => (DELETE, &[][..], 0),
    };
    out.clear();
    out.extend_from_slice(&header(first, key.len(), value.len(), version));
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Reads a request; `None` if it is none.
pub(crate) fn decode_request(bytes: &[u8]) -> Option<(&[u8], What<'_>)> {
    let Fields { first, key, value, version } = fields(bytes)?;
    if !(1..=KEY_BYTES_MAX).contains(&key) || value > VALUE_BYTES_MAX {
        return None;
    }
    let (name, value) = bytes.get(HEADER_BYTES..)?.split_at_checked(key)?;
    let is_whole =
        value.len() == bytes.len() - HEADER_BYTES - key && value.len() == fields(bytes)?.value;
    let what = match first {
        GET if value.is_empty() => What::Get,
        PUT => What::Put { value, only: None },
        REPLACE => What::Put { value, only: Some(version) },
        DELETE if value.is_empty() => What::Delete,
        _ => return None,
    };
    is_whole.then_some((name, what))
}

/// Writes an answer's header; its value follows.
pub(crate) fn encode_answer(
    status: Status,
    version: u64,
    value_bytes: usize,
) -> [u8; HEADER_BYTES] {
    header(status as u8, 0, value_bytes, version)
}

/// Reads an answer: status, version, value. `None` if it is none.
pub(crate) fn decode_answer(bytes: &[u8]) -> Option<(Status, u64, &[u8])> {
    let Fields { first, key, value, version } = fields(bytes)?;
    let status = *Status::ALL.get(usize::from(first))?;
    let rest = bytes.get(HEADER_BYTES..)?;
    (key == 0 && rest.len() == value).then_some((status, version, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_and_answers_read_back(key in vec(any::<u8>(), 1..40), value in vec(any::<u8>(), 0..90), version: u64) {
            let value = &value[..];
            let mut bytes = Vec::new();
            for what in [What::Get, What::Delete, What::Put { value, only: None }, What::Put { value, only: Some(version) }] {
                encode_request(&key, what, &mut bytes);
                prop_assert_eq!(decode_request(&bytes), Some((&key[..], what)));
                prop_assert_eq!(decode_request(&bytes[..bytes.len() - 1]), None);
            }
            for status in Status::ALL {
                let mut bytes = encode_answer(status, version, value.len()).to_vec();
                bytes.extend_from_slice(value);
                prop_assert_eq!(decode_answer(&bytes), Some((status, version, value)));
            }
        }

        #[test]
        fn no_bytes_make_the_readers_panic(bytes in vec(any::<u8>(), 0..80)) {
            let _ = (decode_request(&bytes), decode_answer(&bytes));
        }
    }
}
