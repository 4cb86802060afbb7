//! Sending and taking one message, however long it takes.
use catchment_channel::{Channel, ClaimError, Message};
pub use catchment_probe::patience::Patience;

/// Repeats a step as the policy says until it returns something.
fn until<T>(
    channel: &mut Channel,
    wait: &mut Patience,
    step: impl Fn(&mut Channel) -> Option<T>,
) -> T {
    loop {
        let found = step(channel);
        let found = found.or_else(|| {
            channel.rest().unwrap().then(|| wait.wait(Some(channel.watch()), || step(channel)))?
        });
        if let Some(found) = found {
            wait.found();
            return found;
        }
    }
}

/// Sends a message.
pub fn send(channel: &mut Channel, stream: u32, packet: u64, data: &[u8], wait: &mut Patience) {
    let bytes = data.len() as u32;
    let claim = until(channel, wait, |channel| match channel.claim(stream, bytes) {
        Ok(claim) => Some(claim),
        Err(ClaimError::WouldBlock) => None,
        Err(error) => panic!("{error}"),
    });
    channel.memory(&claim).write_at(0, data).unwrap();
    channel.commit(claim, packet).unwrap();
}

/// Takes a message.
pub fn take(channel: &mut Channel, wait: &mut Patience) -> Message {
    until(channel, wait, |channel| channel.take().unwrap())
}
