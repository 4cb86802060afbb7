//! Sources that share a narrow path on this host, where no namespaces are allowed.
//!
//! ```text
//! source 0 ── entry, nic ─┐
//! source 1 ── entry, nic ─┤ path ── UDP port of the collector
//! ...                     ┘
//! ```
//!
//! One thread does all of it. When a packet has passed the NIC of its source follows from when it came, and so on: what the
//! thread does late is late, and no more of it is dropped for that than by real lines.
use crate::line::{LOOK, Line, Threads};
use crate::star::{NIC_QUEUE_BYTES, StarSpec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Of Ethernet, IPv4 and UDP: rates are those of frames, as between namespaces.
const HEADER_BYTES: u64 = 14 + 28;
/// Packets of an entry that are read before those of the next one.
const BATCH: usize = 32;
/// What an entry may hold until the thread comes, where the system allows so much.
const ENTRY_BYTES: usize = 4 << 20;

/// What is sent to an entry goes on to the port of the collector, from that entry. Dropping it ends it.
///
/// Nobody else is slowed down: who sends to the collector itself, and the way back.
#[derive(Debug)]
pub struct Detour {
    entries: Vec<Arc<UdpSocket>>,
    collector: SocketAddr,
    path_full: Arc<AtomicU64>,
    nic_full: Arc<AtomicU64>,
    _thread: Threads,
}

impl Detour {
    /// Starts it on free ports of 127.0.0.1, towards one that is free now: the collector is to take it. There is one queue for
    /// all packets, and nothing may leave at once after a pause.
    ///
    /// # Errors
    /// There is no port.
    pub fn new(spec: &StarSpec) -> io::Result<Self> {
        let any = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        // Nobody else is told of it, and no entry gets it.
        let free = any()?;
        let collector = free.local_addr()?;
        let entry = |_| -> io::Result<_> {
            let entry = any()?;
            entry.set_nonblocking(true)?;
            // The system may allow less.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&entry, ENTRY_BYTES);
            Ok(Arc::new(entry))
        };
        let entries = (0..spec.sources).map(entry).collect::<io::Result<Vec<_>>>()?;
        let (path_full, nic_full) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let nic = |_: &Arc<UdpSocket>| Line::new(spec.nic_bps, NIC_QUEUE_BYTES);
        let mut relay = Relay {
            nics: entries.iter().map(nic).collect(),
            entries: entries.clone(),
            to: collector,
            mtu: spec.mtu as usize,
            path: Line::new(spec.bottleneck_bps, spec.queue_bytes),
            path_full: Arc::clone(&path_full),
            nic_full: Arc::clone(&nic_full),
            number: 0,
            at_path: BinaryHeap::new(),
            under_way: VecDeque::new(),
            spare: Vec::new(),
        };
        let mut thread = Threads::default();
        thread.start(spec.bottleneck_bps, move || relay.turn());
        Ok(Self { entries, collector, path_full, nic_full, _thread: thread })
    }

    /// Returns the address that the collector is to take.
    #[must_use]
    pub const fn collector(&self) -> SocketAddr {
        self.collector
    }

    /// Returns where the datagrams of a source enter, if there is one with this number.
    #[must_use]
    pub fn entry(&self, source: u8) -> Option<SocketAddr> {
        self.entries.get(usize::from(source))?.local_addr().ok()
    }

    /// Returns how many packets found the queue of the path full.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.path_full.load(Ordering::Relaxed)
    }

    /// Returns how many packets found a NIC full, or an entry while the thread was late.
    ///
    /// # Errors
    /// The system does not say what an entry had no room for.
    pub fn nic_drops(&self) -> io::Result<u64> {
        let entries = self.entries.iter().map(|entry| dropped_by(entry));
        Ok(self.nic_full.load(Ordering::Relaxed) + entries.sum::<io::Result<u64>>()?)
    }
}

/// Returns how many datagrams a socket had no room for.
fn dropped_by(socket: &UdpSocket) -> io::Result<u64> {
    // SK_MEMINFO_DROPS is the last of nine numbers.
    let mut numbers = [0u32; 9];
    let mut bytes = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the option writes at most so many bytes into the numbers, which outlive the call.
    let failed = unsafe {
        let (fd, into) = (socket.as_raw_fd(), numbers.as_mut_ptr().cast());
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, into, &raw mut bytes)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(numbers[8]))
}

/// A packet, and the entry that it came by.
type Packet = (usize, Vec<u8>);

struct Relay {
    entries: Vec<Arc<UdpSocket>>,
    nics: Vec<Line>,
    to: SocketAddr,
    mtu: usize,
    path: Line,
    path_full: Arc<AtomicU64>,
    nic_full: Arc<AtomicU64>,
    /// Packets so far: the order of those that come together.
    number: u64,
    /// Packets on their way through NICs, and when each is at the path.
    at_path: BinaryHeap<Reverse<(Instant, u64, Packet)>>,
    /// Packets in the path, and when each has left it.
    under_way: VecDeque<(Instant, Packet)>,
    spare: Vec<Vec<u8>>,
}

