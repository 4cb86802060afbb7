//! The thread that moves requests: from the applications' rings through the scheduler to the device, and
//! completions back.
mod agreed;
mod application;
mod command;
mod demand;
mod failures;
mod justitia;
mod lookout;
mod messages;
mod raw;
mod shared;
mod steps;
mod take;
mod way;

use super::Port;
use super::connection::{Connection, NewQp};
use super::inbox::Inbox;
use super::own::OwnQp;
use super::share::Region;
use super::shared_qps::SharedQps;
use crate::justitia::Pacing;
use crate::peer::{Brought, Change, Verdict};
use crate::policy::{Mode, Policy};
use crate::pool::AgentEnd;
use crate::protocol::{Account, Hints, Processor};
use crate::scheduler::{ConnectionId, Scheduler};
use agreed::Agreed;
use application::Application;
use catchment_verbs::{Ah, Completion, Cq, Qp, QpTransition, event};
use justitia::Justitia;
use lookout::Lookout;
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use steps::{Step, Steps};
use tokio::sync::mpsc::UnboundedSender;
use way::Way;

/// Requests taken of one application at once, and chunks given to the device.
const BATCH: usize = 256;
/// About so many bytes are given to the device before commands are looked at again: over shared memory, to post them
/// is to copy them.
const TURN_BYTES: u64 = 512 << 10;
/// Completions taken at once.
const POLLED: usize = 64;
/// Looks that find nothing before the thread lets others run between two.
const QUICK_LOOKS: u32 = 16;
/// Turns from one look for events of the device to the next.
const EVENT_TURNS: u32 = 64;
/// How long the thread polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long it sleeps at most, because the device's events wake nobody: while requests are under way, while nothing is
/// (only a queue pair that fails by itself has something to tell then), and without any queue pair.
const NAP: Duration = Duration::from_millis(10);
const STILL_NAP: Duration = Duration::from_millis(100);
const LONG_NAP: Duration = Duration::from_secs(1);

/// What the threads of the applications ask of the engine.
pub(super) enum Command {
    /// A new application.
    Join(Box<Newcomer>),
    /// The end of an application; answered with what is left of it. The sender is dropped when nothing of it is on its
    /// way any more.
    Leave(u64, Sender<Box<Remains>>),
    /// A new queue pair, of a protection domain: so many sends, receives, and chunks in the device's hands. Answered
    /// with its number.
    AddQp(u64, NewQp, (u32, u32), u32, Sender<Option<u32>>),
    /// Take a queue pair out, after all requests that were given before.
    Lend(u64, u32, Sender<Option<OwnQp>>),
    /// Put it back; with the transition that it made.
    Return(u64, u32, OwnQp, Option<QpTransition>),
    /// The end of a queue pair, after all requests that were given before.
    RemoveQp(u64, u32, Sender<Option<OwnQp>>),
    /// A region, by its local key, as shared queue pairs know it.
    AddRegion(u64, u32, Region, Sender<()>),
    /// Its end. Nothing is answered: the sender is dropped when no peer gives anything more to it.
    RemoveRegion(u64, u32, Sender<()>),
    /// An address handle of a protection domain.
    AddAh(u64, u32, Arc<dyn Ah>, Sender<()>),
    /// Its end, after all requests that were given before.
    RemoveAh(u64, u32, Sender<()>),
    /// A connection gives nothing more to shared queue pairs: it is about to end. The sender is dropped when nothing
    /// of it is on its way.
    StopSharing(u64, u32, Sender<()>),
    /// A shared queue pair with a host, of this number.
    SharedQp(u32, u32, Box<dyn Qp>, Inbox),
    /// Make all of them fail.
    BreakSharedQps,
    /// So many bytes and memory chunks are there now, after so many registrations more.
    Memory(u64, (u64, u64), u64),
    /// What an application wants of its rate.
    Hint(u64, Hints),
    /// Other rules for applications.
    Policy(Arc<Policy>),
    /// What was agreed with other hosts.
    Verdict(Verdict),
    /// The accounts of all, and the processor time.
    Status(Sender<(Vec<Account>, Processor, Option<u64>)>),
    /// End.
    Stop,
}

