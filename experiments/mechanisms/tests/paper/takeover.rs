//! Senders that are killed, and a receiver that does not care.
use super::*;
use catchment_probe::child::{Child, hear, role, say};
use catchment_probe::random::Random;
use std::time::{Duration, SystemTime};

const BLOCKS: u32 = 3;
const BYTES: u32 = 4096;

fn layout() -> PaperLayout {
    PaperLayout::new(BLOCKS, BYTES).unwrap()
}

fn payload(packet: u16) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    Random::new(u64::from(packet) + 1).fill(&mut bytes);
    bytes
}

/// Not a test by itself: a sender that sends for ever, from this packet number on, until it is killed.
#[test]
fn sender_process() {
    let Some(first) = role() else { return };
    let [_, ours] = crate::two_devices();
    let mut source = side_at(ours, [2, 0, 1]);
    say(&format!("end {}", source.qp.endpoint()));
    let line = hear();
    let words: Vec<&str> = line.split(' ').collect();
    source.go_up(words[0].parse().unwrap());
    say("connected");
    hear();
    let ring = RemoteAddr { addr: words[1].parse().unwrap(), rkey: words[2].parse().unwrap() };
    let pool = pool_of(&source, layout());
    let mut sender = PaperSender::attach(source.qp, source.cq, Arc::clone(&pool), ring);
    for packet in first.parse().unwrap().. {
        let (header, bytes) = (PaperHeader { device: 1, packet }, payload(packet));
        while pool.fill(header, &bytes).is_err() {
            sender.step().unwrap();
        }
    }
}

/// A sender in a process of its own to this ring, over a new queue pair beside `end`.
fn start(end: &Side, ring: &Arc<dyn Mr>, first: usize) -> (Child, Side) {
    let mut child = Child::start("paper::takeover::sender_process", &first.to_string());
    let peer = child.says("end ");
    let mut end = end.second();
    child.tell(&format!("{} {} {}", end.qp.endpoint(), ring.addr(), ring.rkey()));
    child.says("connected");
    end.go_up(peer.parse().unwrap());
    child.tell("go");
    (child, end)
}

/// Senders are killed at any moment, and others take over from what the status bytes say. The receiver
/// is the same all along and is told nothing; each block with status 1 arrives whole and once, the
/// one that the receiver has meanwhile is neither lost nor overwritten.
#[test]
fn s1_19_senders_are_killed_and_the_receiver_goes_on() {
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let [ours, _] = crate::two_devices();
    let end = side_at(ours, [1, 0, 1]);
    let ring = ring_mr(&end.pd, layout().total_bytes());
    let receiver = PaperReceiver::new(Arc::clone(&ring), layout(), true).unwrap();
    let mut packets = Vec::new();
    let take = |packets: &mut Vec<u16>| {
        let block = receiver.poll()?;
        let packet = block.header().packet;
        assert!(block.payload().to_vec() == payload(packet), "packet {packet} is not whole");
        packets.push(packet);
        Some(block)
    };
    for _ in 0..6 {
        let (mut child, _end) = start(&end, &ring, packets.len());
        let enough = packets.len() + 5 + random.below(200) as usize;
        let kept = loop {
            let Some(block) = take(&mut packets) else { continue };
            if packets.len() >= enough {
                break block;
            }
        };
        // Any moment will do.
        std::thread::sleep(Duration::from_micros(random.below(2_000)));
        child.kill();
        while take(&mut packets).is_some() {}
        assert!(kept.payload().to_vec() == payload(kept.header().packet), "it was overwritten");
        let mut sorted = packets.clone();
        sorted.sort_unstable();
        let all: Vec<u16> = (0..packets.len() as u16).collect();
        assert_eq!(sorted, all, "lost or twice");
    }
}
