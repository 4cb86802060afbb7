//! Between two network namespaces joined by a veth pair.
use crate::observer::Observer;
use crate::support::{Link, PATIENCE, bind, sleep_on};
use catchment_netns::{VethPair, with_privilege};
use catchment_provider_roce::io::{
    Blocked, PathError, PathProbe, Route, Scope, SendBatch, SocketOptions, UdpSocket, Waiter,
    Wakeup, local_addresses,
};
use catchment_roce::wire::{PathMtu, ROCE_PORT};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

const ENDS: [(IpAddr, IpAddr); 2] =
    [(VethPair::LEFT_V4, VethPair::RIGHT_V4), (VethPair::LEFT_V6, VethPair::RIGHT_V6)];

/// A sender on the left, a receiver on the right.
fn link(pair: &VethPair, ends: (IpAddr, IpAddr), options: &SocketOptions) -> Link {
    let tx = pair.left.run(|| bind(ends.0, options)).unwrap();
    Link::new(tx, pair.right.run(|| bind(ends.1, options)).unwrap())
}

#[test]
fn trains_arrive_whole_and_merged() {
    with_privilege("veth::trains_arrive_whole_and_merged", || {
        let pair = VethPair::new(9000).unwrap();
        for ends in ENDS {
            let mut link = link(&pair, ends, &SocketOptions::default());
            for round in 0..4 {
                link.exchange(round * 100, &[4096; 15]);
                link.exchange(round * 100 + 50, &[1024, 1024, 1024, 700, 4096, 3]);
            }
            let counters = link.ring.counters();
            assert!(counters.messages < counters.packets / 2, "{counters:?}");
            assert_eq!(link.batch.counters().gso_fallbacks, 0);
        }
    });
}

#[test]
fn a_peer_without_gro_gets_each_packet_rightly_numbered() {
    with_privilege("veth::a_peer_without_gro_gets_each_packet_rightly_numbered", || {
        let pair = VethPair::new(9000).unwrap();
        let plain = SocketOptions { gro: false, ..SocketOptions::default() };
        for ends in ENDS {
            let mut link = link(&pair, ends, &plain);
            link.exchange(0, &[4096; 30]);
            assert_eq!(link.ring.counters().messages, 30);
            let mut observer = pair.right.run(|| Observer::bind(ends.1)).unwrap();
            observer.probe(&mut link.batch, &link.tx, 16);
            assert_eq!(observer.rightly_numbered(16, PATIENCE), 16);
        }
    });
}

#[test]
fn the_roce_port_is_free_in_a_new_namespace() {
    with_privilege("veth::the_roce_port_is_free_in_a_new_namespace", || {
        let pair = VethPair::new(9000).unwrap();
        for address in [VethPair::LEFT_V4, VethPair::LEFT_V6] {
            let wanted = SocketAddr::new(address, ROCE_PORT);
            let open = || UdpSocket::bind(wanted, &SocketOptions::default());
            assert_eq!(pair.left.run(open).unwrap().unwrap().local(), wanted);
        }
        let all = pair.left.run(local_addresses).unwrap().unwrap();
        let veth = all.iter().filter(|a| a.interface == "veth0");
        assert!(veth.clone().all(|a| a.mtu == 9000), "{all:?}");
        assert!(veth.clone().any(|a| a.scope == Scope::LinkLocal && a.scope_id > 0), "{all:?}");
    });
}

#[test]
fn a_path_that_shrinks_is_found_and_reported() {
    with_privilege("veth::a_path_that_shrinks_is_found_and_reported", || {
        let pair = VethPair::new(9000).unwrap();
        for ends in ENDS {
            pair.set_mtu(9000).unwrap();
            let mut link = link(&pair, ends, &SocketOptions::default());
            let paths = pair.left.run(|| PathProbe::new(link.tx.local())).unwrap().unwrap();
            let wide = paths.probe(link.route.remote).unwrap();
            assert_eq!((wide.ip_mtu, wide.path_mtu), (9000, PathMtu::Mtu4096));
            pair.set_mtu(1500).unwrap();
            let narrow = paths.probe(link.route.remote).unwrap();
            assert_eq!((narrow.ip_mtu, narrow.path_mtu), (1500, PathMtu::Mtu1024));

            // What fits goes; a train and a packet alone do not.
            link.push(5, &[1024]);
            link.push(0, &[4096, 4096, 4096, 64]);
            link.push(4, &[2000]);
            let done = pair.left.run(|| link.batch.flush(&link.tx)).unwrap();
            assert_eq!((done.packets, done.blocked), (1, None));
            let faults = link.batch.take_faults();
            assert_eq!(faults.iter().map(|f| f.packets).sum::<usize>(), 5, "{faults:?}");
            for fault in &faults {
                assert_eq!(fault.ip_mtu, Some(1500), "{fault}");
                assert!(fault.to_string().contains("is now 1500"), "{fault}");
            }
            // Being too long does not concern GSO.
            assert!(link.batch.gso_refused().is_empty());
            assert_eq!(link.receive(1), [(5, 1024)]);
        }
    });
}