impl Relay {
    /// Waits for a packet or for one to arrive somewhere, and does what is due. Returns false when the system refuses to wait.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        let at_path = self.at_path.peek().map(|Reverse((at, ..))| *at);
        let left = self.under_way.front().map(|(at, _)| *at);
        let due = at_path.into_iter().chain(left).min();
        let due = due.map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
        let mut ready: Vec<PollFd<'_>> =
            self.entries.iter().map(|entry| PollFd::new(entry, PollFlags::IN)).collect();
        if let Err(error) = poll(&mut ready, due.try_into().ok().as_ref())
            && error != Errno::INTR
        {
            return false;
        }
        let ready: Vec<bool> = ready.iter().map(|one| !one.revents().is_empty()).collect();
        for at in (0..ready.len()).filter(|at| ready[*at]) {
            self.take(at);
        }
        self.advance(Instant::now());
        true
    }

    /// Takes packets that wait at an entry.
    fn take(&mut self, at: usize) {
        for _ in 0..BATCH {
            let mut packet = self.spare.pop().unwrap_or_default();
            packet.resize(self.mtu, 0);
            // A socket tells so too that a datagram of before met nobody.
            let Ok(bytes) = self.entries[at].recv(&mut packet) else {
                return self.spare.push(packet);
            };
            packet.truncate(bytes);
            match self.nics[at].take(Instant::now(), bytes as u64 + HEADER_BYTES) {
                Some(leaves) => {
                    self.at_path.push(Reverse((leaves, self.number, (at, packet))));
                    self.number += 1;
                }
                None => {
                    self.nic_full.fetch_add(1, Ordering::Relaxed);
                    self.spare.push(packet);
                }
            }
        }
    }

    /// Lets packets pass that have arrived somewhere by a time.
    fn advance(&mut self, now: Instant) {
        while self.at_path.peek().is_some_and(|Reverse((at, ..))| *at <= now)
            && let Some(Reverse((at, _, packet))) = self.at_path.pop()
        {
            match self.path.take(at, packet.1.len() as u64 + HEADER_BYTES) {
                Some(leaves) => self.under_way.push_back((leaves, packet)),
                None => {
                    self.path_full.fetch_add(1, Ordering::Relaxed);
                    self.spare.push(packet.1);
                }
            }
        }
        while self.under_way.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, (entry, packet))) = self.under_way.pop_front()
        {
            // What the collector has no room for is lost, as on a wire.
            let _ = self.entries[entry].send_to(&packet, self.to);
            self.spare.push(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn spec(nic_bps: u64) -> StarSpec {
        StarSpec {
            sources: 2,
            mtu: 1500,
            nic_bps,
            bottleneck_bps: 400_000,
            queue_bytes: 10_000,
            burst_bytes: 0,
            urgent_dscp: None,
        }
    }

    fn ends(detour: &Detour) -> (UdpSocket, UdpSocket) {
        let end = UdpSocket::bind(detour.collector()).unwrap();
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), end)
    }

    /// No privilege is needed.
    #[test]
    fn what_the_queue_takes_goes_on_from_its_entry() {
        let detour = Detour::new(&spec(1_000_000_000)).unwrap();
        let (source, end) = ends(&detour);
        let entries = [0, 1].map(|at| detour.entry(at).unwrap());
        for number in 0..40u8 {
            source.send_to(&[number; 958], entries[usize::from(number % 2)]).unwrap();
        }
        // 1,000 bytes with their headers, 20 ms each: ten fit, and more while these leave.
        let mut came = 0;
        while came < 10 || came + detour.drops() < 40 {
            let mut bytes = [0; 2000];
            let (length, from) = end.recv_from(&mut bytes).unwrap();
            assert_eq!((length, from), (958, entries[usize::from(bytes[0] % 2)]));
            came += 1;
        }
        assert!(detour.drops() > 0);
        assert_eq!(came + detour.drops(), 40);
        assert_eq!(detour.nic_drops().unwrap(), 0);
    }

    /// A NIC that is slower than the path lets no queue grow.
    #[test]
    fn a_slow_nic_keeps_its_packets() {
        let detour = Detour::new(&spec(200_000)).unwrap();
        let (source, end) = ends(&detour);
        let began = Instant::now();
        for number in 0..15u8 {
            source.send_to(&[number; 958], detour.entry(0).unwrap()).unwrap();
        }
        for number in 0..15u8 {
            let mut bytes = [0; 2000];
            assert_eq!(end.recv(&mut bytes).unwrap(), 958);
            assert_eq!(bytes[0], number);
        }
        // 40 ms each.
        assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
        assert_eq!(detour.drops(), 0);
    }
}
