//! Senders that are killed, and a receiver that does not care.
use super::*;
use catchment_probe::child::{Child, hear, role, say};
use catchment_probe::random::Random;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

const BLOCKS: u32 = 3;
const BYTES: u32 = 4096;

fn layout() -> PaperLayout {
    PaperLayout::new(BLOCKS, BYTES).unwrap()
}

fn payload(header: PaperHeader) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    Random::new(1 + u64::from(header.packet) + (u64::from(header.device) << 16)).fill(&mut bytes);
    bytes
}

/// Not a test by itself: a sender of this device that sends for ever, until it is killed.
#[test]
fn sender_process() {
    let Some(device) = role() else { return };
    let device = device.parse().unwrap();
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
    for packet in 0.. {
        let header = PaperHeader { device, packet };
        let bytes = payload(header);
        while pool.fill(header, &bytes).is_err() {
            sender.step().unwrap();
        }
    }
}

/// A sender in a process of its own to this ring, over a new queue pair beside `end`.
fn start(end: &Side, ring: &Arc<dyn Mr>, device: usize) -> (Child, Side) {
    let mut child = Child::start("paper::takeover::sender_process", &device.to_string());
    let peer = child.says("end ");
    let mut end = end.second();
    child.tell(&format!("{} {} {}", end.qp.endpoint(), ring.addr(), ring.rkey()));
    child.says("connected");
    end.go_up(peer.parse().unwrap());
    child.tell("go");
    (child, end)
}

/// What came of each sender: every block whole, once, and in its order within one sender's.
struct Arrivals {
    receiver: PaperReceiver,
    packets: [Vec<u16>; SENDERS],
}

const SENDERS: usize = 6;

impl Arrivals {
    fn take(&mut self) -> Option<PaperBlock> {
        let block = self.receiver.poll()?;
        let header = block.header();
        assert!(block.payload().to_vec() == payload(header), "{header:?} is not whole");
        self.packets[usize::from(header.device)].push(header.packet);
        Some(block)
    }

    /// Takes so many blocks of this sender, and keeps the last one.
    fn take_of(&mut self, device: usize, count: usize) -> PaperBlock {
        let enough = self.packets[device].len() + count;
        loop {
            if let Some(block) = self.take()
                && self.packets[device].len() >= enough
            {
                return block;
            }
        }
    }
}

/// Senders are killed at any moment, and others take over from what the status bytes say: blocks with
/// status 1 that nobody has taken, one that the receiver has, free ones. The receiver is the same all
/// along and is told nothing. Each block with status 1 arrives whole and once, and none is overwritten.
/// What a sender had filled and not sent goes with it: at most its send blocks, one of which may have waited
/// for the block that the receiver kept while later ones went.
#[test]
fn s1_19_senders_are_killed_and_the_receiver_goes_on() {
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let [ours, _] = crate::two_devices();
    let end = side_at(ours, [1, 0, 1]);
    let ring = ring_mr(&end.pd, layout().total_bytes());
    let receiver = PaperReceiver::new(Arc::clone(&ring), layout(), true).unwrap();
    let mut arrivals = Arrivals { receiver, packets: [const { Vec::new() }; SENDERS] };
    let (mut kept, mut there) = (None::<PaperBlock>, Vec::new());
    for device in 0..SENDERS {
        let (mut child, _end) = start(&end, &ring, device);
        // Beside the block of the sender before, which was killed.
        drop(arrivals.take_of(device, 5));
        if let Some(kept) = kept {
            assert!(kept.payload().to_vec() == payload(kept.header()), "it was overwritten");
        }
        kept = Some(arrivals.take_of(device, 1 + random.below(200) as usize));
        // Any moment will do: in the middle of a block, or when the ring is full.
        std::thread::sleep(Duration::from_micros(random.below(2_000)));
        child.kill();
        there.extend(full_blocks(&ring));
    }
    drop(kept);
    while arrivals.take().is_some() {}
    for PaperHeader { device, packet } in there {
        let packets = &arrivals.packets[usize::from(device)];
        assert!(packets.contains(&packet), "sender {device}: {packet} is lost");
    }
    for (device, packets) in arrivals.packets.iter().enumerate() {
        let all: BTreeSet<u16> = packets.iter().copied().collect();
        assert_eq!(all.len(), packets.len(), "sender {device}: twice");
        let sent = usize::from(*all.last().unwrap()) + 1;
        assert!(sent - all.len() <= BLOCKS as usize, "sender {device}: {all:?}");
    }
}

/// What lies in blocks with status 1, whether or not the receiver has it.
fn full_blocks(ring: &Arc<dyn Mr>) -> Vec<PaperHeader> {
    let (bytes, layout) = (ring.region().whole().to_vec(), layout());
    let full = (0..BLOCKS).filter(|j| bytes[layout.status_offset() + *j as usize] == 1);
    let header = |j| bytes[layout.block_offset(j)..][..PaperLayout::HEADER_BYTES].try_into();
    full.map(|j| PaperHeader::decode(header(j).unwrap())).collect()
}
