//! Paths that a thread of this process makes: it passes packets on, late, at a rate, and not all.
//!
//! It reads packets, keeps those that fit the queue before the path, and writes each when it would have arrived. Two
//! namespaces are joined by a [`LongPath`], whose ends have a TUN interface each. Where there may be no namespaces, a
//! [`Detour`] passes datagrams on to a socket of this host.
use crate::namespace::{Namespace, NetnsError, os};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERFACE: &str = "tun0";
/// Packets that wait for a thread of the relay: 10 ms of 1 Gbit/s.
const WAITING: &str = "10000";
/// The relay of a slower path goes before other threads: it takes little of a processor, while one of 1 Gbit/s would
/// take it from the ends.
const SLOW_BPS: u64 = 200_000_000;
/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

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

/// What one direction did.
#[derive(Debug, Default)]
struct Counts {
    passed: AtomicU64,
    lost: AtomicU64,
    queue_full: AtomicU64,
}

impl Counts {
    /// In the order of their names.
    fn now(&self) -> [u64; 3] {
        [&self.passed, &self.lost, &self.queue_full].map(|count| count.load(Ordering::Relaxed))
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
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let ends = (Incoming::Tun(from), Outgoing::Tun(to));
            threads.start(Way::new(ends, spec, lose, Arc::clone(counts)));
        }
        Ok(Self { _threads: threads, left, right, counts })
    }

    /// Returns what the relay did so far.
    pub fn counts(&self) -> PathCounts {
        let [there, back] = [self.counts[0].now(), self.counts[1].now()];
        let [passed, lost, queue_full] = [0, 1, 2].map(|what: usize| there[what] + back[what]);
        PathCounts { passed, lost, queue_full }
    }
}

