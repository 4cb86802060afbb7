//! The thread that asks for leave and sends what it is granted.
mod delivery;
mod dropping;
mod rates;
mod registering;
mod standbys;
mod standing;

use super::arrivals::Arrivals;
use super::gate::NewLink;
use super::moving::{Belongs, Events, Moving, Way};
use super::register::{RETRY_LEAST, Wish, any_socket};
use super::small::Small;
use super::{Fallback, Granting, Periodic, Told, UNPACED_PART_BYTES};
use catchment_control::admission::source_side::{
    Config, FREE_BPS, Input, Leave, LocalId, Output, RateView, SourceSide,
};
use catchment_observe::Standing;
use catchment_session::carried::DATAGRAM_BYTES_MAX;
use catchment_session::datagrams::wake_on_time;
use catchment_transfer::header::unix_ns;
use catchment_transfer::{Broken, HeldBlock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Between two attempts to register, the longest.
const RETRY_MOST: Duration = Duration::from_secs(4);
/// What is refused is asked for again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// What the clock of the source shows at its start: frames may be older than the process, as those from a file.
const CLOCK_AT_START: Duration = Duration::from_secs(1 << 20);
/// Descriptors that wake the thread, without memory taken for them: of up to six controllers that stand by.
const POLLED: usize = 8;
/// Whose requests nobody has answered after so many registrations in a row seems to be where UDP does not pass.
const UNHEARD_MOST: u32 = 2;
/// With nothing to do the thread looks again after this time.
const LONG: Duration = Duration::from_secs(1);
/// A source that leaves waits so long, at most, until its controller has heard of all that has ended.
const LEAVE: Duration = Duration::from_millis(200);

/// Finds the place of the device of a stream.
pub type Streams = Box<dyn Fn(u32) -> Option<u32> + Send>;

pub(super) struct Machine {
    granting: Arc<Granting>,
    wish: Wish,
    fallback: Fallback,
    streams: Streams,
    told: Told,
    side: SourceSide,
    socket: UdpSocket,
    began: Instant,
    term: u32,
    /// By device: how urgent it is, for the fallback.
    ranks: Vec<u8>,
    safe_rate_bps: u64,
    /// As the controller told it, and its user.
    config: Config,
    /// What was missed of a granted rate may leave at once as far as the rate gives it in this time; `None` where the
    /// controller does not know what the queues of the path take.
    max_burst_ns: Option<u64>,
    link: Option<NewLink>,
    numbers: u64,
    moving: BTreeMap<LocalId, Moving>,
    events: Events,
    /// Transfers of events that go on and were dropped: what still comes of them is dropped too.
    dropped: BTreeSet<LocalId>,
    /// Chunks that may go, and are not posted: the queue is full.
    parts: VecDeque<(LocalId, u64)>,
    /// What was refused, and when it is asked for again.
    refused: Vec<(Instant, Moving)>,
    small: Small,
    arrivals: Arrivals,
    rate_bps: Option<u64>,
    /// Periodic devices, and what was said of their rates.
    rates: Vec<(u32, Option<RateView>)>,
    delivery: delivery::Reports,
    standbys: standbys::Standbys,
    /// It has registered so many times in a row without a datagram of the controller after it.
    unheard: u32,
    registering: bool,
    /// A controller that stood by leads since the registration began that is under way.
    is_led: bool,
    register_at: Option<Instant>,
    retry: Duration,
    said: Standing,
    due_ns: Option<u64>,
}

impl Machine {
    pub(super) fn new(
        granting: Arc<Granting>,
        wish: Wish,
        fallback: Fallback,
        streams: Streams,
        told: Told,
    ) -> io::Result<Self> {
        let standbys = standbys::Standbys::new(wish.controllers());
        // No controller has told a rate.
        let config = Config::new(registering::alone(fallback, 0));
        Ok(Self {
            granting,
            ranks: vec![0; wish.devices()],
            wish,
            fallback,
            streams,
            told,
            side: SourceSide::new(0, config),
            socket: any_socket()?,
            began: Instant::now(),
            term: 0,
            safe_rate_bps: 0,
            config,
            max_burst_ns: None,
            link: None,
            numbers: 0,
            moving: BTreeMap::new(),
            events: Events::default(),
            dropped: BTreeSet::new(),
            parts: VecDeque::new(),
            refused: Vec::new(),
            small: Small::default(),
            arrivals: Arrivals::default(),
            rate_bps: None,
            rates: Vec::new(),
            delivery: delivery::Reports::default(),
            standbys,
            unheard: 0,
            registering: false,
            is_led: false,
            register_at: Some(Instant::now()),
            retry: RETRY_LEAST,
            said: Standing::Unregistered,
            due_ns: None,
        })
    }

    fn now_ns(&self) -> u64 {
        self.at_ns(Instant::now())
    }

    fn at_ns(&self, at: Instant) -> u64 {
        let since = CLOCK_AT_START.saturating_add(at.saturating_duration_since(self.began));
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn tell(&mut self, input: Input<'_>) {
        let now_ns = self.now_ns();
        self.side.handle(now_ns, input);
    }

    pub(super) fn run(mut self) {
        wake_on_time();
        while !self.granting.stopped.load(Ordering::Acquire) {
            let _ = rustix::io::read(&self.granting.bell, &mut [0_u8; 8]);
            self.take_registrations();
            self.take_links();
            self.take_blocks();
            self.receive();
            self.drive_standbys();
            self.note_arrivals();
            self.note_late();
            self.report_delivery();
            self.tell(Input::Timeout);
            self.drain();
            if self.post_parts().is_err() {
                self.drop_link();
            }
            self.register_when_due();
            self.say_rates();
            self.say_standing();
            self.sleep();
        }
        self.take_leave();
    }

    /// Tells what has arrived, and gives back what was granted for the rest, until the controller has heard of it: who counts
    /// what was on time does not look for a source that has left. What was faster than its window counts as on its way until its
    /// time is over, so the last end may be told later than the collector has it.
    fn take_leave(mut self) {
        self.drop_link();
        let until = Instant::now() + LEAVE;
        loop {
            self.tell(Input::Timeout);
            self.drain();
            let left = until.saturating_duration_since(Instant::now());
            if self.side.transfers() == 0 || left.is_zero() {
                return;
            }
            let due = self.due_ns.map(|due_ns| due_ns.saturating_sub(self.now_ns()));
            let nap = due.map_or(left, |due_ns| Duration::from_nanos(due_ns).min(left));
            let mut answers = [PollFd::new(&self.socket, PollFlags::IN)];
            // A signal ends it early.
            let _ = poll(&mut answers, Timespec::try_from(nap).ok().as_ref());
            self.receive();
        }
    }

    fn take_links(&mut self) {
        let links = std::mem::take(&mut *self.granting.links.lock());
        for link in links {
            self.drop_link();
            if !link.paces {
                tracing::info!(
                    part_bytes = UNPACED_PART_BYTES,
                    "the device cannot limit the rate of a queue pair: what is granted goes in parts, each at its time"
                );
            }
            self.link = Some(link);
            self.configure();
        }
        if self.link.as_ref().is_some_and(|link| link.gate.is_over()) {
            self.drop_link();
        }
    }

    /// Forgets a link: what it held is sent again by the next one, but for what has arrived.
    fn drop_link(&mut self) {
        if let Some(link) = &self.link {
            // A broken one has told of all it ever will.
            let _ = link.sender.progress();
        }
        self.note_arrivals();
        self.link = None;
        self.delivery.end();
        self.rate_bps = None;
        self.parts.clear();
        self.small.clear();
        self.arrivals.clear();
        self.refused.clear();
        self.events.forget_transfers();
        self.dropped.clear();
        for id in std::mem::take(&mut self.moving).into_keys() {
            self.tell(Input::Abandon { id });
        }
    }

    fn take_blocks(&mut self) {
        while let Some(block) = self.link.as_ref().and_then(|link| link.gate.take()) {
            if let Some(device) = (self.streams)(block.stream) {
                self.take_block(device, block);
            }
        }
        let now = Instant::now();
        while let Some(at) = self.refused.iter().position(|(at, _)| *at <= now) {
            let (_, moving) = self.refused.swap_remove(at);
            let stream = moving.blocks.front().map(|block| block.stream);
            if let Some(device) = stream.and_then(|stream| (self.streams)(stream)) {
                self.ask(device, moving, 0);
            }
        }
    }

    fn take_block(&mut self, device: u32, block: HeldBlock) {
        // An event is told before its first block.
        let events = std::mem::take(&mut *self.granting.events.lock());
        events.into_iter().for_each(|event| self.events.add(event));
        self.arrivals.expect(device, block, self.now_ns(), age_ns(&block));
        let (over, belongs, ends) = self.events.find(device, &block);
        over.into_iter().for_each(|id| self.add(id, 0, true));
        match belongs {
            Belongs::To(id) if self.dropped.contains(&id) => {
                self.drop_late(device, Moving::new(block, false), Duration::ZERO);
                if ends {
                    self.dropped.remove(&id);
                }
            }
            Belongs::To(id) if self.moving.contains_key(&id) => {
                if let Some(moving) = self.moving.get_mut(&id) {
                    moving.blocks.push_back(block);
                    if let Some(there) = moving.missed {
                        let left = there.saturating_duration_since(Instant::now());
                        self.told.missed(device, &block, left);
                    }
                }
                self.add(id, u64::from(block.bytes), ends);
            }
            Belongs::First(frames) if !ends => {
                // What frames take beside their payload is not known, nor whether all are as large.
                let bytes = frames.saturating_mul(block.frame_bytes.max(block.bytes.into()));
                let ahead_bytes = bytes - u64::from(block.bytes);
                let id = self.ask(device, Moving::new(block, true), ahead_bytes);
                self.events.asked(device, id);
            }
            Belongs::Alone if self.small.take(device, block, self.now_ns()) => {}
            Belongs::Alone if self.join(device, block) => {}
            Belongs::First(_) | Belongs::To(_) | Belongs::Alone => {
                self.ask(device, Moving::new(block, false), 0);
            }
        }
    }

    /// Lets a frame go with the one of its device that was asked for last, if that is small and waits.
    fn join(&mut self, device: u32, block: HeldBlock) -> bool {
        let of_device = LocalId { device, number: 0 }..=LocalId { device, number: u64::MAX };
        let Some((id, moving)) = self.moving.range_mut(of_device).next_back() else { return false };
        let (id, bytes) = (*id, u64::from(block.bytes));
        if !moving.can_grow() || !self.side.may_join(id, bytes, age_ns(&block)) {
            return false;
        }
        moving.blocks.push_back(block);
        self.tell(Input::Join { id, bytes });
        true
    }

    fn ask(&mut self, device: u32, moving: Moving, ahead_bytes: u64) -> LocalId {
        let bytes = moving.left_bytes() + ahead_bytes;
        let (id, age_ns, class) = self.begin(device, moving);
        self.tell(Input::Ask { id, bytes, ahead_bytes, age_ns, class });
        id
    }

    /// Returns the number of a transfer, how old it is, and how urgent.
    fn begin(&mut self, device: u32, moving: Moving) -> (LocalId, u64, u8) {
        self.numbers += 1;
        let id = LocalId { device, number: self.numbers };
        let age_ns = moving.blocks.front().map_or(u64::MAX, age_ns);
        let class = self.ranks.get(device as usize).copied().unwrap_or(0);
        self.moving.insert(id, moving);
        (id, age_ns, class)
    }

    /// Says that more of an event is there, or that no more comes.
    fn add(&mut self, id: LocalId, bytes: u64, last: bool) {
        if last {
            self.dropped.remove(&id);
        }
        if let Some(moving) = self.moving.get_mut(&id) {
            moving.is_open = !last;
            if moving.is_over() {
                self.moving.remove(&id);
            }
        }
        self.tell(Input::Add { id, bytes, last });
    }

    fn receive(&mut self) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        while let Some(bytes) = next_datagram(&self.socket, &mut buffer) {
            self.unheard = 0;
            self.tell(Input::Datagram(bytes));
        }
    }

    /// Tells what has arrived at the collector.
    fn note_arrivals(&mut self) {
        let Some(link) = &self.link else { return };
        let done = link.sender.requests_done();
        self.arrivals.arrived(done);
        let mut arrived = Vec::new();
        for (id, moving) in &mut self.moving {
            while moving.parts.front().is_some_and(|part| *part <= done) {
                moving.parts.pop_front();
                arrived.push(*id);
            }
        }
        for id in arrived {
            self.tell(Input::Sent { id });
            if self.moving.get(&id).is_some_and(Moving::is_over) {
                self.moving.remove(&id);
            }
        }
    }

    /// Tells of frames whose deadlines are over, if nobody has foreseen it.
    fn note_late(&mut self) {
        while let Some((device, block)) = self.arrivals.next_late(self.now_ns()) {
            // Of its device, the last one that is known to be late comes then.
            let moving = self.moving.iter().filter(|(id, _)| id.device == device);
            let there = moving.filter_map(|(_, moving)| moving.missed).max();
            let left = there
                .map_or(Duration::ZERO, |there| there.saturating_duration_since(Instant::now()));
            self.told.missed(device, &block, left);
        }
    }

    fn drain(&mut self) {
        loop {
            match self.side.poll() {
                Output::Transmit(bytes) => {
                    // What is not sent counts as lost, and is repeated.
                    let _ = self.socket.send(bytes);
                }
                Output::Send { id, bytes, rate_bps, leaves_ns, leave } => {
                    if let Some(moving) = self.moving.get_mut(&id) {
                        // What is free goes as fast as it can until it is there, or until it has a window.
                        let leaves_ns = if rate_bps < FREE_BPS { leaves_ns } else { u64::MAX };
                        (moving.rate_bps, moving.leaves_ns) = (rate_bps, leaves_ns);
                        moving.shares_rate = leave == Leave::Rate;
                        self.parts.push_back((id, bytes));
                    }
                }
                Output::Missed { id, estimate_ns, dropped } => {
                    let left = Duration::from_nanos(estimate_ns.saturating_sub(self.now_ns()));
                    tracing::debug!(device = id.device, dropped, ?left, "a frame comes too late");
                    if dropped {
                        self.take_drop(id, left);
                    } else if let Some(moving) = self.moving.get_mut(&id) {
                        moving.missed = Some(Instant::now() + left);
                        let blocks = moving.blocks.iter();
                        blocks.for_each(|block| self.told.missed(id.device, block, left));
                    }
                }
                Output::Refused { id, reason } => {
                    tracing::warn!(
                        device = id.device,
                        ?reason,
                        "the controller refuses a frame; asking again"
                    );
                    self.ask_again(id);
                }
                Output::Register => self.register_at = Some(Instant::now()),
                Output::Timeout(due_ns) => {
                    self.due_ns = due_ns;
                    return;
                }
            }
        }
    }

    /// A committed block must come: those behind it wait for it.
    fn ask_again(&mut self, id: LocalId) {
        if let Some(mut moving) = self.moving.remove(&id) {
            moving.parts.clear();
            self.refused.push((Instant::now() + ASK_AGAIN, moving));
        }
    }

    fn post_parts(&mut self) -> Result<(), Broken> {
        self.set_rate();
        let Some(link) = &self.link else { return Ok(()) };
        self.small.post(link, &mut self.arrivals)?;
        while let Some((id, bytes)) = self.parts.front_mut() {
            if let Some(moving) = self.moving.get_mut(id) {
                let way = Way { device: id.device, link, arrivals: &mut self.arrivals };
                *bytes = moving.post(way, *bytes)?;
                if *bytes > 0 {
                    return Ok(());
                }
            }
            self.parts.pop_front();
        }
        if link.is_immediate {
            link.sender.progress()?;
        }
        Ok(())
    }

    fn sleep(&self) {
        if let Some(link) = &self.link {
            link.gate.will_sleep();
            // What came before that rings nobody.
            let done = link.sender.requests_done();
            let arrived = |moving: &Moving| moving.parts.front().is_some_and(|part| *part <= done);
            if !link.gate.is_empty() || self.moving.values().any(arrived) {
                return;
            }
        }
        let now = Instant::now();
        let due_ns = self.due_ns.into_iter().chain(self.arrivals.next_ns());
        let due_ns = due_ns.chain(self.delivery_due_ns()).chain(self.standbys.due_ns()).min();
        let due = due_ns
            .map_or(LONG, |due_ns| Duration::from_nanos(due_ns.saturating_sub(self.now_ns())));
        let timers = self
            .refused
            .iter()
            .map(|(at, _)| *at)
            .chain(self.register_at.filter(|_| !self.registering))
            .chain(self.standbys.register_at());
        let left =
            timers.map(|at| at.saturating_duration_since(now)).fold(due.min(LONG), Duration::min);
        let bell = self.granting.bell.as_fd();
        let sockets = std::iter::once(&self.socket).chain(self.standbys.sockets());
        let sockets = sockets.map(UdpSocket::as_fd);
        let one = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let (mut few, mut many) = (std::array::from_fn::<_, POLLED, _>(|_| one(bell)), Vec::new());
        let ready = if self.standbys.sockets().count() + 2 <= POLLED {
            few[1..].iter_mut().zip(sockets).for_each(|(polled, socket)| *polled = one(socket));
            &mut few[..]
        } else {
            many.extend(std::iter::once(bell).chain(sockets).map(one));
            &mut many[..]
        };
        // A signal ends it early.
        let _ = poll(ready, Timespec::try_from(left).ok().as_ref());
    }
}

/// Returns the next datagram that has come.
fn next_datagram<'a>(socket: &UdpSocket, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    loop {
        match socket.recv(buffer) {
            Ok(bytes) => return Some(&buffer[..bytes]),
            // Nobody listens there at the moment; the next datagram may be answered.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return None,
        }
    }
}

/// Returns how old the frame of a block is.
fn age_ns(block: &HeldBlock) -> u64 {
    unix_ns(SystemTime::now()).saturating_sub(block.capture_time_ns)
}