/// What is left of an application: its queue pairs end when this is dropped, which takes a device a while.
pub(super) struct Remains {
    _queue_pairs: Vec<Connection>,
    _application: Application,
}

/// What an application brings.
pub(super) struct Newcomer {
    pub(super) key: u64,
    pub(super) end: AgentEnd,
    pub(super) cq: Arc<dyn Cq>,
    /// To hang up.
    pub(super) socket: OwnedFd,
    pub(super) account: Account,
}

/// See the module.
pub(super) struct Engine {
    port: Port,
    bell: Arc<OwnedFd>,
    commands: Receiver<Command>,
    mode: Mode,
    alpha: f64,
    /// To tell of applications, where their rates are agreed with other hosts; the time of the last budget.
    agreed: Option<Agreed>,
    justitia: Option<Justitia>,
    scheduler: Scheduler,
    shared_qps: SharedQps,
    lookout: Lookout,
    /// Who is looked at in this turn; kept for its memory.
    due: Vec<usize>,
    /// Of a poll of shared queue pairs; kept for their memory.
    landed: Vec<u64>,
    failed: Vec<(u32, u32)>,
    polled: Vec<Completion>,
    /// By the scheduler's number.
    applications: Vec<Option<Application>>,
    /// By the scheduler's number.
    connections: Vec<Option<Connection>>,
    /// The last number of a request in the device's hands, of each connection that is gone.
    numbers: Vec<u32>,
    /// The number of each application.
    keys: BTreeMap<u64, usize>,
    /// The connection of each queue pair, by its number at the device.
    qpns: BTreeMap<u32, ConnectionId>,
    /// Connections with receives that their peers do not know.
    posted: Vec<ConnectionId>,
    /// When shares or rates last became others ([`Standing::decided_ns`](crate::Standing::decided_ns)).
    decided_ns: Option<u64>,
    /// How long the way to each host is.
    way: Option<Way>,
    /// Where time goes.
    steps: Steps,
    /// Turns so far.
    turns: u32,
    /// There was something to do in the last one.
    is_busy: bool,
    /// The connection whose state is asked for next, where the device does not tell of it.
    asked: usize,
    /// When time was given out last where there are no rates.
    refilled: Instant,
    /// When the scheduler last looked whether the device does anything.
    looked: Instant,
    stopped: bool,
}

impl Engine {
    pub(super) fn new(
        port: Port,
        bell: Arc<OwnedFd>,
        commands: Receiver<Command>,
        policy: &Policy,
        (changes, shared_qps): (Option<(UnboundedSender<Change>, Brought)>, SharedQps),
    ) -> Self {
        let scheduler = match policy.mode {
            Mode::Drum | Mode::Justitia => Scheduler::new(policy.limits()),
            Mode::Share | Mode::Raw | Mode::Unlimited => Scheduler::unlimited(),
        };
        let target = policy.justitia.filter(|_| policy.mode == Mode::Justitia);
        let pacing = target.map(|target| {
            let target_us = Duration::from_micros(target.target_us.into());
            Pacing::new(target.line_bytes_per_s as f64, target_us)
        });
        Self {
            port,
            bell,
            commands,
            justitia: pacing.map(Justitia::new),
            mode: policy.mode,
            alpha: policy.alpha,
            agreed: changes.map(|changes| Agreed::new(changes, policy.between.send_bytes_per_s)),
            way: Way::new(policy),
            scheduler,
            shared_qps,
            lookout: Lookout::default(),
            due: Vec::new(),
            landed: Vec::new(),
            failed: Vec::new(),
            polled: vec![Completion::EMPTY; POLLED],
            applications: Vec::new(),
            connections: Vec::new(),
            numbers: Vec::new(),
            keys: BTreeMap::new(),
            qpns: BTreeMap::new(),
            posted: Vec::new(),
            decided_ns: None,
            steps: Steps::new(),
            turns: 0,
            is_busy: false,
            asked: 0,
            refilled: Instant::now(),
            looked: Instant::now(),
            stopped: false,
        }
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) {
        let (mut looks, mut idle_since, mut armed) = (0, None, false);
        while !self.stopped {
            if self.turn(armed) {
                (looks, idle_since, armed) = (0, None, false);
            } else if looks < QUICK_LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN {
                std::thread::yield_now();
            } else if !armed {
                self.arm();
                self.turns = 0;
                armed = true;
            } else if self.sleep() {
                (looks, idle_since, armed) = (0, None, false);
            } else {
                // Nobody rang, and whoever does will: one look, for events of the device and for time that passed.
                self.turns = 0;
            }
        }
    }

