//! Over loopback, both families.
use crate::observer::Observer;
use crate::support::{Link, PATIENCE, bind, head, sleep_on};
use catchment_provider_roce::io::{
    BindError, Full, IcrcCheck, IcrcError, MAX_PIECES, PathProbe, Piece, RecvRing, Route,
    SendBatch, SocketOptions, UdpSocket,
};
use catchment_roce::wire::net::Ipv4Id;
use catchment_roce::wire::{NetHeader, PathMtu, icrc};
use catchment_verbs::mem::{MemError, Region, RegionOptions};
use socket2::{SockFilter, SockRef};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

const BOTH: [&str; 2] = ["127.0.0.1", "::1"];

fn wait_for(ring: &mut RecvRing, socket: &UdpSocket) {
    sleep_on(socket, PATIENCE);
    assert!(ring.receive(socket).unwrap() > 0, "nothing came");
}

#[test]
fn a_train_arrives_as_its_packets_in_one_message() {
    for address in BOTH {
        let mut link = Link::at(address, &SocketOptions::default());
        link.exchange(5, &[4096; 15]);
        let (sent, received) = (link.batch.counters(), link.ring.counters());
        assert_eq!((sent.packets, sent.messages, sent.calls), (15, 1, 1));
        assert_eq!((received.packets, received.messages), (15, 1), "{address}");
        assert_eq!(sent.bytes, 15 * (4096 + 28 + 4));
        assert_eq!(received.bytes, sent.bytes);
    }
}

#[test]
fn packets_of_all_sizes_arrive_whole() {
    let mixed = [0, 1, 2, 3, 4, 5, 4096, 4096, 4095, 256, 256, 100, 1024, 4096, 17];
    let around_the_fold = [0, 3, 16, 47, 48, 71, 72, 100, 130, 191, 192, 1000, 4096, 4096];
    for address in BOTH {
        let mut link = Link::at(address, &SocketOptions::default());
        link.exchange(0, &mixed);
        // Longer than a train may have, in bytes and in packets.
        link.exchange(100, &[1024; 200]);
        link.exchange(400, &[8; 150]);
        link.exchange(600, &around_the_fold);
        let longest = [65_400, 65_400];
        link.exchange(700, &longest);
        assert_eq!(link.batch.counters().gso_fallbacks, 0);
        assert_eq!(link.batch.take_faults().len(), 0);
    }
}

#[test]
fn without_offloads_or_checksum_each_packet_is_a_message() {
    let plain = SocketOptions { gso: false, gro: false, ..SocketOptions::default() };
    let unsummed = SocketOptions { checksum: false, ..SocketOptions::default() };
    for address in BOTH {
        let mut link = Link::at(address, &plain);
        link.exchange(0, &[1024; 70]);
        assert_eq!(link.batch.counters().messages, 70);
        // 64 packets a call.
        assert_eq!(link.batch.counters().calls, 2);
        assert_eq!(link.ring.counters().messages, 70);
        let mut link = Link::at(address, &unsummed);
        assert!(!link.tx.has_gso());
        link.exchange(9, &[512; 20]);
        assert_eq!(link.batch.counters().messages, 20);
    }
}

#[test]
fn the_ecn_bits_travel() {
    for address in BOTH {
        let mut link = Link::at(address, &SocketOptions::default());
        for ecn in [1, 2, 3, 0] {
            link.route.traffic_class = 0xb8 | ecn;
            link.send(0, &[64, 64]);
            wait_for(&mut link.ring, &link.rx);
            let seen: Vec<u8> = link.ring.packets().map(|packet| packet.ecn).collect();
            assert_eq!(seen, [ecn, ecn], "{address}");
        }
    }
}

/// Lets only packets with this traffic class pass: 4 bits of version come before it in IPv6.
fn has_class(ipv6: bool, class: u8) -> [SockFilter; 5] {
    let op = |code: u32, jt, jf, k| SockFilter::new(code as u16, jt, jf, k);
    let net = libc::SKF_NET_OFF as u32;
    let shift = if ipv6 { 4 } else { 0 };
    [
        op(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, net),
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0xff << shift),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(class) << shift),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

