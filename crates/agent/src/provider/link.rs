//! The connection to the agent: its socket, the request pool, and the thread that notices completions for
//! sleepers and the agent's end.
use super::qp_core::QpCore;
use super::slices::Chunks;
use super::{ANSWER_TIMEOUT, AgentOptions, unavailable};
use crate::entry::{Event, Notice};
use crate::pool::ApplicationEnd;
use crate::protocol::{self, Device, Reply, Request, Transition, VERSION};
use catchment_provider_shm::seqpacket::{self, Credentials};
use catchment_verbs::provider::{CompletionQueue, EventQueue, HandleTable};
use catchment_verbs::sync::{Mutex, RwLock};
use catchment_verbs::{AsyncEvent, Caps, Gid, QpState, VerbsError, event};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// More queue pairs than an agent gives to an application.
const MOST_QUEUE_PAIRS: usize = 1 << 20;
/// Events that an application does not take.
const MOST_EVENTS: usize = 1024;

/// What the thread that takes completions keeps.
#[derive(Default)]
struct Taking {
    /// The queue pair of the last one.
    known: Option<Arc<QpCore>>,
}

fn refused(reason: String) -> VerbsError {
    VerbsError::Unavailable { provider: super::INFO.name, reason }
}

/// Connects to the socket of an agent, which must belong to this user or root.
pub(super) fn dial(agent: &str) -> Result<OwnedFd, VerbsError> {
    let io = |error: io::Error| unavailable(agent, &error);
    let address = protocol::address(agent).map_err(io)?;
    let socket = seqpacket::connect(&address, Instant::now() + ANSWER_TIMEOUT).map_err(io)?;
    let owner = Credentials::of_peer(socket.as_fd()).map_err(io)?.user;
    let ours = rustix::process::geteuid().as_raw();
    if owner != ours && owner != 0 {
        return Err(refused(format!("the agent belongs to user {owner}, this process to {ours}")));
    }
    Ok(socket)
}

/// What an application's objects share.
pub(super) struct Link {
    pub(super) caps: Caps,
    pub(super) gid: Gid,
    pub(super) device: Device,
    pub(super) events: EventQueue,
    pub(super) pool: ApplicationEnd,
    /// Address handles, by the agent's numbers: each with the number of its protection domain.
    pub(super) ahs: HandleTable<u32>,
    /// Rung by the agent.
    bell: OwnedFd,
    socket: OwnedFd,
    calls: Mutex<()>,
    pub(super) chunks: Chunks,
    dead: AtomicBool,
    pub(super) stop: AtomicBool,
    /// By their numbers.
    queue_pairs: RwLock<Vec<Weak<QpCore>>>,
    queues: Mutex<Vec<Weak<CompletionQueue>>>,
    /// One thread at a time takes completions.
    taking: Mutex<Taking>,
}

impl Link {
    /// Connects to the agent as this application.
    pub(super) fn connect(options: &AgentOptions) -> Result<Self, VerbsError> {
        let io = |error: io::Error| unavailable(&options.agent, &error);
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let socket = dial(&options.agent)?;
        let application = options.application.clone();
        let hello = Request::Hello { version: VERSION, application };
        protocol::send(socket.as_fd(), &hello, &[]).map_err(io)?;
        let answer = protocol::receive(socket.as_fd(), protocol::REPLY_BYTES, deadline);
        let gone = || refused("the agent ended the connection".to_owned());
        let (device, descriptors) = match answer.map_err(io)?.ok_or_else(gone)? {
            (Reply::Welcome(device), descriptors) => (device, descriptors),
            (Reply::Refused { reason }, _) => return Err(refused(reason)),
            _ => return Err(refused("its answer to Hello is none".to_owned())),
        };
        let [pool, agent_bell, bell]: [OwnedFd; 3] = descriptors
            .try_into()
            .map_err(|_| refused("its Welcome lacks a descriptor".to_owned()))?;
        let agent_bell = seqpacket::never_waiting(agent_bell).map_err(io)?;
        Ok(Self {
            caps: device.caps(),
            gid: device.gid.parse().map_err(|_| refused("its GID is none".to_owned()))?,
            device,
            events: EventQueue::new(MOST_EVENTS),
            pool: ApplicationEnd::new(pool, agent_bell)?,
            ahs: HandleTable::new("address handles of a context", usize::MAX),
            bell,
            socket,
            calls: Mutex::new(()),
            chunks: Chunks::default(),
            dead: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            queue_pairs: RwLock::default(),
            queues: Mutex::default(),
            taking: Mutex::default(),
        })
    }

