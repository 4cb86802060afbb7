//! A path between two namespaces that threads of this process make: they pass packets on, late, at a rate, and not all.
//!
//! A thread reads packets from the TUN interface of one end, keeps those that fit the queue before the path, and writes each to
//! the other end when it would have arrived.
use crate::line::{LOOK, Line, Threads};
use crate::namespace::{Namespace, NetnsError, os};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const INTERFACE: &str = "tun0";
/// Packets that wait for a thread of the relay: 10 ms of 1 Gbit/s.
const WAITING: &str = "10000";

/// One direction of a path; both are alike.
#[derive(Debug, Clone, Copy)]
pub struct PathSpec {
    /// Bits of IP packets a second.
    pub rate_bps: u64,
    /// From the last bit sent to the last bit received.
    pub delay: Duration,
    /// Bytes that may wait for the path; what does not fit is dropped.
    pub queue_bytes: u64,
    /// Longest IP packet.
    pub mtu: u32,
}

/// Two namespaces and the path between them. Dropping it removes them.
#[derive(Debug)]
pub struct LongPath {
    /// They end before the namespaces.
    _threads: Threads,
    /// One end: `10.98.0.1`.
    pub left: Namespace,
    /// The other end: `10.98.0.2`.
    pub right: Namespace,
    counts: [Arc<Counts>; 2],
}

/// What a path did.
#[derive(Debug, Default)]
struct Counts {
    passed: AtomicU64,
    lost: AtomicU64,
    queue_full: AtomicU64,
}

impl Counts {
    fn now(&self) -> PathCounts {
        let [passed, lost, queue_full] =
            [&self.passed, &self.lost, &self.queue_full].map(|count| count.load(Ordering::Relaxed));
        PathCounts { passed, lost, queue_full }
    }
}

/// Packets of a path, of both directions where it has two: those passed on, lost by chance, and dropped because the queue was full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Written to the other end.
    pub passed: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
}

impl LongPath {
    /// IPv4 address of the left end.
    pub const LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 98, 0, 1));
    /// IPv4 address of the right end.
    pub const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 98, 0, 2));

    /// Creates the namespaces, and starts the relay; each direction asks a `lose` of its own for every packet.
    ///
    /// # Errors
    /// [`NetnsError`]; nothing is left behind.
    pub fn new<L>(spec: PathSpec, lose: [L; 2]) -> Result<Self, NetnsError>
    where
        L: FnMut() -> bool + Send + 'static,
    {
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        let [near, far] = [(&left, Self::LEFT), (&right, Self::RIGHT)]
            .map(|(end, address)| attach(end, address, spec.mtu));
        let (near, far) = (Arc::new(near?), Arc::new(far?));
        let counts: [Arc<Counts>; 2] = Default::default();
        let ways = [(&near, &far), (&far, &near)];
        let mut threads = Threads::default();
        for (((from, to), lose), counts) in ways.into_iter().zip(lose).zip(&counts) {
            let ends = (Arc::clone(from), Arc::clone(to));
            let mut way = Way::new(ends, spec, lose, Arc::clone(counts));
            threads.start(spec.rate_bps, move || way.turn());
        }
        Ok(Self { _threads: threads, left, right, counts })
    }

    /// Returns what the relay did so far.
    pub fn counts(&self) -> PathCounts {
        let [there, back] = [self.counts[0].now(), self.counts[1].now()];
        PathCounts {
            passed: there.passed + back.passed,
            lost: there.lost + back.lost,
            queue_full: there.queue_full + back.queue_full,
        }
    }
}

/// Makes the TUN interface of an end.
fn attach(end: &Namespace, address: IpAddr, mtu: u32) -> Result<OwnedFd, NetnsError> {
    let tun = end.run(open_tun)??;
    end.ip(&["addr", "add", &format!("{address}/24"), "dev", INTERFACE])?;
    end.ip(&["link", "set", INTERFACE, "addrgenmode", "none"])?;
    let mtu = mtu.to_string();
    end.ip(&["link", "set", INTERFACE, "mtu", &mtu, "txqueuelen", WAITING, "up"])?;
    Ok(tun)
}

fn open_tun() -> Result<OwnedFd, NetnsError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let tun = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(os("/dev/net/tun"))?;
    // SAFETY: all zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(INTERFACE.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the request is an ifreq, as TUNSETIFF takes it, and outlives the call.
    if unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
        let source = std::io::Error::last_os_error();
        return Err(NetnsError::Os { call: "ioctl(TUNSETIFF)", source });
    }
    Ok(tun)
}