    /// Does what there is to do; returns whether there was anything. The last one before a sleep finds all.
    fn turn(&mut self, before_sleep: bool) -> bool {
        self.steps.begin();
        let mut busy = false;
        while let Ok(command) = self.commands.try_recv() {
            busy = true;
            self.forget_lone();
            self.command(command);
        }
        self.steps.end(Step::Command);
        let due = self.look_out(before_sleep);
        for &at in &due {
            busy |= self.is_due(at) && self.take(at, BATCH);
        }
        self.steps.end(Step::Take);
        self.spend_time();
        self.pace();
        busy |= self.dispatch();
        for &at in &due {
            if self.poll(at) {
                busy = true;
                self.lookout.note(at);
            }
        }
        self.due = due;
        busy |= self.poll_shared();
        self.look_at_way();
        self.note_who_is_behind();
        // Asking for events takes a lock.
        let asks = self.turns.is_multiple_of(EVENT_TURNS);
        self.turns = self.turns.wrapping_add(1);
        if asks {
            self.look();
        }
        self.is_busy = busy | (asks && self.take_events());
        self.steps.end(Step::Complete);
        self.steps.end_turn(self.is_busy);
        self.is_busy
    }

    /// Returns whose rings and completions are looked at in this turn.
    #[inline]
    fn look_out(&mut self, before_sleep: bool) -> Vec<usize> {
        let mut due = std::mem::take(&mut self.due);
        let (applications, scheduler) = (&self.applications, &self.scheduler);
        self.lookout.begin_turn(&mut due, before_sleep, |at| {
            let application = applications.get(at).and_then(Option::as_ref);
            application.is_some_and(|application| scheduler.waiting(application.id) > 0)
        });
        due
    }

    /// Tells the scheduler of time, now and then.
    fn look(&mut self) {
        let now = Instant::now();
        let passed = now - self.looked;
        if passed >= NAP {
            self.looked = now;
            self.scheduler.look();
            self.ask_for_states();
            // What came in a sleep did not wait all that time.
            let passed = passed.min(2 * NAP);
            for application in self.applications.iter_mut().flatten() {
                application.count_waiting(self.scheduler.waiting(application.id), passed);
            }
        }
    }

    fn arm(&self) {
        self.shared_qps.arm();
        for application in self.applications.iter().flatten() {
            application.end.arm();
            // Over shared memory, to ask is to go over all queue pairs.
            if application.outstanding > 0 {
                application.cq.req_notify(false);
            }
        }
        if self.mode == Mode::Raw {
            self.arm_each();
        }
    }

    /// Sleeps until it is rung; returns false if it slept as long as it may.
    fn sleep(&self) -> bool {
        let nap = self.longest_nap();
        let paced = self.agreed.is_some() || self.justitia.is_some() || self.scheduler.has_most();
        let refill = paced.then(|| self.scheduler.next_refill()).flatten();
        let timeout = event::timespec(refill.map_or(nap, |refill| refill.min(nap)));
        let mut fds = [
            PollFd::new(&*self.bell, PollFlags::IN),
            PollFd::from_borrowed_fd(self.port.channel.as_fd(), PollFlags::IN),
        ];
        // An interruption only ends the sleep early.
        let rung = rustix::event::poll(&mut fds, Some(&timeout)).unwrap_or(1) > 0;
        let [by_bell, by_device] = fds.map(|fd| fd.revents().contains(PollFlags::IN));
        if by_bell {
            event::take_rings(&*self.bell);
        }
        if by_device {
            // Over shared memory, to take an event is to go over all queue pairs.
            let _ = self.port.channel.wait(Duration::ZERO);
        }
        rung
    }

