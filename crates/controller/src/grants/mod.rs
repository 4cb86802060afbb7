//! The thread with the UDP socket: it alone drives the machine that grants.
//!
//! A thread and not a task: windows begin at times that a timer of tokio would miss by a millisecond.
mod renewal;
mod view;

use crate::config::Settings;
use crate::outbox::Outbox;
use crate::status::{Status, StreamStatus};
use catchment_control::admission::controller_side::{ControllerSide, Input, Output};
use catchment_control::admission::{ConfigError, DeviceSpec, LinkId, PathId, SourceId};
use catchment_session::carried::DATAGRAM_BYTES_MAX;
use catchment_session::datagrams::wake_on_time;
use catchment_session::names::DeviceName;
use catchment_session::registration::Secret;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Datagrams that are received before something is sent.
const BATCH: usize = 64;
/// Sources that are known at a time.
const SOURCES_MAX: usize = 1 << 14;
/// Devices of all sources.
const DEVICES_MAX: usize = 1 << 20;
/// What the clock shows at the start: frames may be older than this process.
const CLOCK_AT_START: Duration = Duration::from_secs(1 << 20);
/// Of processes that wait, the thread looks again after this time, whatever happens.
const LONG: Duration = Duration::from_secs(1);

/// Who registers.
pub(crate) struct Newcomer {
    /// Drawn by the process at its start.
    pub(crate) process: [u8; 16],
    pub(crate) certificate: Option<String>,
    pub(crate) root: [u8; 32],
    pub(crate) term: u32,
    /// It asks also one that stands by.
    pub(crate) standby: bool,
    pub(crate) specs: Vec<DeviceSpec>,
    pub(crate) known: Names,
}

/// What people call the devices of a source.
pub(crate) struct Names {
    pub(crate) devices: Vec<String>,
    /// What is not as it was claimed, with the place of the device.
    pub(crate) notes: Vec<(usize, String)>,
}

/// What a newcomer gets.
pub(crate) struct Placed {
    pub(crate) number: u32,
    pub(crate) term: u32,
    /// Its parts of the safe rates.
    pub(crate) safe_parts: u32,
    /// By device: what leaves without asking, bits a second.
    pub(crate) small_bps: Vec<u64>,
    /// For so long it may go on at its safe rate, if it sends at that.
    pub(crate) safe_ns: Option<u64>,
}

pub(crate) type Place = Result<Placed, String>;

pub(crate) enum Command {
    Register(Box<Newcomer>, oneshot::Sender<Place>),
    /// Other settings hold.
    Reload(Box<Settings>),
    Status(oneshot::Sender<Status>),
    Explain(DeviceName, oneshot::Sender<Vec<StreamStatus>>),
    /// One that stands by leads from now on: its term, and how long what was granted before it may still be used, in
    /// nanoseconds, if that is known.
    Lead(u32, Option<u64>),
    /// Grant nothing more, say how long what was granted may still be used, and end.
    GiveUp(oneshot::Sender<Option<u64>>),
    Stop,
}

/// Reaches the thread.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    bell: Arc<OwnedFd>,
    carried: Carried,
}

/// From where datagrams come that are messages of connections.
pub(crate) type Carried = Arc<Mutex<BTreeSet<SocketAddr>>>;

impl Handle {
    pub(crate) fn new(bell: OwnedFd) -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel();
        (Self { commands, bell: Arc::new(bell), carried: Carried::default() }, receiver)
    }

    pub(crate) fn tell(&self, command: Command) {
        // Fails only when the thread has ended.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(crate) const fn carried(&self) -> &Carried {
        &self.carried
    }

    pub(crate) fn bell(&self) -> Arc<OwnedFd> {
        self.bell.clone()
    }
}

/// A source; there are many, most of them idle.
struct Known {
    number: u32,
    /// Of the safe rates.
    safe_parts: u32,
    certificate: Option<Box<str>>,
    /// What people call its devices, a line each.
    names: Box<str>,
    /// What is not as it was claimed, with the place of the device.
    notes: Box<[(usize, String)]>,
}

pub(crate) struct Grants {
    side: ControllerSide,
    term: u32,
    socket: UdpSocket,
    bell: Arc<OwnedFd>,
    carried: Carried,
    commands: mpsc::Receiver<Command>,
    /// By what their processes drew.
    known: BTreeMap<[u8; 16], Known>,
    /// The number of the next one.
    next: u32,
    began: Instant,
    settings: Settings,
    outbox: Outbox,
    superseded: bool,
    due_ns: Option<u64>,
    giving_up: Option<GivingUp>,
}

/// What the thread has to look at.
#[derive(Clone, Copy)]
struct Came {
    datagrams: bool,
    commands: bool,
}

/// It grants nothing more; what comes when most of what it granted is over.
enum GivingUp {
    /// It ends, and says how long the rest may still be used.
    End(oneshot::Sender<Option<u64>>),
    /// It begins anew, with other settings; who registers waits for that.
    Renewal(Box<Settings>, Vec<(Box<Newcomer>, oneshot::Sender<Place>)>),
}

