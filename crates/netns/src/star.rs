//! Sources that share a bottleneck: a namespace for each, a router, and a namespace behind it.
//!
//! ```text
//! source 0 ── nic ─┐
//! source 1 ── nic ─┤ router ── bottleneck ── collector
//! ...              ┘
//! ```
//!
//! Each line is a veth pair. A NIC is a token bucket (tbf) on the source's end, the bottleneck one on the router's
//! end towards the collector, with a drop-tail queue in bytes. Nothing shapes the way back.
use crate::namespace::{Namespace, NetnsError, os, wait_until_crosses};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const INTERFACE: &str = "veth0";
/// The router's end towards the collector.
const OUT: &str = "out";
/// The number of the collector's line; those of sources come before it.
const COLLECTOR: u8 = 200;
/// What a NIC may hold of its own source: more than the socket's buffer, so that nothing is dropped there.
pub(crate) const NIC_QUEUE_BYTES: u64 = 64 << 20;

/// Sources and what they share.
#[derive(Debug, Clone, Copy)]
pub struct StarSpec {
    /// How many sources, 1 to 199.
    pub sources: u8,
    /// Longest IP packet.
    pub mtu: u32,
    /// Bits a second of each source's NIC; Ethernet frames count, 14 bytes of header each.
    pub nic_bps: u64,
    /// The same of the bottleneck.
    pub bottleneck_bps: u64,
    /// Bytes that may wait for it: of each band, where there are two.
    pub queue_bytes: u64,
    /// What it may send at once after a pause.
    pub burst_bytes: u64,
    /// Packets with this DSCP go first at the bottleneck, strictly; none: one queue for all.
    pub urgent_dscp: Option<u8>,
}

/// What a queue did since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct QueueCounts {
    /// Frames sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames for which there was no room.
    pub drops: u64,
}

#[derive(Deserialize)]
struct Qdisc {
    #[serde(default)]
    root: bool,
    #[serde(flatten)]
    counts: QueueCounts,
}

/// Source namespaces, a router, a collector's namespace. Dropping it removes them all.
#[derive(Debug)]
pub struct Star {
    /// One for each source.
    pub sources: Vec<Namespace>,
    /// Behind the bottleneck.
    pub collector: Namespace,
    /// Whether packets come in the order in which the bottleneck sent them: one processor takes all that arrives from it. Not
    /// everywhere may that be asked for.
    pub keeps_order: bool,
    router: Namespace,
}

impl Star {
    /// IPv4 address of the collector.
    pub const COLLECTOR_V4: IpAddr = v4(COLLECTOR, 2);
    /// IPv6 address of the collector.
    pub const COLLECTOR_V6: IpAddr = v6(COLLECTOR, 2);

    /// Returns the IPv4 and the IPv6 address of a source.
    pub const fn source(at: u8) -> (IpAddr, IpAddr) {
        (v4(at, 2), v6(at, 2))
    }

    /// Creates the namespaces and their links, and waits until packets of both families cross.
    ///
    /// # Errors
    /// [`NetnsError`]; nothing is left behind.
    pub fn new(spec: StarSpec) -> Result<Self, NetnsError> {
        let router = Namespace::new()?;
        let forwards = || {
            let set = |path| std::fs::write(path, "1");
            set("/proc/sys/net/ipv4/ip_forward")?;
            set("/proc/sys/net/ipv6/conf/all/forwarding")
        };
        let call = "turning forwarding on";
        router.run(forwards)?.map_err(|source| NetnsError::Os { call, source })?;
        let collector = join(&router, COLLECTOR, OUT, spec.mtu)?;
        let source = |at: u8| {
            let end = join(&router, at, &format!("in{at}"), spec.mtu)?;
            shape(&end, INTERFACE, spec.nic_bps, nic_burst(&spec), NIC_QUEUE_BYTES)?;
            Ok(end)
        };
        let sources = (0..spec.sources).map(source).collect::<Result<Vec<_>, NetnsError>>()?;
        match spec.urgent_dscp {
            Some(dscp) => prioritize(&router, &spec, dscp)?,
            None => shape(&router, OUT, spec.bottleneck_bps, spec.burst_bytes, spec.queue_bytes)?,
        }
        // Where the bottleneck's packets arrive: those that it sent from one processor would overtake those from another. Not
        // before it: what a processor holds up would reach its queue at once.
        let keeps_order = collector.steer(INTERFACE).is_ok();
        let star = Self { sources, collector, keeps_order, router };
        for (at, source) in (0..).zip(&star.sources) {
            let (v4, v6) = Self::source(at);
            wait_until_crosses((source, v4), (&star.collector, Self::COLLECTOR_V4))?;
            wait_until_crosses((source, v6), (&star.collector, Self::COLLECTOR_V6))?;
        }
        Ok(star)
    }

    /// Returns what the bottleneck did.
    ///
    /// # Errors
    /// [`NetnsError::Tool`].
    pub fn bottleneck(&self) -> Result<QueueCounts, NetnsError> {
        counts(&self.router, OUT)
    }