    /// Asks the agent, and waits for its answer. Never called while completions are taken.
    pub(super) fn call(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Reply, String> {
        self.exchange(request, descriptors).map(|(reply, _)| reply)
    }

    /// As [`Link::call`], with the descriptors of the answer.
    pub(super) fn exchange(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), String> {
        let _one_at_a_time = self.calls.lock();
        if self.is_dead() {
            return Err("the agent is gone".to_owned());
        }
        let exchange = || {
            protocol::send(self.socket.as_fd(), request, descriptors)?;
            let deadline = Instant::now() + ANSWER_TIMEOUT;
            protocol::receive(self.socket.as_fd(), protocol::REPLY_BYTES, deadline)
        };
        let answer: io::Result<Option<(Reply, Vec<OwnedFd>)>> = exchange();
        match answer {
            Ok(Some((Reply::Refused { reason }, _))) => Err(reason),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err("the agent is gone".to_owned()),
            Err(error) => {
                // A late answer would be taken for that of the next request.
                let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
                Err(format!("the agent does not answer: {error}"))
            }
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Notes a queue pair that the agent has made.
    pub(super) fn add(&self, qp: &Arc<QpCore>) -> Result<(), String> {
        let at = qp.number as usize;
        if at >= MOST_QUEUE_PAIRS {
            return Err(Self::misfit());
        }
        // What the agent told of the one that had its number is not its own.
        self.progress_thoroughly();
        let mut all = self.queue_pairs.write();
        if all.len() <= at {
            all.resize_with(at + 1, Weak::new);
        }
        all[at] = Arc::downgrade(qp);
        drop(all);
        self.taking.lock().known = None;
        Ok(())
    }

    pub(super) fn add_queue(&self, cq: &Arc<CompletionQueue>) {
        let mut queues = self.queues.lock();
        queues.retain(|known| known.strong_count() > 0);
        queues.push(Arc::downgrade(cq));
    }

    /// Returns whether somebody waits for a completion of one of the queues.
    fn is_waited_for(&self) -> bool {
        let queues = self.queues.lock();
        queues.iter().filter_map(Weak::upgrade).any(|cq| cq.is_requested())
    }

    /// Forgets a queue pair.
    pub(super) fn remove(&self, qp: &Arc<QpCore>) {
        let mut all = self.queue_pairs.write();
        if let Some(known) = all.get_mut(qp.number as usize)
            && known.as_ptr() == Arc::as_ptr(qp)
        {
            *known = Weak::new();
        }
        drop(all);
        self.taking.lock().known = None;
    }

    fn all(&self) -> Vec<Arc<QpCore>> {
        self.queue_pairs.read().iter().filter_map(Weak::upgrade).collect()
    }

    /// Moves the queue pairs of queues that lost a completion to the error state.
    pub(super) fn fail_overrun(&self) {
        for qp in self.all().into_iter().filter(|qp| qp.is_overrun()) {
            if qp.state.get() != QpState::Err {
                self.report(&qp, "its completion queue overran");
                let (queue_pair, to) = (qp.number, Transition::Err);
                let _ = self.call(&Request::Modify { queue_pair, to }, &[]);
            }
        }
    }

    /// Moves completions from the agent to their queues, unless another thread is doing that.
    #[inline]
    pub(super) fn progress(&self) {
        if self.pool.has_completion()
            && let Some(mut taking) = self.taking.try_lock()
        {
            let overrun = self.take_all(&mut taking);
            drop(taking);
            if overrun {
                self.events.add(AsyncEvent::CqOverrun);
                self.fail_overrun();
            }
        }
    }

    /// As [`Link::progress`], but waits for a thread that is doing it: for one that will sleep.
    fn progress_thoroughly(&self) {
        drop(self.taking.lock());
        self.progress();
    }

    /// Returns whether a queue lost one.
    fn take_all(&self, taking: &mut Taking) -> bool {
        let mut overrun = false;
        let known = &mut taking.known;
        while let Some(Notice { queue_pair, event }) = self.pool.take() {
            if known.as_ref().is_none_or(|qp| qp.number != queue_pair) {
                let all = self.queue_pairs.read();
                *known = all.get(queue_pair as usize).and_then(Weak::upgrade);
            }
            let Some(qp) = known else { continue };
            let (worked, lost) = (qp.state.get() != QpState::Err, overrun);
            overrun = match event {
                Event::Sent(done) => qp.sent(&done) | lost,
                Event::Received(done) => qp.received(&done) | lost,
                Event::Failed => {
                    qp.enter_error();
                    lost
                }
            };
            if worked && qp.state.get() == QpState::Err {
                self.report(qp, "a request failed, or the device reports that it failed");
            }
        }
        self.pool.free();
        overrun
    }

    /// Notes that a queue pair failed.
    pub(super) fn report(&self, qp: &QpCore, reason: &str) {
        qp.enter_error();
        let (qpn, reason) = (qp.qpn(), reason.to_owned());
        self.events.add(AsyncEvent::QpFatal { qpn, reason });
    }

    /// Flushes everything that is outstanding: the agent is gone.
    pub(super) fn flush_all(&self) {
        let mut taking = self.taking.lock();
        self.take_all(&mut taking);
        for qp in self.all() {
            qp.flush();
        }
    }

    /// The work of the thread.
    pub(super) fn watch(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let mut fds = [
                PollFd::new(&self.bell, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::RDHUP),
            ];
            let _ = rustix::event::poll(&mut fds, None);
            let hung_up = fds[1].revents().intersects(PollFlags::RDHUP | PollFlags::HUP);
            event::take_rings(&self.bell);
            self.progress_thoroughly();
            if self.is_waited_for() {
                // The ring was for another queue, and the agent has taken the flag.
                self.pool.arm();
                self.progress_thoroughly();
            }
            if hung_up && !self.stop.load(Ordering::Acquire) {
                self.die();
                return;
            }
        }
    }

    fn die(&self) {
        self.dead.store(true, Ordering::Release);
        for qp in self.all() {
            self.report(&qp, "the agent is gone");
        }
        self.events.add(AsyncEvent::DeviceFatal);
        self.flush_all();
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        event::ring(&self.bell);
    }

    /// Asks the agent to wake the thread at the next completion.
    pub(super) fn arm(&self) {
        self.pool.arm();
        self.progress();
    }

    /// Returns the error of an answer that does not fit the request.
    pub(super) fn misfit() -> String {
        "the agent's answer does not fit the request".to_owned()
    }
}