impl Grants {
    pub(crate) fn new(
        settings: &Settings,
        term: u32,
        socket: UdpSocket,
        handle: &Handle,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, ConfigError> {
        // A source of an earlier process must not have the number of another one here: it would get no hint.
        let start_ns = u64::try_from(CLOCK_AT_START.as_nanos()).unwrap_or(0);
        let next = Secret::<4>::random().map_or(term, |drawn| u32::from_be_bytes(drawn.0));
        Ok(Self {
            side: ControllerSide::new(start_ns, term, settings.admission())?,
            term,
            socket,
            bell: handle.bell(),
            carried: handle.carried().clone(),
            commands,
            known: BTreeMap::new(),
            next,
            began: Instant::now(),
            settings: settings.clone(),
            outbox: Outbox::new(),
            superseded: false,
            due_ns: None,
            giving_up: None,
        })
    }

    fn now_ns(&self) -> u64 {
        let since = CLOCK_AT_START.saturating_add(self.began.elapsed());
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn run(mut self) {
        wake_on_time();
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        let mut came = Came { datagrams: true, commands: true };
        loop {
            while came.commands
                && let Ok(command) = self.commands.try_recv()
            {
                if !self.obey(command) {
                    return;
                }
            }
            let all = !came.datagrams || self.receive(&mut buffer);
            self.side.handle(self.now_ns(), Input::Timeout);
            self.drain();
            if self.has_given_up() {
                return;
            }
            came = if all { self.sleep() } else { Came { datagrams: true, commands: true } };
        }
    }

    /// Does what it gave up for once that is due; returns whether it ends.
    fn has_given_up(&mut self) -> bool {
        // When it is due takes a look at all sources: nobody does that while all goes on.
        let is_due = self.giving_up.is_some() && self.now_ns() >= self.side.hand_over_ns();
        let Some(giving_up) = self.giving_up.take_if(|_| is_due) else { return false };
        let left_ns = self.side.left_ns();
        match giving_up {
            GivingUp::End(answer) => {
                tracing::info!(left = ?left_ns.map(Duration::from_nanos), "gives up");
                let _ = answer.send(left_ns);
                true
            }
            GivingUp::Renewal(settings, newcomers) => {
                self.begin_anew(*settings, left_ns);
                for (newcomer, answer) in newcomers {
                    let _ = answer.send(self.register(*newcomer));
                }
                false
            }
        }
    }

    /// Takes what has come, at most a batch; returns whether that was all.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..BATCH {
            // An error is about an earlier datagram, to somebody who is gone.
            let Ok((bytes, from)) = self.socket.recv_from(buffer) else { return true };
            let now_ns = self.now_ns();
            self.side.handle(now_ns, Input::Datagram { from, bytes: &buffer[..bytes] });
        }
        false
    }

    fn drain(&mut self) {
        loop {
            match self.side.poll() {
                Output::Transmit { to, bytes } => self.outbox.push(&self.socket, to, bytes),
                Output::Refused { source, device, reason } => {
                    tracing::warn!(source = source.0, device, ?reason, "a device is not taken");
                }
                Output::Forgotten { source } => {
                    tracing::info!(source = source.0, "silent for 30 s: forgotten");
                    self.known.retain(|_, known| known.number != source.0);
                }
                Output::Working { link, stated_bps, working_bps } => {
                    let link = self.settings.links.get(usize::from(link.0));
                    let link = link.map_or("", |link| link.name.as_str());
                    if working_bps < stated_bps {
                        tracing::warn!(
                            link,
                            stated_bps,
                            working_bps,
                            "what is granted gets lost: less of the link is granted"
                        );
                    } else {
                        tracing::info!(
                            link,
                            stated_bps,
                            "as much of the link is granted again as it is said to carry"
                        );
                    }
                }
                Output::Superseded { term } => {
                    self.superseded = true;
                    tracing::warn!(
                        ours = self.term,
                        other = term,
                        "another controller leads: sources obey the higher term"
                    );
                }
                Output::Timeout(due_ns) => {
                    self.outbox.flush(&self.socket);
                    self.due_ns = due_ns;
                    return;
                }
            }
        }
    }

    /// Sleeps until something comes or is due; returns what has come.
    fn sleep(&self) -> Came {
        let now_ns = self.now_ns();
        let hand_over_ns = self.giving_up.as_ref().map(|_| self.side.hand_over_ns());
        let due_ns = self.due_ns.into_iter().chain(hand_over_ns).min();
        let left =
            due_ns.map_or(LONG, |due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
        let mut ready =
            [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&*self.bell, PollFlags::IN)];
        // A signal ends it early.
        let _ = poll(&mut ready, Timespec::try_from(left.min(LONG)).ok().as_ref());
        // An error of the socket is taken as a datagram is.
        let [datagrams, commands] = ready.map(|one| !one.revents().is_empty());
        if commands {
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        }
        Came { datagrams, commands }
    }

