//! What clients and their server say to each other: every byte follows from who says it and when.
use super::{Link, PATIENCE};
use crate::load::Random;
use catchment_channel::{ClaimError, EndError, Message, Tag};
use std::time::Duration;

/// Bytes of message number `packet` of this client; the server's have the highest bit.
pub(crate) fn content(client: u32, packet: u64, payload: &mut [u8]) -> usize {
    let seed = packet.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(client) << 32;
    let mut random = Random(seed | 1);
    let bytes = random.below(payload.len() as u64 + 1) as usize;
    random.fill(&mut payload[..bytes]);
    bytes
}

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

/// Says `count` messages and checks the answers, with at most `ahead` answers outstanding.
pub(crate) fn ask(link: &mut Link, client: u32, payload_bytes: usize, count: u64, ahead: u64) {
    let mut payload = vec![0; payload_bytes];
    let (mut said, mut heard) = (0, 0);
    while heard < count {
        if said < count && said - heard < ahead {
            say(link, client, said, &mut payload).unwrap();
            said += 1;
            continue;
        }
        let block = link.receive(PATIENCE).unwrap().expect("an answer");
        check(&block, client | OF_SERVER, heard, &mut payload);
        heard += 1;
    }
}

pub(crate) const SHORTLY: Duration = Duration::from_millis(20);
