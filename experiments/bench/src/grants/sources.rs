//! Sources that ask: the ends that ship, on one socket and one thread, with counted chunks for frames.
use anyhow::{Context as _, Result, anyhow, ensure};
use catchment_control::admission::source_side::{
    Config, Fallback, Input, LocalId, Output, SourceSide,
};
use catchment_session::datagrams::{hold_bursts, wake_on_time};
use catchment_session::io::{Address, ClientSecurity};
use catchment_session::registration::{Admitted, Register, RegisteredDevice, Secret, register};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const REGISTER_LIMIT: Duration = Duration::from_secs(20);
/// Datagrams that are received before something is sent.
const BATCH: usize = 32;
/// Where a datagram says whose it is.
const SOURCE_AT: std::ops::Range<usize> = 8..12;

/// A transfer: its device, and its number, which no other one of any source has.
type Key = (u32, u64);
/// When what is due, of which source: a chunk that has left, or else its end has something to do.
type Due = (u64, usize, Option<Key>);

struct End {
    side: SourceSide,
    devices: u32,
    next_device: u32,
    due_ns: u64,
    /// When a datagram granted it something last: what may begin after that was granted by it, as a source rarely waits
    /// for two.
    granted_ns: u64,
}

/// What is asked for, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Requests that leave in one datagram.
    pub(super) records: usize,
    /// Bytes of each transfer.
    pub(super) bytes: u64,
    /// A device takes back what is left once it may send: a grant then takes four messages, asking, granting,
    /// the end, and its answer.
    pub(super) only_begins: bool,
    pub(super) offered: Offered,
}

/// When devices ask.
#[derive(Debug, Clone, Copy)]
pub(super) enum Offered {
    /// So many transfers are waiting or running all the time.
    Always(usize),
    /// So many a second, evenly.
    Rate(f64),
}

/// What was granted.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) grants: u64,
    /// From asking until a datagram grants it.
    pub(super) answers_us: Vec<f64>,
    /// From asking until a device may send: the window may begin when its grant has come, and what it is told of its
    /// beginning leaves room for what datagrams are held up.
    pub(super) begins_us: Vec<f64>,
}

/// All sources.
pub(super) struct Sources {
    runtime: Runtime,
    address: Address,
    socket: UdpSocket,
    ends: Vec<End>,
    by_number: HashMap<u32, usize>,
    began: Instant,
    timers: BinaryHeap<Reverse<Due>>,
    asked: HashMap<Key, u64>,
    dirty: BTreeSet<usize>,
    /// Bytes that have not left yet, by transfer.
    left: HashMap<Key, u64>,
    /// The source that asks next, and the number of its transfer: unlike in all sources.
    turn: usize,
    number: u64,
    only_begins: bool,
    seen: Seen,
}

impl Sources {
    pub(super) fn new(address: &Address) -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        // It has the answers to all sources, each of which would have a socket.
        hold_bursts(&socket);
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            address: address.clone(),
            socket,
            ends: Vec::new(),
            by_number: HashMap::new(),
            began: Instant::now(),
            timers: BinaryHeap::new(),
            asked: HashMap::new(),
            dirty: BTreeSet::new(),
            left: HashMap::new(),
            turn: 0,
            number: 0,
            only_begins: false,
            seen: Seen::default(),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn devices(&self) -> u64 {
        self.ends.iter().map(|end| u64::from(end.devices)).sum()
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    /// Registers one more source.
    pub(super) fn add(&mut self, devices: u32, rate_bps: u64) -> Result<()> {
        let device = |n: u32| -> Result<RegisteredDevice> {
            let name = format!("cam{n}").parse().map_err(|error| anyhow!("{error}"))?;
            let (class, deadline_us) = (None, None);
            Ok(RegisteredDevice { name, class, deadline_us, rate_max_bps: Some(rate_bps) })
        };
        let process = Secret::random().map_err(|_| anyhow!("no random bytes"))?;
        let devices_of = (0..devices).map(device).collect::<Result<_>>()?;
        let wish = Register::new(process, "127.0.0.1:1".to_owned(), devices_of);
        let security = ClientSecurity::default();
        let work = register(&self.address, &security, wish, REGISTER_LIMIT);
        let Admitted { told, root, to, round_trip, .. } = self.runtime.block_on(work)?;
        self.socket.connect(to)?;
        let config = Config {
            lease_ns: told.lease_ns,
            chunk_bytes: told.chunk_bytes,
            fallback: Fallback::Stop,
        };
        let now_ns = self.now_ns();
        let mut side = SourceSide::new(now_ns, config);
        let (source, term) = (told.source, told.term);
        let round_trip_ns = round_trip.as_nanos() as u64;
        let go_on = None;
        side.handle(now_ns, Input::Registered { source, term, root, round_trip_ns, go_on });
        let at = self.ends.len();
        self.ends.push(End { side, devices, next_device: 0, due_ns: 0, granted_ns: 0 });
        self.by_number.insert(source, at);
        self.dirty.insert(at);
        self.work();
        Ok(())
    }

    /// Only answers what has to be answered, for a time.
    pub(super) fn idle(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.work();
            self.sleep(end.saturating_duration_since(Instant::now()));
        }
    }