#[test]
fn the_traffic_class_travels_with_trains_and_alone() {
    for address in BOTH {
        let mut link = Link::at(address, &SocketOptions::default());
        let filter = has_class(link.rx.local().is_ipv6(), 46 << 2 | 2);
        SockRef::from(&link.rx).attach_filter(&filter).unwrap();
        link.route.traffic_class = 0;
        link.send(0, &[64, 64]);
        link.route.traffic_class = 46 << 2 | 2;
        link.send(10, &[64, 64]);
        link.send(20, &[64]);
        let mut count = 0;
        while count < 3 {
            wait_for(&mut link.ring, &link.rx);
            count += link.ring.packets().count();
        }
        assert_eq!(count, 3, "{address}: those of the first train did not pass");
    }
}

#[test]
fn damaged_and_short_packets_are_told_from_good_ones() {
    let socket = bind("127.0.0.1".parse().unwrap(), &SocketOptions::default());
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut ring = RecvRing::new(4);
    let mut check = IcrcCheck::new();
    stranger.send_to(&[1, 2], socket.local()).unwrap();
    wait_for(&mut ring, &socket);
    let packet = ring.packets().next().unwrap();
    assert_eq!(check.check(&packet), Err(IcrcError::TooShort(2)));
    stranger.send_to(&[7; 64], socket.local()).unwrap();
    wait_for(&mut ring, &socket);
    let refused = check.check(&ring.packets().next().unwrap());
    assert!(matches!(refused, Err(IcrcError::Mismatch(_))), "{refused:?}");
}

#[test]
fn what_does_not_fit_a_buffer_is_cut_off_and_counted() {
    let mut link = Link::at("127.0.0.1", &SocketOptions { gro: false, ..SocketOptions::default() });
    link.ring = RecvRing::with_buffer_bytes(4, 1000);
    link.send(0, &[2000, 100]);
    wait_for(&mut link.ring, &link.rx);
    // The long one is gone; the short one is whole.
    assert_eq!(link.ring.packets().count(), 1);
    assert_eq!(link.ring.packets().next().unwrap().bytes.len(), 132);
    assert_eq!(link.ring.counters().truncated, 1);

    // Of a merged train, only the packet at the cut is lost.
    let mut link = Link::at("127.0.0.1", &SocketOptions::default());
    link.ring = RecvRing::with_buffer_bytes(4, 1000);
    link.send(7, &[256; 6]);
    assert_eq!(link.receive(3), [(7, 256), (8, 256), (9, 256)]);
    assert_eq!(link.ring.counters().truncated, 1);
}

#[test]
fn a_full_batch_and_bad_pieces_are_refused() {
    let socket = bind("::1".parse().unwrap(), &SocketOptions::default());
    let mut batch = SendBatch::new(&socket, 2);
    let route = Route { local: socket.local(), remote: socket.local(), traffic_class: 0 };
    let region = Region::alloc(4096, RegionOptions::default()).unwrap();
    let (head, bytes) = head(1, 8);
    let head = &head[..bytes];
    let piece = |offset, bytes| Piece { region: &region, offset, bytes };
    let long = batch.push(&route, &[0; 5000], &[]);
    assert!(matches!(long, Err(Full::TooLong { .. })), "{long:?}");
    for good in [0, 8] {
        // Copied at once, gathered later, and gathered behind a good one.
        for outside in
            [&[piece(4090, 8)][..], &[piece(4000, 400)], &[piece(0, 400), piece(4090, 8)]]
        {
            let outside = batch.push(&route, head, outside);
            assert!(matches!(outside, Err(Full::Memory(MemError::OutOfBounds { .. }))));
        }
        batch.push(&route, head, &[piece(good, 8)]).unwrap();
    }
    let full = batch.push(&route, head, &[piece(0, 8)]);
    assert!(matches!(full, Err(Full::NoRoom(2))), "{full:?}");
    assert_eq!(batch.flush(&socket).packets, 2);
    batch.push(&route, head, &[piece(0, 8)]).unwrap();

    // What was refused left nothing in the train.
    let mut ring = RecvRing::new(8);
    let mut seen = 0;
    while seen < 2 {
        wait_for(&mut ring, &socket);
        for packet in ring.packets() {
            assert_eq!(IcrcCheck::new().check(&packet).unwrap().len(), bytes + 8);
            seen += 1;
        }
    }
}