/// The threads of a path, one for each direction. Dropping them ends them.
#[derive(Debug, Default)]
struct Threads {
    ended: Arc<AtomicBool>,
    all: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start<L: FnMut() -> bool + Send + 'static>(&mut self, mut way: Way<L>) {
        let ended = Arc::clone(&self.ended);
        self.all.push(std::thread::spawn(move || {
            if way.spec.rate_bps <= SLOW_BPS {
                go_first();
            }
            while !ended.load(Ordering::Relaxed) && way.turn() {}
        }));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.all.drain(..) {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// A narrow path to a UDP socket of this host, where no namespaces are allowed: what is sent to its entry goes on to that
/// socket, from the entry. Dropping it ends it.
///
/// Nobody else is slowed down: who sends to the socket itself, and the way back.
#[derive(Debug)]
pub struct Detour {
    entry: Arc<UdpSocket>,
    counts: Arc<Counts>,
    _thread: Threads,
}

/// Of IPv4 and UDP: the rate of a path is that of IP packets.
const HEADER_BYTES: u64 = 28;

impl Detour {
    /// Starts it on a free port of 127.0.0.1, towards a socket of that address.
    ///
    /// # Errors
    /// There is no port.
    pub fn new(spec: PathSpec, to: SocketAddr) -> io::Result<Self> {
        let entry = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        entry.set_nonblocking(true)?;
        let (counts, mut thread) = (Arc::new(Counts::default()), Threads::default());
        let from = Incoming::Socket(Arc::clone(&entry));
        let ends = (from, Outgoing::Socket(Arc::clone(&entry), to));
        thread.start(Way::new(ends, spec, || false, Arc::clone(&counts)));
        Ok(Self { entry, counts, _thread: thread })
    }

    /// Returns where datagrams enter.
    ///
    /// # Errors
    /// The system does not say.
    pub fn entry(&self) -> io::Result<SocketAddr> {
        self.entry.local_addr()
    }

    /// Returns what it did so far. What waits for its thread while the entry's buffer is full has no room either.
    ///
    /// # Errors
    /// The system does not say what the buffer had no room for.
    pub fn counts(&self) -> io::Result<PathCounts> {
        let [passed, lost, queue_full] = self.counts.now();
        let queue_full = queue_full + dropped_by(&self.entry)?;
        Ok(PathCounts { passed, lost, queue_full })
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

/// Lets the thread run before others where that is allowed: packets that it takes late come all at once, and would
/// seem to have been more than the queue takes.
fn go_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are a sched_param that outlives the call; 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
}

/// Where packets come from.
enum Incoming {
    Tun(Arc<OwnedFd>),
    Socket(Arc<UdpSocket>),
}

/// Where they go.
enum Outgoing {
    Tun(Arc<OwnedFd>),
    Socket(Arc<UdpSocket>, SocketAddr),
}

impl Incoming {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(tun) => tun.as_fd(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }

    /// Returns the bytes of an IP packet that are not read.
    fn header_bytes(&self) -> u64 {
        match self {
            Self::Tun(_) => 0,
            Self::Socket(_) => HEADER_BYTES,
        }
    }
}

impl Outgoing {
    /// Returns false if the end is gone. A packet that it does not take (it is being set up, or has no room) is lost, as
    /// on a wire.
    fn write(&self, packet: &[u8]) -> bool {
        match self {
            Self::Tun(tun) => rustix::io::write(tun, packet) != Err(Errno::BADFD),
            Self::Socket(socket, to) => {
                let _ = socket.send_to(packet, to);
                true
            }
        }
    }
}

/// One direction.
struct Way<L> {
    from: Incoming,
    to: Outgoing,
    spec: PathSpec,
    lose: L,
    counts: Arc<Counts>,
    /// When the last bit that was accepted has left.
    free_at: Instant,
    /// Packets and when each arrives.
    under_way: VecDeque<(Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl<L: FnMut() -> bool> Way<L> {
    fn new((from, to): (Incoming, Outgoing), spec: PathSpec, lose: L, counts: Arc<Counts>) -> Self {
        let (free_at, under_way, spare) = (Instant::now(), VecDeque::new(), Vec::new());
        Self { from, to, spec, lose, counts, free_at, under_way, spare }
    }

    /// Waits for a packet or for one to arrive, and does what is due. Returns false when an end is gone.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        let due = self.under_way.front().map_or(LOOK, |(at, _)| at.saturating_duration_since(now));
        let timeout = due.min(LOOK).try_into().ok();
        let mut ends = [PollFd::from_borrowed_fd(self.from.fd(), PollFlags::IN)];
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
            match rustix::io::read(self.from.fd(), &mut packet) {
                Ok(bytes) => packet.truncate(bytes),
                Err(Errno::AGAIN) => {
                    self.spare.push(packet);
                    return true;
                }
                // A socket tells so that a datagram of before met nobody.
                Err(Errno::INTR | Errno::CONNREFUSED) => {
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
        let now = Instant::now();
        let bytes = packet.len() as u64 + self.from.header_bytes();
        let rate = self.spec.rate_bps.max(1);
        let waits = self.free_at.saturating_duration_since(now);
        let waiting_bytes = (waits.as_secs_f64() * rate as f64 / 8.0) as u64;
        if waiting_bytes + bytes > self.spec.queue_bytes {
            self.counts.queue_full.fetch_add(1, Ordering::Relaxed);
            return self.spare.push(packet);
        }
        self.free_at = self.free_at.max(now) + Duration::from_nanos(bytes * 8_000_000_000 / rate);
        if (self.lose)() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return self.spare.push(packet);
        }
        self.under_way.push_back((self.free_at + self.spec.delay, packet));
    }

    /// Writes the packets that have arrived.
    fn deliver(&mut self) -> bool {
        let now = Instant::now();
        while self.under_way.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, packet)) = self.under_way.pop_front()
        {
            if !self.to.write(&packet) {
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

    /// No privilege is needed.
    #[test]
    fn a_detour_passes_on_what_its_queue_takes() {
        let end = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let spec =
            PathSpec { rate_bps: 400_000, delay: Duration::ZERO, queue_bytes: 10_000, mtu: 1500 };
        let detour = Detour::new(spec, end.local_addr().unwrap()).unwrap();
        let (entry, source) = (detour.entry().unwrap(), UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
        let source = source.unwrap();
        for number in 0..40u8 {
            source.send_to(&[number; 972], entry).unwrap();
        }
        // 1,000 bytes with their headers, 20 ms each: ten fit, and more while these leave.
        for number in 0..10u8 {
            let mut bytes = [0; 2000];
            assert_eq!(end.recv_from(&mut bytes).unwrap(), (972, entry));
            assert_eq!(bytes[0], number);
        }
        // All 40 are counted once the last that fits has passed.
        let counts = || detour.counts().unwrap();
        while counts().passed + counts().queue_full < 40 {
            std::thread::yield_now();
        }
        assert!(counts().queue_full > 0, "{:?}", counts());
        assert_eq!(counts().lost, 0);
    }
}
