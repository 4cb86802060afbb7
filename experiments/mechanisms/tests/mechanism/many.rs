//! Many devices (S1.23): a window each, on one queue pair or on one each.
use super::suite::*;
use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

const DEVICES: u32 = 12;

fn forms_with_windows() -> Vec<SwFair> {
    let shape = Shape { blocks: 3, payload_bytes: 256 };
    forms().into_iter().map(|form| SwFair::new(shape, form).with_windows(DEVICES)).collect()
}

fn payload(device: u32, packet: u64) -> [u8; 16] {
    let mut bytes = [device as u8; 16];
    bytes[8..].copy_from_slice(&packet.to_le_bytes());
    bytes
}

/// One thread sends for all devices by turns.
#[test]
fn s1_23_twelve_windows_on_one_queue_pair() {
    let packets = scaled(2_000);
    for sw in forms_with_windows() {
        let Ends { mut sender, mut receiver, .. } = pair(&sw);
        let taken = AtomicU64::new(0);
        let all = packets * u64::from(DEVICES);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut wait = Patience::new(WaitPolicy::Yield);
                for packet in 0..packets {
                    for device in 0..DEVICES {
                        send(&mut sender, device, packet, &payload(device, packet), &mut wait);
                    }
                }
                finish(&mut sender, || taken.load(Ordering::Relaxed) == all);
            });
            let mut wait = Patience::new(WaitPolicy::Yield);
            let mut next = [0; DEVICES as usize];
            for _ in 0..all {
                let block = take(&mut receiver, &mut wait);
                let tag = block.tag();
                let expected = &mut next[tag.stream as usize];
                assert_eq!(tag.packet, *expected, "device {}", tag.stream);
                *expected += 1;
                assert_eq!(block.payload().to_vec(), payload(tag.stream, tag.packet));
                taken.fetch_add(1, Ordering::Relaxed);
            }
            assert_eq!(next, [packets; DEVICES as usize]);
        });
    }
}

/// A device whose blocks are all kept stops itself and no other.
#[test]
fn a_window_that_is_full_stops_no_other() {
    for sw in forms_with_windows() {
        let Ends { mut sender, mut receiver, .. } = pair(&sw);
        let mut wait = Patience::new(WaitPolicy::Yield);
        let mut kept = Vec::new();
        for packet in 0..3 {
            send(&mut sender, 5, packet, &payload(5, packet), &mut wait);
            kept.push(take(&mut receiver, &mut wait));
        }
        for packet in 0..100 {
            assert!(matches!(sender.claim(5, 16), Err(ClaimError::WouldBlock)));
            for device in (0..DEVICES).filter(|device| *device != 5) {
                send(&mut sender, device, packet, &payload(device, packet), &mut wait);
                let block = take(&mut receiver, &mut wait);
                assert_eq!((block.tag().stream, block.tag().packet), (device, packet));
            }
        }
        kept.clear();
        send(&mut sender, 5, 3, &payload(5, 3), &mut wait);
        assert_eq!(take(&mut receiver, &mut wait).tag().packet, 3);
    }
}

/// A program each in the paper; here a thread each at both ends, of one device.
#[test]
fn s1_23_twelve_windows_on_twelve_queue_pairs() {
    let packets = scaled(1_000);
    let (source, collector) = (host(), host());
    let sw = sw_paper(3, 256);
    let open_all = |host: &Host, needs: EndNeeds| -> Vec<Port> {
        (0..DEVICES).map(|_| open(host, &needs)).collect()
    };
    let out = open_all(&source, sw.sender_needs().unwrap());
    let back = open_all(&collector, sw.receiver_needs().unwrap());
    for ports in [&out, &back] {
        let numbers: BTreeSet<u32> = ports.iter().map(|port| port.qp.qpn()).collect();
        assert_eq!(numbers.len(), DEVICES as usize);
    }
    let taken = AtomicU64::new(0);
    let all = packets * u64::from(DEVICES);
    std::thread::scope(|scope| {
        for (device, (out, back)) in (0..).zip(out.into_iter().zip(back)) {
            let Ends { mut sender, mut receiver, .. } = join(&sw, [out, back]);
            let taken = &taken;
            scope.spawn(move || {
                let mut wait = Patience::new(WaitPolicy::Yield);
                for packet in 0..packets {
                    send(&mut sender, device, packet, &payload(device, packet), &mut wait);
                }
                finish(&mut sender, || taken.load(Ordering::Relaxed) == all);
            });
            scope.spawn(move || {
                let mut wait = Patience::new(WaitPolicy::Yield);
                for packet in 0..packets {
                    let block = take(&mut receiver, &mut wait);
                    assert_eq!(block.tag().stream, device);
                    assert_eq!(block.tag().packet, packet & 0xffff);
                    assert_eq!(block.payload().to_vec(), payload(device, packet));
                    taken.fetch_add(1, Ordering::Relaxed);
                }
                // The connection lives until all blocks have arrived.
                wait_until(|| taken.load(Ordering::Relaxed) == all);
            });
        }
    });
}

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}
