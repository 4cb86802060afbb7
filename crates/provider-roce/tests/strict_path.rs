//! A path that numbers the packets of a train differently from the ICRC, to a peer that checks:
//! what an adapter that cuts in hardware and an RNIC may be. Here the kernel cuts, and the
//! receiver's host drops every IPv4 packet whose identification is not 0.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use catchment_conformance::{Options, Side, connected, pattern};
use catchment_netns::{Namespace, VethPair, with_privilege};
use catchment_provider_roce::{RoceContext, RoceOptions, RoceProvider};
use catchment_roce as roce;
use catchment_verbs::SendOp;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Only the first packet of each of many trains arrives, and the peer misses the others.
const LONG: usize = 1 << 20;
/// Only the first packet of a train arrives: the peer misses nothing, only its silence shows it.
const SHORT: usize = 1 << 15;
/// Netfilter's rules of the receiver's host.
const STRICT: &str = "table ip strict {
    chain input {
        type filter hook input priority 0;
        udp dport 4791 ip id != 0 counter drop
    }
}";

fn rnic_like(at: &Namespace, address: IpAddr) -> Arc<RoceContext> {
    // Without selective repeat it is treated like an RNIC.
    let options = RoceOptions { selective_repeat: false, ..RoceOptions::default() };
    at.run(|| RoceProvider::new(options).open_device(&address.to_string())).unwrap().unwrap()
}

fn drop_numbered_packets(at: &Namespace) {
    let load = || {
        let mut nft = Command::new("nft");
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = nft.stdin.take().unwrap();
        stdin.write_all(STRICT.as_bytes()).unwrap();
        drop(stdin);
        assert!(nft.wait().unwrap().success(), "nft refuses the rules");
    };
    at.run(load).unwrap();
}

/// Moves the bytes four times and checks for retransmissions; then the peer gets no trains.
fn goes_one_by_one(go: fn(&mut StrictPath, usize), again: fn(&roce::Counters) -> u64) {
    for bytes in [LONG, SHORT] {
        let mut path = StrictPath::new(bytes);
        path.a.put(0, &pattern(5, bytes));
        for _ in 0..4 {
            go(&mut path, bytes);
        }
        assert!(path.b.get(0, bytes) == pattern(5, bytes));
        let counters = path.left.counters();
        assert!(again(&counters.protocol) > 0, "{counters:?}");
        assert_eq!(counters.gso_refused_peers, 1, "{counters:?}");
    }
}

#[test]
fn a_peer_that_drops_trains_gets_packets_one_by_one() {
    let write = |StrictPath { a, b, .. }: &mut StrictPath, bytes| {
        a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, bytes)]);
    };
    with_privilege("a_peer_that_drops_trains_gets_packets_one_by_one", || {
        goes_one_by_one(write, |counters| counters.retransmitted);
    });
}

#[test]
fn a_peer_that_reads_and_drops_trains_gets_answers_one_by_one() {
    let read = |StrictPath { a, b, .. }: &mut StrictPath, bytes| {
        b.run_ok(SendOp::Read(a.remote(0)), &[b.sge(0, bytes)]);
    };
    with_privilege("a_peer_that_reads_and_drops_trains_gets_answers_one_by_one", || {
        goes_one_by_one(read, |counters| counters.responses_repeated);
    });
}

/// From `a` to `b`, the packets of a train do not get through, except its first.
struct StrictPath {
    a: Side,
    b: Side,
    left: Arc<RoceContext>,
    _hosts: VethPair,
}

impl StrictPath {
    fn new(bytes: usize) -> Self {
        let hosts = VethPair::new(9000).unwrap();
        // The kernel cuts before the cable, so each packet has its own header there.
        hosts.left.ip(&["link", "set", "dev", "veth0", "gso_max_segs", "1"]).unwrap();
        drop_numbered_packets(&hosts.right);
        let left = rnic_like(&hosts.left, VethPair::LEFT_V4);
        let right = rnic_like(&hosts.right, VethPair::RIGHT_V4);
        let options = Options { bytes, ..Options::default() };
        let (a, b) = connected((left.clone(), &options), (right, &options));
        Self { a, b, left, _hosts: hosts }
    }
}