    /// Does what it is told; returns whether it goes on.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Register(newcomer, answer) => match &mut self.giving_up {
                Some(GivingUp::Renewal(_, newcomers)) => newcomers.push((newcomer, answer)),
                Some(GivingUp::End(_)) | None => {
                    let _ = answer.send(self.register(*newcomer));
                }
            },
            Command::Reload(settings) => self.reload(settings),
            Command::Status(answer) => {
                let _ = answer.send(self.status());
            }
            Command::Explain(device, answer) => {
                let _ = answer.send(self.explain(device.as_str()));
            }
            Command::Lead(term, left_ns) => {
                tracing::info!(term, left = ?left_ns.map(Duration::from_nanos), "leads: nothing is granted while what was granted before may be used");
                self.term = term;
                self.side.handle(self.now_ns(), Input::Lead { term, left_ns });
            }
            Command::GiveUp(answer) => {
                tracing::info!("grants nothing from now on");
                self.side.handle(self.now_ns(), Input::GiveUp);
                self.giving_up = Some(GivingUp::End(answer));
            }
            Command::Stop => return false,
        }
        true
    }

    fn register(&mut self, newcomer: Newcomer) -> Place {
        let Newcomer { process, certificate, root, term, standby, mut specs, known: names } =
            newcomer;
        if self.side.stands_by() && !standby {
            return Err(
                "it stands by, and grants nothing: ask the controller that leads".to_owned()
            );
        }
        if term > self.term && !self.side.stands_by() {
            return Err(format!(
                "it has term {} and this source obeys a controller of term {term}: did the clock of its host go back?",
                self.term
            ));
        }
        let before = self.known.get(&process);
        if before.is_some_and(|known| known.certificate.as_deref() != certificate.as_deref()) {
            return Err("another certificate has registered this process".to_owned());
        }
        let devices = self.side.controller().devices() + names.devices.len();
        let is_full = self.known.len() >= SOURCES_MAX || devices > DEVICES_MAX;
        if before.is_none() && is_full {
            return Err("it has as many sources as it can; try again later".to_owned());
        }
        let (number, safe_parts) = match before {
            Some(known) => (known.number, known.safe_parts),
            None => {
                let number = self.next;
                self.next = self.next.wrapping_add(1);
                (number, self.safe_parts(&specs))
            }
        };
        let source = SourceId(number);
        self.fit_small(source, &mut specs);
        let small_bps = specs.iter().map(|spec| spec.small_bps).collect();
        let (certificate, notes) = (certificate.map(String::into_boxed_str), names.notes.into());
        let names = names.devices.join("\n").into();
        self.known.insert(process, Known { number, safe_parts, certificate, names, notes });
        let now_ns = self.now_ns();
        // The first datagrams tell the round trip better.
        let round_trip_ns = 0;
        self.side.handle(now_ns, Input::Register { source, root, round_trip_ns, devices: specs });
        // Who has never known a controller was told no safe rate.
        let safe_ns = self.side.safe_ns(source).filter(|_| term > 0 && safe_parts > 0);
        Ok(Placed { number, term: self.term, safe_parts, small_bps, safe_ns })
    }

    /// Returns how many parts of the safe rates a newcomer gets: one as long as there are sources for whom there is one, and
    /// another one for urgent devices as long as there are any more.
    fn safe_parts(&self, specs: &[DeviceSpec]) -> u32 {
        let parts = self.known.values().map(|known| known.safe_parts);
        let sources = parts.clone().filter(|parts| *parts > 0).count();
        let more: u32 = parts.map(|parts| parts.saturating_sub(1)).sum();
        let is_urgent = specs.iter().any(|spec| self.settings.is_most_urgent(spec.class));
        match sources < self.settings.safe_sources as usize {
            false => 0,
            true if is_urgent && more < self.settings.safe_parts_more() => 2,
            true => 1,
        }
    }

    /// Lets devices ask always whose buckets their links have no room for.
    fn fit_small(&self, source: SourceId, specs: &mut [DeviceSpec]) {
        if specs.iter().all(|spec| spec.small_bps == 0) {
            return;
        }
        let Settings { links: all, paths, .. } = &self.settings;
        let links =
            |path: PathId| paths.get(usize::from(path.0)).into_iter().flat_map(|path| &path.links);
        let percent = u64::from(self.settings.admission().small_percent);
        let used = |link| self.side.small_bps(LinkId(link), source);
        let mut used_bps: Vec<u64> = (0..).take(all.len()).map(used).collect();
        for spec in specs.iter_mut().filter(|spec| spec.small_bps > 0) {
            let fits = links(spec.path).all(|link| {
                let most_bps = all[*link].capacity_bps / 100 * percent;
                used_bps[*link] + spec.small_bps <= most_bps
            });
            if fits {
                links(spec.path).for_each(|link| used_bps[*link] += spec.small_bps);
            } else {
                spec.small_bps = 0;
            }
        }
    }
}