    /// Lets all devices want a rate, and waits until they have it.
    pub(super) fn want_rates(&mut self, bytes: u64, period_ns: u64) -> Result<()> {
        let start = Instant::now();
        for at in 0..self.ends.len() {
            let now_ns = self.now_ns();
            let end = &mut self.ends[at];
            for device in 0..end.devices {
                end.side.handle(now_ns, Input::Periodic { device, bytes, period_ns });
            }
            self.drain(at);
            self.work();
        }
        while self.with_rates() < self.devices() {
            ensure!(start.elapsed() < REGISTER_LIMIT, "{} devices have a rate", self.with_rates());
            self.idle(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Returns how many devices may send at their rates now.
    pub(super) fn with_rates(&self) -> u64 {
        let rates = |end: &End| {
            let has = |device: &u32| end.side.rate(*device).is_some_and(|rate| rate.rate_bps > 0);
            (0..end.devices).filter(has).count() as u64
        };
        self.ends.iter().map(rates).sum()
    }

    /// Returns how many datagrams were sent.
    pub(super) fn sent(&self) -> u64 {
        self.ends.iter().map(|end| end.side.counts().sent).sum()
    }

    /// Asks as a plan has it, for a time; returns what was granted in it.
    pub(super) fn run(&mut self, plan: Plan, time: Duration) -> Seen {
        if !plan.only_begins {
            // As the thread of a source that sends has it. Those that only ask would take a core to be on time.
            wake_on_time();
        }
        self.seen = Seen::default();
        self.only_begins = plan.only_begins;
        let start = Instant::now();
        let mut groups = 0_u64;
        while start.elapsed() < time {
            let mut next = time.saturating_sub(start.elapsed());
            loop {
                let due = match plan.offered {
                    Offered::Always(most) => self.left.len() + plan.records <= most,
                    Offered::Rate(a_second) => {
                        let every = plan.records as f64 / a_second;
                        let at = Duration::from_secs_f64(groups as f64 * every);
                        next = next.min(at.saturating_sub(start.elapsed()));
                        at <= start.elapsed()
                    }
                };
                if !due {
                    break;
                }
                groups += 1;
                self.ask(plan);
                if matches!(plan.offered, Offered::Rate(_)) {
                    break;
                }
            }
            self.work();
            self.sleep(next);
        }
        std::mem::take(&mut self.seen)
    }

    /// Lets the next source ask for some of its devices.
    fn ask(&mut self, plan: Plan) {
        let (at, now_ns) = (self.turn, self.now_ns());
        self.turn = (self.turn + 1) % self.ends.len();
        for _ in 0..plan.records {
            self.number += 1;
            let end = &mut self.ends[at];
            let id = LocalId { device: end.next_device, number: self.number };
            end.next_device = (end.next_device + 1) % end.devices;
            self.asked.insert(key(id), now_ns);
            self.left.insert(key(id), plan.bytes);
            end.side.handle(
                now_ns,
                Input::Ask { id, bytes: plan.bytes, ahead_bytes: 0, age_ns: 0, class: 0 },
            );
        }
        self.drain(at);
    }

    /// Does all that is due now.
    fn work(&mut self) {
        let mut buffer = [0; 1500];
        for _ in 0..BATCH {
            // An error is about an earlier datagram; what is lost is repeated.
            let Ok(bytes) = self.socket.recv(&mut buffer) else { break };
            let number = buffer[SOURCE_AT].try_into().map(u32::from_be_bytes).unwrap_or(0);
            let Some(&at) = self.by_number.get(&number) else { continue };
            let now_ns = self.now_ns();
            let end = &mut self.ends[at];
            let before = end.side.counts().grants;
            end.side.handle(now_ns, Input::Datagram(&buffer[..bytes]));
            if end.side.counts().grants > before {
                end.granted_ns = now_ns;
            }
            self.dirty.insert(at);
        }
        let now_ns = self.now_ns();
        while let Some(&Reverse((due_ns, at, what))) = self.timers.peek()
            && due_ns <= now_ns
        {
            self.timers.pop();
            match what {
                Some((device, number)) => {
                    let id = LocalId { device, number };
                    self.ends[at].side.handle(now_ns, Input::Sent { id });
                }
                None if self.ends[at].due_ns == due_ns => {
                    self.ends[at].side.handle(now_ns, Input::Timeout);
                }
                None => continue,
            }
            self.dirty.insert(at);
        }
        while let Some(at) = self.dirty.pop_first() {
            self.drain(at);
        }
    }

    fn drain(&mut self, at: usize) {
        let now_ns = self.now_ns();
        let end = &mut self.ends[at];
        loop {
            match end.side.poll() {
                Output::Transmit(bytes) => {
                    // What is not sent counts as lost, and is repeated.
                    let _ = self.socket.send(bytes);
                }
                Output::Send { id, bytes, rate_bps, .. } => {
                    if let Some(asked_ns) = self.asked.remove(&key(id)) {
                        let us = |at_ns: u64| at_ns.saturating_sub(asked_ns) as f64 / 1e3;
                        self.seen.grants += 1;
                        self.seen.answers_us.push(us(end.granted_ns));
                        self.seen.begins_us.push(us(now_ns));
                    }
                    if self.only_begins {
                        self.left.remove(&key(id));
                        end.side.handle(now_ns, Input::Sent { id });
                        end.side.handle(now_ns, Input::Cancel { id });
                        continue;
                    }
                    let takes_ns = bytes * 8_000_000_000 / rate_bps.max(1);
                    self.timers.push(Reverse((now_ns + takes_ns, at, Some(key(id)))));
                    if let Some(left) = self.left.get_mut(&key(id)) {
                        *left -= bytes.min(*left);
                        if *left == 0 {
                            self.left.remove(&key(id));
                        }
                    }
                }
                Output::Refused { id, .. } => {
                    self.asked.remove(&key(id));
                    self.left.remove(&key(id));
                }
                Output::Missed { .. } | Output::Register => {}
                Output::Timeout(due_ns) => {
                    if let Some(due_ns) = due_ns.filter(|due_ns| *due_ns != end.due_ns) {
                        end.due_ns = due_ns;
                        self.timers.push(Reverse((due_ns, at, None)));
                    }
                    return;
                }
            }
        }
    }

    /// Sleeps until something comes or is due, at most for a time.
    fn sleep(&self, most: Duration) {
        let now_ns = self.now_ns();
        let due = self.timers.peek().map(|Reverse((due_ns, ..))| due_ns.saturating_sub(now_ns));
        let left = due.map_or(most, |ns| most.min(Duration::from_nanos(ns)));
        if !left.is_zero() {
            let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
            // A signal ends it early.
            let _ = poll(&mut ready, Timespec::try_from(left).ok().as_ref());
        }
    }

    /// Fails if nothing is granted.
    pub(super) fn check(seen: &Seen) -> Result<()> {
        (seen.grants > 0).then_some(()).context("nothing was granted")
    }
}

const fn key(id: LocalId) -> Key {
    (id.device, id.number)
}