#[test]
fn scattered_payloads_are_gathered_and_have_a_limit() {
    let region = Region::alloc(1 << 16, RegionOptions::default()).unwrap();
    region.whole().fill(9).unwrap();
    // What comes before the first long piece would be copied.
    let piece = |i| Piece { region: &region, offset: i * 400, bytes: if i == 0 { 400 } else { 8 } };
    let pieces: Vec<_> = (0..=MAX_PIECES).map(piece).collect();
    let payload_bytes = 400 + (MAX_PIECES - 1) * 8;
    let mut link = Link::at("::1", &SocketOptions::default());
    let (head, bytes) = head(1, payload_bytes);
    let head = &head[..bytes];
    let refused = link.batch.push(&link.route, head, &pieces);
    assert!(matches!(refused, Err(Full::Scattered(33))), "{refused:?}");
    // More gather entries than one message may have: two messages.
    for _ in 0..40 {
        link.batch.push(&link.route, head, &pieces[..MAX_PIECES]).unwrap();
    }
    assert_eq!(link.batch.flush(&link.tx).packets, 40);
    assert_eq!(link.batch.counters().messages, 2);
    assert_eq!(link.batch.counters().gso_fallbacks, 0);
    let mut seen = 0;
    while seen < 40 {
        wait_for(&mut link.ring, &link.rx);
        for packet in link.ring.packets() {
            IcrcCheck::new().check(&packet).unwrap();
            let payload = &packet.bytes[bytes..bytes + payload_bytes];
            assert!(payload.iter().all(|byte| *byte == 9));
            seen += 1;
        }
    }
}

#[test]
fn memory_stays_mapped_until_its_packets_are_sent() {
    let mut link = Link::at("127.0.0.1", &SocketOptions::default());
    let region = Region::alloc(4096, RegionOptions::default()).unwrap();
    region.whole().fill(3).unwrap();
    let piece = Piece { region: &region, offset: 0, bytes: 4096 };
    let (head, bytes) = head(1, 4096);
    link.batch.push(&link.route, &head[..bytes], &[piece]).unwrap();
    drop(region);
    assert_eq!(link.batch.flush(&link.tx).packets, 1);
    wait_for(&mut link.ring, &link.rx);
    assert_eq!(&link.ring.packets().next().unwrap().bytes[28..28 + 4096], &[3; 4096]);
}