/// One direction.
struct Way<L> {
    from: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    spec: PathSpec,
    lose: L,
    counts: Arc<Counts>,
    line: Line,
    /// Packets and when each arrives.
    under_way: VecDeque<(Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl<L: FnMut() -> bool> Way<L> {
    fn new(
        ends: (Arc<OwnedFd>, Arc<OwnedFd>),
        spec: PathSpec,
        lose: L,
        counts: Arc<Counts>,
    ) -> Self {
        let (line, under_way, spare) =
            (Line::new(spec.rate_bps, spec.queue_bytes), VecDeque::new(), Vec::new());
        Self { from: ends.0, to: ends.1, spec, lose, counts, line, under_way, spare }
    }

    /// Waits for a packet or for one to arrive, and does what is due. Returns false when an end is gone.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        let due = self.under_way.front().map_or(LOOK, |(at, _)| at.saturating_duration_since(now));
        let timeout = due.min(LOOK).try_into().ok();
        let mut ends = [PollFd::new(&self.from, PollFlags::IN)];
        match poll(&mut ends, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => self.take() && self.deliver(),
            Err(_) => false,
        }
    }

    /// Takes the packets that wait.
    fn take(&mut self) -> bool {
        loop {
            let mut packet = self.spare.pop().unwrap_or_default();
            packet.resize(self.spec.mtu as usize, 0);
            match rustix::io::read(&self.from, &mut packet) {
                Ok(bytes) => packet.truncate(bytes),
                Err(Errno::AGAIN) => {
                    self.spare.push(packet);
                    return true;
                }
                Err(Errno::INTR) => {
                    self.spare.push(packet);
                    continue;
                }
                Err(_) => return false,
            }
            self.accept(packet);
            if !self.deliver() {
                return false;
            }
        }
    }

    fn accept(&mut self, packet: Vec<u8>) {
        let Some(leaves) = self.line.take(Instant::now(), packet.len() as u64) else {
            self.counts.queue_full.fetch_add(1, Ordering::Relaxed);
            return self.spare.push(packet);
        };
        if (self.lose)() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return self.spare.push(packet);
        }
        self.under_way.push_back((leaves + self.spec.delay, packet));
    }

    /// Writes the packets that have arrived. One that the interface does not take (it is being set up, or has no room) is
    /// lost, as on a wire.
    fn deliver(&mut self) -> bool {
        let now = Instant::now();
        while self.under_way.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, packet)) = self.under_way.pop_front()
        {
            if rustix::io::write(&self.to, &packet) == Err(Errno::BADFD) {
                return false;
            }
            self.counts.passed.fetch_add(1, Ordering::Relaxed);
            self.spare.push(packet);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_privilege;
    use std::net::UdpSocket;

    #[test]
    fn packets_come_late_not_all_and_no_more_than_the_queue_takes() {
        let name = "relay::tests::packets_come_late_not_all_and_no_more_than_the_queue_takes";
        with_privilege(name, || {
            let spec = PathSpec {
                rate_bps: 8_000_000,
                delay: Duration::from_millis(20),
                queue_bytes: 10_000,
                mtu: 1500,
            };
            let mut sent = 0;
            let every_fourth = move || {
                sent += 1;
                sent % 4 == 0
            };
            let path = LongPath::new(spec, [every_fourth, every_fourth]).unwrap();
            let bind = |end: &Namespace, at| end.run(|| UdpSocket::bind((at, 0))).unwrap().unwrap();
            let (left, right) =
                (bind(&path.left, LongPath::LEFT), bind(&path.right, LongPath::RIGHT));
            right.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let began = Instant::now();
            // 1,028 bytes with its headers: nine of them fit.
            for number in 0..40u8 {
                left.send_to(&[number; 1000], right.local_addr().unwrap()).unwrap();
            }
            let mut numbers = Vec::new();
            while numbers.len() < 7 {
                let mut bytes = [0; 2000];
                assert_eq!(right.recv(&mut bytes).unwrap(), 1000);
                numbers.push(bytes[0]);
            }
            assert!(began.elapsed() >= Duration::from_millis(21), "{:?}", began.elapsed());
            assert!(numbers.is_sorted() && numbers[6] > 6, "some are lost: {numbers:?}");
            let counts = path.counts();
            assert!(counts.lost >= 2 && counts.queue_full > 0, "{counts:?}");
        });
    }
}