#[test]
fn an_unreachable_peer_is_reported_and_stops_nobody_else() {
    with_privilege("veth::an_unreachable_peer_is_reported_and_stops_nobody_else", || {
        let pair = VethPair::new(9000).unwrap();
        let nowhere = ["192.0.2.1:4791", "[2001:db8::1]:4791"].map(|a| a.parse().unwrap());
        for (ends, nowhere) in ENDS.into_iter().zip(nowhere) {
            let mut link = link(&pair, ends, &SocketOptions::default());
            let good = link.route;
            link.route.remote = nowhere;
            link.push(1, &[100, 100]);
            link.route = good;
            link.push(3, &[100]);
            assert_eq!(link.batch.flush(&link.tx).packets, 1);
            let faults = link.batch.take_faults();
            assert_eq!((faults.len(), faults[0].remote, faults[0].packets), (1, nowhere, 2));
            assert_eq!(faults[0].source.kind(), std::io::ErrorKind::NetworkUnreachable);
            assert_eq!(link.receive(1), [(3, 100)]);
            let paths = pair.left.run(|| PathProbe::new(link.tx.local())).unwrap();
            let path = paths.unwrap().probe(nowhere);
            assert!(matches!(path, Err(PathError::Unreachable { .. })), "{path:?}");
        }
    });
}

#[test]
fn packets_wait_while_the_socket_is_full() {
    with_privilege("veth::packets_wait_while_the_socket_is_full", || {
        let pair = VethPair::new(9000).unwrap();
        let small =
            SocketOptions { send_buffer_bytes: 8 << 10, gso: false, ..SocketOptions::default() };
        let mut link = link(&pair, ENDS[0], &small);
        // The peer does not answer ARP: packets wait in the kernel, on the socket's account.
        pair.right.ip(&["link", "set", "veth0", "arp", "off"]).unwrap();
        pair.left.ip(&["neigh", "flush", "dev", "veth0"]).unwrap();
        link.push(0, &[1024; 40]);
        let first = link.batch.flush(&link.tx);
        assert_eq!(first.blocked, Some(Blocked::SocketFull));
        let left = 40 - first.packets;
        assert!(left > 0);
        assert_eq!(link.batch.waiting_packets(), left);

        pair.right.ip(&["link", "set", "veth0", "arp", "on"]).unwrap();
        let waiter = Waiter::new().unwrap();
        let mut sent = first.packets;
        while sent < 40 {
            assert_eq!(
                waiter.sleep(link.tx.as_fd(), Some(link.tx.as_fd()), PATIENCE).unwrap(),
                Wakeup::Ready
            );
            sent += link.batch.flush(&link.tx).packets;
        }
        assert_eq!(link.batch.waiting_packets(), 0);
        assert_eq!(link.receive(40).len(), 40);
    });
}

#[test]
fn a_batch_serves_many_peers() {
    with_privilege("veth::a_batch_serves_many_peers", || {
        let pair = VethPair::new(9000).unwrap();
        let options = SocketOptions::default();
        let tx = pair.left.run(|| bind(VethPair::LEFT_V6, &options)).unwrap();
        let peers: Vec<_> = (0..5)
            .map(|_| pair.right.run(|| bind(VethPair::RIGHT_V6, &options)).unwrap())
            .collect();
        let mut batch = SendBatch::new(&tx, 100);
        let (head, bytes) = crate::support::head(3, 0);
        let local = tx.local();
        for i in 0..20 {
            let route = Route { local, remote: peers[i % 5].local(), traffic_class: 0 };
            batch.push(&route, &head[..bytes], &[]).unwrap();
        }
        assert_eq!(batch.flush(&tx).packets, 20);
        assert_eq!(batch.counters().calls, 1);
        for peer in &peers {
            let mut ring = catchment_provider_roce::io::RecvRing::new(8);
            let mut seen = 0;
            while seen < 4 {
                sleep_on(peer, PATIENCE);
                seen += ring.receive(peer).unwrap();
            }
            assert_eq!(seen, 4);
        }
    });
}