    /// Returns what the NICs did, together.
    ///
    /// # Errors
    /// [`NetnsError::Tool`].
    pub fn nics(&self) -> Result<QueueCounts, NetnsError> {
        let mut sum = QueueCounts::default();
        for source in &self.sources {
            let one = counts(source, INTERFACE)?;
            sum.packets += one.packets;
            sum.bytes += one.bytes;
            sum.drops += one.drops;
        }
        Ok(sum)
    }
}

const fn v4(line: u8, end: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 97, line, end))
}

const fn v6(line: u8, end: u8) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd97, line as u16, 0, 0, 0, 0, 0, end as u16))
}

/// Two frames: packets leave a NIC one after the other.
const fn nic_burst(spec: &StarSpec) -> u64 {
    2 * (spec.mtu as u64 + 14)
}

/// Makes a namespace and its link to the router.
fn join(router: &Namespace, line: u8, name: &str, mtu: u32) -> Result<Namespace, NetnsError> {
    let (end, mtu) = (Namespace::new()?, mtu.to_string());
    let peer = end.path();
    // A veth would carry many packets as one, and a queue drop them as one.
    router.ip(&[
        "link", "add", name, "mtu", &mtu, "gso_max_segs", "1", "type", "veth", "peer", "name",
        INTERFACE, "mtu", &mtu, "netns", &peer,
    ])?;
    end.ip(&["link", "set", INTERFACE, "gso_max_segs", "1"])?;
    router.connect(name, v4(line, 1), v6(line, 1), "fe80::1")?;
    end.connect(INTERFACE, v4(line, 2), v6(line, 2), "fe80::2")?;
    end.ip(&["route", "add", "default", "via", &v4(line, 1).to_string()])?;
    end.ip(&["-6", "route", "add", "default", "via", &v6(line, 1).to_string()])?;
    Ok(end)
}

/// Puts a token bucket with a drop-tail queue before an interface.
fn shape(
    at: &Namespace,
    interface: &str,
    rate_bps: u64,
    burst_bytes: u64,
    queue_bytes: u64,
) -> Result<(), NetnsError> {
    let (rate, burst) = (format!("{rate_bps}bit"), format!("{burst_bytes}b"));
    let limit = format!("{queue_bytes}b");
    at.tc(&[
        "qdisc", "add", "dev", interface, "root", "handle", "1:", "tbf", "rate", &rate, "burst",
        &burst, "limit", &limit,
    ])?;
    at.tc(&["qdisc", "add", "dev", interface, "parent", "1:1", "bfifo", "limit", &limit])
}

/// Puts two bands before the bottleneck, the first for packets with the DSCP.
fn prioritize(router: &Namespace, spec: &StarSpec, dscp: u8) -> Result<(), NetnsError> {
    const LEAST_BPS: u64 = 1_000_000;
    let (all, burst) = (format!("{}bit", spec.bottleneck_bps), format!("{}b", spec.burst_bytes));
    let most = format!("{}bit", spec.bottleneck_bps.saturating_sub(LEAST_BPS));
    let (least, limit) = (format!("{LEAST_BPS}bit"), spec.queue_bytes.to_string());
    router.tc(&["qdisc", "add", "dev", OUT, "root", "handle", "1:", "htb", "default", "20"])?;
    let class = |parent: &str, id: &str, rate: &str, prio: &str| {
        router.tc(&[
            "class", "add", "dev", OUT, "parent", parent, "classid", id, "htb", "rate", rate,
            "ceil", &all, "burst", &burst, "cburst", &burst, "prio", prio, "quantum", "9000",
        ])
    };
    class("1:", "1:1", &all, "0")?;
    for (id, rate, prio) in [("1:10", &most, "0"), ("1:20", &least, "1")] {
        class("1:1", id, rate, prio)?;
        router.tc(&["qdisc", "add", "dev", OUT, "parent", id, "bfifo", "limit", &limit])?;
    }
    let value = format!("{:#x}", dscp << 2);
    let filters = [("ip", "1", ["ip", "tos"]), ("ipv6", "2", ["ip6", "priority"])];
    for (protocol, order, [family, field]) in filters {
        router.tc(&[
            "filter", "add", "dev", OUT, "parent", "1:", "protocol", protocol, "prio", order,
            "u32", "match", family, field, &value, "0xfc", "flowid", "1:10",
        ])?;
    }
    Ok(())
}