#[test]
fn a_taken_port_names_its_owner_and_remedies() {
    for address in BOTH {
        let first = bind(address.parse().unwrap(), &SocketOptions::default());
        let refused = UdpSocket::bind(first.local(), &SocketOptions::default()).unwrap_err();
        assert!(matches!(refused, BindError::InUse(_)), "{refused:?}");
        let text = refused.to_string();
        let pid = format!("process {} ", std::process::id());
        for part in [&first.local().to_string(), &pid, "namespace", "enable_roce false"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}

#[test]
fn an_address_that_is_not_one_of_ours_is_refused_with_the_own_ones() {
    for foreign in ["192.0.2.77:4791", "0.0.0.0:4791", "[::]:4791"] {
        let address = foreign.parse().unwrap();
        let text = UdpSocket::bind(address, &SocketOptions::default()).unwrap_err().to_string();
        assert!(text.contains(foreign) && text.contains("127.0.0.1 (lo)"), "{text}");
    }
}

#[test]
fn buffers_say_how_large_they_became() {
    let options = SocketOptions { receive_buffer_bytes: 1 << 20, ..SocketOptions::default() };
    let got = bind("127.0.0.1".parse().unwrap(), &options).receive_buffer();
    assert_eq!(got.asked_bytes, 1 << 20);
    assert!(got.kernel_bytes > 0);
    assert_eq!(got.is_limited(), got.kernel_bytes < 2 << 20);
}

#[test]
fn trains_are_numbered_as_the_icrc_expects_and_packets_alone_are_not() {
    for address in BOTH {
        let address = address.parse().unwrap();
        let sender = bind(address, &SocketOptions::default());
        let mut observer = Observer::bind(address);
        let mut batch = SendBatch::new(&sender, 16);
        observer.probe(&mut batch, &sender, 16);
        assert_eq!(batch.counters().messages, 1, "one train");
        assert_eq!(observer.rightly_numbered(16, PATIENCE), 16, "{address}");
    }
    // The observer can tell: packets sent alone all have identification 0.
    let address = "127.0.0.1".parse().unwrap();
    let sender = bind(address, &SocketOptions::default());
    let mut observer = Observer::bind(address);
    let mut batch = SendBatch::new(&sender, 8);
    batch.refuse_gso(address);
    observer.probe(&mut batch, &sender, 8);
    // Over loopback all are there when the flush returns.
    assert_eq!(observer.rightly_numbered(8, std::time::Duration::from_millis(50)), 1);
}

/// The receiver solves for the identification, so it would take a wrong one too: here it is given.
#[test]
fn the_icrc_of_a_train_covers_the_number_of_each_packet() {
    for gso in [true, false] {
        let mut link = Link::at("127.0.0.1", &SocketOptions { gso, ..SocketOptions::default() });
        let (from, to) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        let mut net = NetHeader::v4(from, to, link.tx.local().port());
        net.dst_port = link.rx.local().port();
        link.send(0, &[1000, 1000, 1000, 1000, 12]);
        wait_for(&mut link.ring, &link.rx);
        for (i, packet) in link.ring.packets().enumerate() {
            let (transport, received) = icrc::split(packet.bytes).unwrap();
            let net = net.with_ipv4_id(Ipv4Id::new(if gso { i as u16 } else { 0 }));
            icrc::verify(&net, transport, received).unwrap();
        }
        assert_eq!(link.ring.packets().count(), 5);
    }
}

#[test]
fn the_path_over_loopback_carries_the_largest_mtu() {
    for address in BOTH {
        let remote = SocketAddr::new(address.parse().unwrap(), 4791);
        let path = PathProbe::new(remote).unwrap().probe(remote).unwrap();
        assert_eq!(path.local, remote.ip());
        assert_eq!(path.path_mtu, PathMtu::Mtu4096);
        assert!(path.to_string().contains("RoCE path MTU 4096"), "{path}");
    }
}

/// The kernel's table of sockets lacks lines now and then while sockets close: in one look of twenty here.
#[test]
fn the_owner_of_a_port_is_found_while_other_sockets_close() {
    let first = bind("127.0.0.1".parse().unwrap(), &SocketOptions::default());
    let pid = format!("process {} ", std::process::id());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = VecDeque::new();
            while !stop.load(Ordering::Relaxed) {
                held.extend((0..50).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()));
                held.drain(..held.len().saturating_sub(100));
            }
        });
        let refused = |_| {
            let refused = UdpSocket::bind(first.local(), &SocketOptions::default()).unwrap_err();
            refused.to_string()
        };
        let (all, mut missed) = (0..100, Vec::new());
        missed.extend(all.map(refused).filter(|reason| !reason.contains(&pid)));
        stop.store(true, Ordering::Relaxed);
        assert!(missed.is_empty(), "{missed:?}");
    });
}
