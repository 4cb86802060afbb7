//! Sending and taking one message, however long it takes.
use catchment_channel::{Channel, ClaimError, Message};
pub use catchment_probe::patience::Patience;

/// Sends a message.
pub fn send(channel: &mut Channel, stream: u32, packet: u64, data: &[u8], wait: &mut Patience) {
    let bytes = data.len() as u32;
    let claim = loop {
        let claim = match channel.claim(stream, bytes) {
            Ok(claim) => Some(claim),
            Err(ClaimError::WouldBlock) => {
                wait.wait(Some(channel.watch()), || channel.claim(stream, bytes).ok())
            }
            Err(error) => panic!("{error}"),
        };
        if let Some(claim) = claim {
            break claim;
        }
    };
    wait.found();
    channel.memory(&claim).write_at(0, data).unwrap();
    channel.commit(claim, packet).unwrap();
}

/// Takes a message.
pub fn take(channel: &mut Channel, wait: &mut Patience) -> Message {
    loop {
        let block = match channel.take().unwrap() {
            Some(block) => Some(block),
            None => wait.wait(Some(channel.watch()), || channel.take().unwrap()),
        };
        if let Some(block) = block {
            wait.found();
            return block;
        }
    }
}
