//! Sends and receives packets on UDP port 4791, with their ICRCs.
use crate::vm::network::{GUEST, HOST, IpVersion};
use anyhow::{Context as _, Result, bail};
use catchment_roce::wire::ip_id::Solver;
use catchment_roce::wire::{
    Headers, MAX_HEADER_BYTES, NetHeader, Packet, ROCE_PORT, icrc, pad_bytes,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 16 << 10;

/// Room for bursts of the guest while a case is busy.
const QUEUE_BYTES: usize = 4 << 20;

/// From `linux/udp.h`; the libc crate does not have it.
const UDP_NO_CHECK6_RX: libc::c_int = 102;

pub(crate) struct Wire {
    socket: UdpSocket,
    local: IpAddr,
    remote: IpAddr,
    solver: Solver,
    buffer: Box<[u8; BUFFER_BYTES]>,
    /// Packets received so far, all with the right ICRC.
    pub(crate) received: u64,
}

#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) headers: Headers,
    pub(crate) payload: Vec<u8>,
    pub(crate) src_port: u16,
}

impl Wire {
    pub(crate) fn open(version: IpVersion) -> Result<Self> {
        let (local, remote) = (HOST.of(version), GUEST.of(version));
        let socket = bind((local, ROCE_PORT).into())?;
        sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES)
            .context("cannot enlarge the receive buffer")?;
        socket.set_nonblocking(true)?;
        if version == IpVersion::V6 {
            accept_zero_checksums(&socket)?;
        }
        Ok(Self {
            socket,
            local,
            remote,
            solver: Solver::new(),
            buffer: Box::new([0; BUFFER_BYTES]),
            received: 0,
        })
    }

    /// Sends a packet with its pad and ICRC.
    pub(crate) fn send(&self, headers: &Headers, payload: &[u8]) -> Result<()> {
        self.send_transport(&encode(headers, payload))
    }

    /// Sends the bytes from the BTH to the pad, with their ICRC.
    pub(crate) fn send_transport(&self, transport: &[u8]) -> Result<()> {
        let icrc = icrc::compute(&self.net(self.local, self.remote, ROCE_PORT)?, transport);
        self.send_datagram(transport, icrc)
    }

    /// Sends bytes with the ICRC of `other` bytes of the same length.
    pub(crate) fn send_with_icrc_of(&self, transport: &[u8], other: &[u8]) -> Result<()> {
        let icrc = icrc::compute(&self.net(self.local, self.remote, ROCE_PORT)?, other);
        self.send_datagram(transport, icrc)
    }

    /// Sends bytes followed by this ICRC, right or wrong.
    pub(crate) fn send_datagram(&self, transport: &[u8], icrc: u32) -> Result<()> {
        let datagram = [transport, &icrc.to_le_bytes()].concat();
        loop {
            match self.socket.send_to(&datagram, (self.remote, ROCE_PORT)) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None)?;
                }
                Err(error) => return Err(error).context("cannot send"),
            }
        }
    }

    pub(crate) fn send_from(&self, src_port: u16, headers: &Headers, payload: &[u8]) -> Result<()> {
        let transport = encode(headers, payload);
        let net = self.net(self.local, self.remote, src_port)?;
        let icrc = icrc::compute(&net, &transport).to_le_bytes();
        bind((self.local, src_port).into())?
            .send_to(&[&transport[..], &icrc].concat(), (self.remote, ROCE_PORT))
            .context("cannot send")?;
        Ok(())
    }

    /// Sets what routers may change and the ICRC does not cover: hop limit and traffic class.
    pub(crate) fn set_changeable(&self, hops: u8, class: u8) -> Result<()> {
        if self.local.is_ipv4() {
            sockopt::set_ip_ttl(&self.socket, hops.into())?;
            sockopt::set_ip_tos(&self.socket, class)?;
        } else {
            sockopt::set_ipv6_unicast_hops(&self.socket, Some(hops))?;
            sockopt::set_ipv6_tclass(&self.socket, class.into())?;
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, limit: Duration) -> Result<Option<Received>> {
        let end = Instant::now() + limit;
        loop {
            let Some((bytes, from)) = self.datagram(end)? else { return Ok(None) };
            if from.ip() == self.remote {
                return self.check(bytes, from.port()).map(Some);
            }
        }
    }

    pub(crate) fn discard_pending(&mut self) -> Result<()> {
        while self.datagram(Instant::now())?.is_some() {}
        Ok(())
    }

    fn datagram(&mut self, end: Instant) -> Result<Option<(usize, SocketAddr)>> {
        loop {
            match self.socket.recv_from(&mut self.buffer[..]) {
                Ok(came) => return Ok(Some(came)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
            let left = end.saturating_duration_since(Instant::now());
            let mut waited_for = [PollFd::new(&self.socket, PollFlags::IN)];
            if left.is_zero() || poll(&mut waited_for, Some(&left.try_into()?))? == 0 {
                return Ok(None);
            }
        }
    }

    fn check(&mut self, bytes: usize, src_port: u16) -> Result<Received> {
        let net = self.net(self.remote, self.local, src_port)?;
        let datagram = &self.buffer[..bytes];
        let (transport, sent) = icrc::split(datagram).context("a datagram has no ICRC")?;
        self.solver.verify(&net, transport, sent)?;
        let packet = Packet::decode(transport)?;
        self.received += 1;
        Ok(Received { headers: packet.headers, payload: packet.payload.to_vec(), src_port })
    }

    fn net(&self, from: IpAddr, to: IpAddr, src_port: u16) -> Result<NetHeader> {
        Ok(match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => NetHeader::v4(from, to, src_port),
            (IpAddr::V6(from), IpAddr::V6(to)) => NetHeader::v6(from, to, src_port),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                bail!("{from} and {to} differ in their version of IP")
            }
        })
    }
}

/// Returns headers, payload and pad, with the pad count set for the payload.
pub(crate) fn encode(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut headers = *headers;
    headers.bth.pad = pad_bytes(payload.len());
    let mut bytes = [0; MAX_HEADER_BYTES];
    let header_bytes = headers.encode(&mut bytes);
    let mut transport = bytes[..header_bytes].to_vec();
    transport.extend(payload);
    transport.resize(transport.len() + usize::from(headers.bth.pad), 0);
    transport
}

/// Binds a socket whose IPv4 packets have identification 0, which the ICRC covers.
fn bind(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind {address}"))?;
    if address.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)
            .context("cannot forbid fragments")?;
    }
    Ok(socket)
}

/// Accepts UDP datagrams with checksum 0 over IPv6: the kernel's stack sends no others.
fn accept_zero_checksums(socket: &UdpSocket) -> Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on))?;
    // SAFETY: the descriptor is open, and the option is an int that lives during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            UDP_NO_CHECK6_RX,
            std::ptr::from_ref(&on).cast(),
            length,
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error()).context("cannot accept datagrams without a checksum")
}
