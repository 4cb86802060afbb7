//! Messages of clients and their server: every byte follows from the sender and the packet number.
use super::{Link, PATIENCE};
use catchment_channel::{ClaimError, EndError, Message, OperationError, Tag};
pub(crate) use catchment_probe::load::content;
use std::time::Duration;

/// The bit of a stream that marks messages of the server.
pub(crate) const OF_SERVER: u32 = 1 << 31;

fn check(block: &Message, client: u32, packet: u64, wanted: &mut [u8]) {
    let bytes = content(client, packet, wanted);
    let tag = Tag { stream: client, packet };
    assert_eq!(block.tag(), tag);
    assert!(block.payload().to_vec() == wanted[..bytes], "message {tag:?}");
}

fn say(link: &mut Link, client: u32, packet: u64, payload: &mut [u8]) -> Result<(), EndError> {
    let bytes = content(client, packet, payload);
    let tag = Tag { stream: client, packet };
    match link.send(tag, &payload[..bytes], PATIENCE) {
        Ok(()) => Ok(()),
        Err(ClaimError::End(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// Every message of the client is checked and answered, until it says goodbye.
pub(crate) fn answer(link: &mut Link, payload_bytes: usize) -> Result<(), EndError> {
    let mut payload = vec![0; payload_bytes];
    for packet in 0.. {
        let block = match link.receive(PATIENCE) {
            Ok(Some(block)) => block,
            Ok(None) => panic!("nothing came"),
            Err(EndError::PeerGone) if link.said_goodbye() => return Ok(()),
            Err(error) => return Err(error),
        };
        let client = block.tag().stream;
        check(&block, client, packet, &mut payload);
        drop(block);
        say(link, client | OF_SERVER, packet, &mut payload)?;
    }
    Ok(())
}

/// Sends `count` messages and checks the answers, with at most `ahead` answers outstanding.
pub(crate) fn ask(link: &mut Link, client: u32, payload_bytes: usize, count: u64, ahead: u64) {
    ask_while(link, client, payload_bytes, ahead, |_, said| said < count);
}

/// The same as long as `goes_on`, which gets the number of messages sent.
pub(crate) fn ask_while(
    link: &mut Link,
    client: u32,
    payload_bytes: usize,
    ahead: u64,
    mut goes_on: impl FnMut(&mut Link, u64) -> bool,
) {
    let mut payload = vec![0; payload_bytes];
    let (mut said, mut heard) = (0, 0);
    loop {
        let more = goes_on(link, said);
        if !more && heard == said {
            return;
        }
        if more && said - heard < ahead {
            say(link, client, said, &mut payload).unwrap();
            said += 1;
            continue;
        }
        let block = link.receive(PATIENCE).unwrap().expect("an answer");
        check(&block, client | OF_SERVER, heard, &mut payload);
        heard += 1;
    }
}

/// Bytes go to the server's memory and come back. False where messages fill the queue.
pub(crate) fn write_and_read_back(link: &mut Link, value: u8) -> bool {
    link.scratch().write_at(0, &[value; 1000]).unwrap();
    let moved = |link: &Link, ticket| match ticket {
        Ok(ticket) => link.wait(ticket, PATIENCE).unwrap(),
        Err(OperationError::QueueFull) => false,
        Err(error) => panic!("{error}"),
    };
    if !moved(link, link.write(0, 100, 1000)) || !moved(link, link.read(100, 2000, 1000)) {
        return false;
    }
    assert_eq!(link.scratch().subslice(2000, 1000).unwrap().to_vec(), [value; 1000]);
    true
}

pub(crate) const SHORTLY: Duration = Duration::from_millis(20);
