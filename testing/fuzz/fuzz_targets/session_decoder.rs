//! Bytes of a control connection into the decoder: whole, in pieces, and back.
#![no_main]

use catchment_session::message::Message;
use catchment_session::wire::{DecodeError, Decoder, LONG_BYTES_MAX, encode};
use libfuzzer_sys::fuzz_target;

const LIMIT: u32 = 1 << 16;

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Message>, DecodeError> {
    let mut decoder = Decoder::new(LIMIT);
    let mut messages = Vec::new();
    for mut piece in pieces {
        while let Some(message) = decoder.decode(&mut piece)? {
            messages.push(message);
        }
        assert!(decoder.held_bytes() <= LIMIT as usize);
    }
    decoder.finish()?;
    Ok(messages)
}

fuzz_target!(|bytes: &[u8]| {
    let size = 1 + bytes.first().map_or(0, |&first| usize::from(first) % 61);
    let whole = decode(std::iter::once(bytes));
    assert_eq!(whole, decode(bytes.chunks(size)));
    for message in whole.into_iter().flatten() {
        let mut written = Vec::new();
        encode(&message, &mut written).expect("a message that was read can be written");
        let mut decoder = Decoder::new(LONG_BYTES_MAX);
        assert_eq!(decoder.decode(&mut &written[..]), Ok(Some(message)));
    }
});