    /// Returns how long the engine may sleep.
    fn longest_nap(&self) -> Duration {
        if self.connections.iter().all(Option::is_none) {
            LONG_NAP
        } else if self.justitia.is_none() && self.scheduler.is_idle() && self.is_settled() {
            STILL_NAP
        } else {
            self.nap_of_the_held().unwrap_or(NAP)
        }
    }

    /// Takes completions of the device for an application; returns whether there were any.
    fn poll(&mut self, at: usize) -> bool {
        let Some(application) = &mut self.applications[at] else { return false };
        if application.outstanding == 0 {
            application.wake();
            return false;
        }
        if self.mode == Mode::Raw {
            return self.poll_each(at);
        }
        let Ok(count) = application.cq.poll(&mut self.polled[..]) else {
            application.hang_up("its completion queue at the device failed");
            return false;
        };
        let polled = std::mem::take(&mut self.polled);
        self.take_completions(at, &polled[..count]);
        self.polled = polled;
        count > 0
    }

    /// Notes what the device is done with, of an application.
    #[inline]
    fn take_completions(&mut self, at: usize, all: &[Completion]) {
        let Some(application) = &mut self.applications[at] else { return };
        for done in all {
            let connection = self.connections.get_mut(Connection::place_of(done.wr_id));
            let Some(connection) = connection.and_then(Option::as_mut) else { continue };
            if connection.owner != at {
                continue;
            }
            if Connection::is_receive(done.wr_id) {
                if let Some(landed) = connection.complete_receive(done) {
                    application.land(connection.queue_pair, &landed);
                }
            } else {
                while let Some(landed) = connection.complete_send(done) {
                    self.scheduler.done(connection.id, landed.bytes);
                    application.land(connection.queue_pair, &landed);
                }
            }
            connection.count(&mut application.outstanding);
        }
        application.wake();
    }

    /// Gives chunks to the device, those of a connection that follow each other at once; returns whether there
    /// were any.
    fn dispatch(&mut self) -> bool {
        let mut current: Option<ConnectionId> = None;
        let mut bytes = 0;
        for n in 0..BATCH {
            let in_flight = self.scheduler.in_flight_bytes();
            let next = if bytes < TURN_BYTES { self.scheduler.next_chunk() } else { None };
            self.steps.end(Step::Schedule);
            let Some(chunk) = next else {
                self.post(current);
                self.steps.end(Step::Post);
                self.lookout.spent(n, bytes);
                return n > 0;
            };
            bytes += chunk.bytes;
            self.note_given(&chunk, in_flight);
            if current.is_some_and(|known| known != chunk.connection) {
                self.post(current);
            }
            current = Some(chunk.connection);
            let connection = self.connections[chunk.connection.index()].as_mut();
            if connection.is_some_and(|connection| connection.plan(chunk)) {
                self.post(current.take());
            }
            self.steps.end(Step::Post);
        }
        self.post(current);
        self.steps.end(Step::Post);
        self.lookout.spent(BATCH, bytes);
        true
    }

    /// Gives what a connection has planned to the device.
    fn post(&mut self, id: Option<ConnectionId>) {
        let Some(connection) = id.and_then(|id| self.connections[id.index()].as_mut()) else {
            return;
        };
        if connection.shared.is_some() {
            let id = connection.id;
            return self.post_shared(id);
        }
        let Some(application) = &mut self.applications[connection.owner] else { return };
        let scheduler = &mut self.scheduler;
        let (id, queue_pair) = (connection.id, connection.queue_pair);
        connection.post_planned(|landed| {
            scheduler.done(id, landed.bytes);
            application.land(queue_pair, landed);
        });
        connection.count(&mut application.outstanding);
    }
}
