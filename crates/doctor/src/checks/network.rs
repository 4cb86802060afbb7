//! The network as software RoCE finds it.
use super::facts::{Facts, binary};
use super::rdma::Rdma;
use super::{Check, Works};
use catchment_provider_roce::io::{LocalAddress, Scope, UdpSocket, local_addresses, port_owner};
use catchment_provider_roce::{PathMtu, RoceOptions};
use catchment_verbs::NetEnd;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The MTU of an interface that has room for packets of 4096 bytes with all headers.
const MTU_WANTED: u32 = 4200;

/// What a socket of a RoCE device gets from this kernel.
pub(super) struct Udp {
    socket: Result<UdpSocket, String>,
}

impl Udp {
    /// Opens one on loopback, at a port of the kernel's choice.
    pub(super) fn try_out(options: &RoceOptions) -> Self {
        let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &options.socket);
        Self { socket: socket.map_err(|error| error.to_string()) }
    }

    pub(super) fn checks(&self, facts: &Facts) -> Vec<Check> {
        match &self.socket {
            Ok(socket) => vec![offload(socket), buffers(socket, facts)],
            Err(error) => vec![Check::problem(
                "udp",
                error,
                "roce needs UDP sockets: a seccomp profile or a missing loopback interface (ip link \
                 set lo up) prevents it",
            )],
        }
    }

    pub(super) fn works(&self) -> Works {
        let far = local_addresses().unwrap_or_default();
        let far: Vec<String> = far
            .iter()
            .filter(|at| at.scope < Scope::LinkLocal)
            .map(|at| format!("{} on {}", at.address, at.interface))
            .collect();
        let how = match (&self.socket, far.is_empty()) {
            (Err(error), _) => error.clone(),
            (Ok(_), false) => format!("from {}", far.join(", ")),
            (Ok(_), true) => "on this host only: no interface has an address".to_owned(),
        };
        Works { name: catchment_provider_roce::INFO.name, works: self.socket.is_ok(), how }
    }
}

fn offload(socket: &UdpSocket) -> Check {
    let lacks: Vec<&str> = [
        (socket.has_gso(), "GSO (sends packets one by one)"),
        (socket.has_gro(), "GRO (receives packets one by one)"),
    ]
    .into_iter()
    .filter_map(|(has, what)| (!has).then_some(what))
    .collect();
    if lacks.is_empty() {
        return Check::ok("udp", "UDP GSO and GRO: packets move in trains");
    }
    Check::note(
        "udp",
        format!("no UDP {}", lacks.join(", no UDP ")),
        "use Linux 5.0 or later; without trains roce moves some hundred MB/s and no more",
    )
}

fn buffers(socket: &UdpSocket, facts: &Facts) -> Check {
    let (receive, send) = (socket.receive_buffer(), socket.send_buffer());
    let got = |size: catchment_provider_roce::io::BufferSize| binary(size.kernel_bytes as u64 / 2);
    let limit = facts.proc("sys/net/core/rmem_max");
    let limit = limit.and_then(|limit| limit.parse().ok()).map(binary);
    let seen = format!(
        "receive {} of {}, send {} of {}{}",
        got(receive),
        binary(receive.asked_bytes as u64),
        got(send),
        binary(send.asked_bytes as u64),
        limit.map_or(String::new(), |limit| format!(", net.core.rmem_max {limit}"))
    );
    if !receive.is_limited() && !send.is_limited() {
        return Check::ok("buffers", seen);
    }
    Check::note(
        "buffers",
        seen,
        format!(
            "on the host: sysctl -w net.core.rmem_max={} net.core.wmem_max={} (a small buffer loses \
             packets of a burst, and so limits the window)",
            receive.asked_bytes, send.asked_bytes
        ),
    )
}

pub(super) fn port(options: &RoceOptions, rdma: &Rdma) -> Check {
    let name = "port";
    let port = options.port;
    let Some(advice) = port_owner(port) else {
        return Check::ok(name, format!("UDP port {port} is free"));
    };
    let seen = format!("UDP port {port} is taken: {advice}");
    if rdma.is_usable() {
        return Check::ok(name, format!("{seen} (this machine has ibverbs)"));
    }
    Check::note(
        name,
        seen,
        format!(
            "roce then uses another port, which other roce devices learn in the session; an RNIC at the other \
             end knows only {}",
            NetEnd::RNIC_UDP_PORT
        ),
    )
}

pub(super) fn interfaces() -> Vec<Check> {
    let all = match local_addresses() {
        Ok(all) => all,
        Err(error) => {
            return vec![Check::problem(
                "interface",
                format!("cannot list the addresses of this host: {error}"),
                "check whether `ip address` works here",
            )];
        }
    };
    let mut far: BTreeMap<&str, Vec<&LocalAddress>> = BTreeMap::new();
    for at in all.iter().filter(|at| at.scope != Scope::Loopback) {
        far.entry(&at.interface).or_default().push(at);
    }
    if far.is_empty() {
        return vec![Check::note(
            "interface",
            "no interface but loopback is up and has an address",
            "frames from other hosts need one: ip link, ip address",
        )];
    }
    far.into_iter().map(|(name, at)| interface(name, &at)).collect()
}

fn interface(name: &str, addresses: &[&LocalAddress]) -> Check {
    let mtu = addresses[0].mtu;
    let ipv6 = addresses.iter().any(|at| at.address.is_ipv6());
    let path_mtu = PathMtu::for_interface_mtu(mtu as usize, ipv6);
    let list: Vec<String> = addresses.iter().map(|at| at.address.to_string()).collect();
    let seen = |what: String| format!("{name}: {}, MTU {mtu}, {what}", list.join(", "));
    match path_mtu {
        None => Check::problem(
            "interface",
            seen("too small for RoCE".to_owned()),
            format!("ip link set dev {name} mtu 1500"),
        ),
        Some(path_mtu) if mtu < MTU_WANTED => Check::note(
            "interface",
            seen(format!("path MTU {}", path_mtu.bytes())),
            format!(
                "larger packets cost less: path MTU 4096 needs MTU {MTU_WANTED}; ip link set dev \
                 {name} mtu 9000, and as much on the switch and at the other end"
            ),
        ),
        Some(path_mtu) => Check::ok("interface", seen(format!("path MTU {}", path_mtu.bytes()))),
    }
}