fn counts(at: &Namespace, interface: &str) -> Result<QueueCounts, NetnsError> {
    let arguments = ["-s", "-j", "qdisc", "show", "dev", interface];
    let said = at.tool("tc", &arguments)?;
    let all: Vec<Qdisc> = serde_json::from_str(&said).unwrap_or_default();
    let root = all.into_iter().find(|one| one.root);
    root.map(|one| one.counts).ok_or_else(|| os("counters of tc")(rustix::io::Errno::PROTO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_privilege;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    const SPEC: StarSpec = StarSpec {
        sources: 2,
        mtu: 1500,
        nic_bps: 80_000_000,
        bottleneck_bps: 8_000_000,
        queue_bytes: 10_000,
        burst_bytes: 3000,
        urgent_dscp: None,
    };

    fn send(star: &Star, at: usize, from: IpAddr, tos: u8, bytes: &[u8], to: &UdpSocket) {
        let socket = star.sources[at].run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
        if from.is_ipv4() {
            rustix::net::sockopt::set_ip_tos(&socket, tos).unwrap();
        } else {
            rustix::net::sockopt::set_ipv6_tclass(&socket, tos.into()).unwrap();
        }
        for _ in 0..40 {
            socket.send_to(bytes, to.local_addr().unwrap()).unwrap();
        }
    }

    fn arrive(at: &UdpSocket) -> Vec<u8> {
        at.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let (mut all, mut bytes) = (Vec::new(), [0; 2000]);
        while let Ok(1000) = at.recv(&mut bytes) {
            all.push(bytes[0]);
        }
        all
    }

    #[test]
    fn the_queue_of_the_bottleneck_drops_what_it_counts() {
        with_privilege("star::tests::the_queue_of_the_bottleneck_drops_what_it_counts", || {
            let star = Star::new(SPEC).unwrap();
            let ends =
                [(Star::source(0).0, Star::COLLECTOR_V4), (Star::source(1).1, Star::COLLECTOR_V6)];
            for (at, (from, to)) in ends.into_iter().enumerate() {
                let to = star.collector.run(|| UdpSocket::bind((to, 0))).unwrap().unwrap();
                let before = star.bottleneck().unwrap();
                send(&star, at, from, 0, &[7; 1000], &to);
                let came = arrive(&to).len() as u64;
                let drops = star.bottleneck().unwrap().drops - before.drops;
                assert!(came >= 9 && drops > 0, "{came} came, {drops} were dropped");
                assert_eq!(came + drops, 40);
            }
            assert_eq!(star.nics().unwrap().drops, 0);
        });
    }

    #[test]
    fn urgent_packets_overtake_and_others_lose_their_room() {
        with_privilege("star::tests::urgent_packets_overtake_and_others_lose_their_room", || {
            let spec = StarSpec { urgent_dscp: Some(46), queue_bytes: 50_000, ..SPEC };
            let star = Star::new(spec).unwrap();
            for to in [Star::COLLECTOR_V4, Star::COLLECTOR_V6] {
                let from = |at| if to.is_ipv4() { Star::source(at).0 } else { Star::source(at).1 };
                let to = star.collector.run(|| UdpSocket::bind((to, 0))).unwrap().unwrap();
                send(&star, 0, from(0), 0, &[1; 1000], &to);
                send(&star, 1, from(1), 46 << 2, &[2; 1000], &to);
                let came = arrive(&to);
                assert_eq!(came.len(), 80);
                let last_urgent = came.iter().rposition(|byte| *byte == 2).unwrap();
                assert!(last_urgent < 79 && came[79] == 1, "{came:?}");
            }
            assert_eq!(star.bottleneck().unwrap().drops, 0);
        });
    }

    /// Two sources send at once, each from a processor of its own: what one sends comes in its order all the same.
    #[test]
    fn packets_keep_their_order() {
        with_privilege("star::tests::packets_keep_their_order", || {
            let spec = StarSpec {
                nic_bps: 250_000_000,
                bottleneck_bps: 500_000_000,
                queue_bytes: 1 << 20,
                burst_bytes: 16_384,
                ..SPEC
            };
            let star = Star::new(spec).unwrap();
            if !star.keeps_order {
                eprintln!("packets may overtake each other: this system steers none");
                return;
            }
            let read = || {
                let to = star.collector.run(|| UdpSocket::bind((Star::COLLECTOR_V4, 0)));
                let to = to.unwrap().unwrap();
                let address = to.local_addr().unwrap();
                to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                let reader = std::thread::spawn(move || {
                    let (mut bytes, mut all) = ([0; 1000], Vec::new());
                    while to.recv(&mut bytes).is_ok() {
                        all.push(u32::from_le_bytes(*bytes.first_chunk().unwrap()));
                    }
                    all
                });
                (address, reader)
            };
            let send = |at: usize, address: SocketAddr| {
                star.sources[at].run(|| {
                    let all = sched_getaffinity(None).unwrap();
                    let all: Vec<usize> =
                        (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
                    let mut one = CpuSet::new();
                    one.set(all[at % all.len()]);
                    sched_setaffinity(None, &one).unwrap();
                    let socket = UdpSocket::bind((Star::source(at as u8).0, 0)).unwrap();
                    let mut bytes = [0; 1000];
                    for number in 0..20_000_u32 {
                        bytes[..4].copy_from_slice(&number.to_le_bytes());
                        socket.send_to(&bytes, address).unwrap();
                    }
                })
            };
            let (readers, ends) = ([read(), read()], [0, 1]);
            std::thread::scope(|scope| {
                for (at, (address, _)) in ends.into_iter().zip(&readers) {
                    scope.spawn(move || send(at, *address).unwrap());
                }
            });
            for (_, reader) in readers {
                let came = reader.join().unwrap();
                assert!(came.len() > 1000, "{} came", came.len());
                let overtaken = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
                assert_eq!(overtaken, 0, "of {}", came.len());
            }
        });
    }
}
