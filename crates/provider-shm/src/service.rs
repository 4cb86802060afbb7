//! The service thread of a context: answers peers, notices their death, drives waiting requests. It
//! never waits for a peer itself.
use crate::askers::{self, Askers, Refused};
use crate::connection::Connection;
use crate::link::LINK;
use crate::proto::{MESSAGE_BYTES, QpFacts, Refusal, Reply, Request};
use crate::qp_core::QpCore;
use crate::socket;
use crate::state::State;
use catchment_verbs::{Gid, QpState, Watch as _, event, mem};
use rustix::event::epoll;
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LISTENER: u64 = 0;
const WAKE: u64 = 1;
const BROKEN: u64 = 2;

/// How often waiting requests are retried while no thread of the application polls.
const TICK: Duration = Duration::from_millis(5);

/// Starts the thread.
pub(crate) fn start(state: Arc<State>, listener: OwnedFd) -> io::Result<JoinHandle<()>> {
    let add = |fd: BorrowedFd<'_>, token, flags| {
        epoll::add(&state.epoll, fd, epoll::EventData::new_u64(token), flags)
    };
    add(listener.as_fd(), LISTENER, epoll::EventFlags::IN)?;
    add(state.wake.as_fd(), WAKE, epoll::EventFlags::IN)?;
    if let Some(broken) = mem::broken_event() {
        // All contexts watch it, and none reads it.
        add(broken, BROKEN, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    }
    let mut service = Service::new(state, listener);
    std::thread::Builder::new().name("catchment-shm".into()).spawn(move || service.run())
}

struct Service {
    state: Arc<State>,
    listener: OwnedFd,
    askers: Askers,
    refused: Refused,
    /// Given up for a moment when no descriptor is left, to tell a peer so.
    spare: Option<OwnedFd>,
}

type Answer = Result<(Reply, Vec<OwnedFd>), Refusal>;

impl Service {
    fn new(state: Arc<State>, listener: OwnedFd) -> Self {
        let spare = event::event_fd().ok();
        let (askers, refused) = (Askers::new(BROKEN + 1), Refused::default());
        Self { state, listener, askers, refused, spare }
    }

    fn run(&mut self) {
        let mut space = [MaybeUninit::uninit(); 64];
        while !self.state.stop.load(Ordering::Acquire) {
            let timeout = self.timeout().map(event::timespec);
            let events = match epoll::wait(&self.state.epoll, &mut space[..], timeout.as_ref()) {
                Ok((events, _)) => events,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "epoll_wait failed; the service thread ends");
                    return;
                }
            };
            for event in events.iter() {
                self.handle(event.data.u64());
            }
            self.look_after();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let waiting = self.state.waiting();
        if !waiting.is_empty() {
            let opens = waiting.iter().filter_map(|qp| qp.opens()).min();
            let left = opens.map(|opens| opens.saturating_duration_since(Instant::now()));
            return Some(left.map_or(TICK, |left| left.min(TICK)));
        }
        self.askers.until_late().map(|left| left + TICK)
    }

    fn handle(&mut self, token: u64) {
        match token {
            LISTENER => self.accept(),
            WAKE => {
                event::take_rings(&self.state.wake);
            }
            BROKEN => self.fail_broken(),
            _ if token & LINK != 0 => self.lose_link(token & !LINK),
            _ => self.serve(token),
        }
    }

    /// Performs what is due.
    fn look_after(&mut self) {
        while let Some(token) = self.askers.late() {
            self.close(token, "it did not identify itself");
        }
        if self.state.take_overrun() {
            for qp in self.state.queue_pairs() {
                qp.fail_if_overrun();
            }
        }
        for qp in self.state.waiting() {
            qp.progress(false, false);
        }
    }

    fn accept(&mut self) {
        match socket::accept(&self.listener) {
            Ok(fd) => self.admit(fd),
            // An unfriendly peer must not keep them all.
            Err(Errno::MFILE | Errno::NFILE) => match self.askers.oldest_silent() {
                Some(token) => self.refuse(token, Refusal::NoDescriptor),
                None => self.refuse_next(),
            },
            Err(_) => {}
        }
    }

    /// Tells the next peer that no descriptor is left for it.
    fn refuse_next(&mut self) {
        self.refused.add("out of file descriptors for a peer; raise the limit (ulimit -n)");
        self.spare = None;
        if let Ok(fd) = socket::accept(&self.listener) {
            askers::refuse(&fd, Refusal::NoDescriptor);
        }
        self.spare = event::event_fd().ok();
        if self.spare.is_none() {
            // No event reports that a descriptor was closed: retry after a pause instead of
            // spinning.
            std::thread::sleep(TICK);
        }
    }

    fn admit(&mut self, fd: OwnedFd) {
        let process = match socket::check_credentials(&fd) {
            Ok(process) => process,
            Err(error) => return self.refused.add(&error.to_string()),
        };
        if let Some(token) = self.askers.victim(process) {
            self.refuse(token, Refusal::TooMany);
        }
        let token = self.askers.next();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let data = epoll::EventData::new_u64(token);
        if epoll::add(&self.state.epoll, &fd, data, flags).is_ok() {
            self.askers.insert(fd, process);
            // Mostly the Hello is there already, and the connection does not count as silent.
            self.serve(token);
        }
    }

    /// Closes a connection and tells its peer why.
    fn refuse(&mut self, token: u64, reason: Refusal) {
        self.refused.add(&reason.to_string());
        if let Some(asker) = self.askers.get(token) {
            askers::refuse(&asker.fd, reason);
        }
        self.close(token, "refused");
    }

    fn close(&mut self, token: u64, reason: &str) {
        if self.askers.remove(token).is_none() {
            return;
        }
        tracing::debug!(reason, "connection of a peer closed");
        // All of them, one after the other: a peer can have many.
        let lost = self.state.queue_pairs().iter().filter(|qp| qp.fail_if_asked(token)).count();
        if lost > 0 {
            self.wake_owners();
        }
    }

    /// Wakes threads that wait for the writes of a peer that is gone.
    fn wake_owners(&self) {
        for mr in self.state.keys.all() {
            mr.wake_owner();
        }
    }

    fn serve(&mut self, token: u64) {
        let Some(asker) = self.askers.get(token) else { return };
        let mut bytes = [0; MESSAGE_BYTES];
        let (len, descriptors) = match socket::recv(asker.fd.as_fd(), &mut bytes) {
            Ok(Some(message)) => message,
            Ok(None) => return self.close(token, "it hung up"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // It was read without its descriptors, so this answers it.
            Err(error) if socket::is_exhausted(&error) => {
                self.refused.add(&Refusal::NoDescriptor.to_string());
                return socket::send_refusal(&asker.fd, Refusal::NoDescriptor);
            }
            Err(error) => return self.close(token, &error.to_string()),
        };
        let request = Request::decode(&bytes[..len])
            .filter(|request| request.descriptors() == descriptors.len());
        let Some(request) = request else {
            socket::send_refusal(&asker.fd, Refusal::Malformed);
            return self.close(token, "its message is invalid");
        };
        if let Err(reason) = self.answer(token, request, descriptors) {
            self.close(token, &reason);
        }
    }

    /// Answers; an error closes the connection.
    fn answer(
        &mut self,
        token: u64,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let Some(gid) = self.askers.get(token).map(|asker| asker.gid) else { return Ok(()) };
        let answer = match (request, gid) {
            (Request::Hello { peer, .. }, _) if peer != self.state.gid => {
                return Err("it does not know the GID of this context".into());
            }
            (Request::Hello { gid, .. }, None) => {
                if let Err(reason) = self.askers.identify(token, gid) {
                    self.refuse(token, reason);
                    return Ok(());
                }
                hello(&self.state)
            }
            (Request::Hello { .. }, Some(_)) => return Err("it identified itself twice".into()),
            (_, None) => return Err("it did not identify itself first".into()),
            (Request::OpenQp { target, caller }, Some(gid)) => {
                open_qp(&self.state, (gid, token), target, caller, descriptors)
            }
            (Request::Resolve { target, rkey }, Some(gid)) => {
                resolve(&self.state, gid, target, rkey)
            }
            (Request::Fault { target, status }, Some(gid)) => {
                fault(&self.state, gid, target, status);
                return Ok(());
            }
        };
        self.reply(token, answer)
    }

    fn reply(&mut self, token: u64, answer: Answer) -> Result<(), String> {
        let Some(asker) = self.askers.get(token) else { return Ok(()) };
        let (reply, descriptors) = answer.unwrap_or_else(|no| (Reply::Refused(no), Vec::new()));
        if !socket::is_read(&asker.fd) {
            return Err("it asks on and reads no answer".into());
        }
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        match socket::send(asker.fd.as_fd(), &reply.encode(), &borrowed) {
            Err(error) if socket::is_exhausted(&error) => {
                socket::send_refusal(&asker.fd, Refusal::NoDescriptor);
                Ok(())
            }
            sent => sent.map_err(|error| error.to_string()),
        }
    }

    /// Ends the queue pairs whose memory lost a page.
    fn fail_broken(&self) {
        if self.state.keys.is_broken() {
            // All peers may write to it, so it tells nothing of any one.
            tracing::warn!("a page of the table of wake-ups cannot be had: they may come late");
        }
        let regions = self.state.keys.all();
        for qp in self.state.queue_pairs() {
            qp.fail_if_broken(&regions);
        }
        self.wake_owners();
    }

    /// Removes a peer that is gone, with everything of it.
    fn lose_link(&mut self, id: u64) {
        let Some(link) = self.state.link_of_id(id) else { return };
        let _ = epoll::delete(&self.state.epoll, link.fd());
        link.die();
        for qp in self.state.queue_pairs() {
            qp.fail_if_linked(id);
        }
        self.wake_owners();
    }
}

fn dup(fd: BorrowedFd<'_>) -> Result<OwnedFd, Refusal> {
    fd.try_clone_to_owned().map_err(|_| Refusal::NoDescriptor)
}

fn hello(state: &State) -> Answer {
    let valid = state.keys.valid.read_only_fd().map_err(|_| Refusal::NoDescriptor)?;
    let bells = state.keys.bells.fd().map_err(|_| Refusal::NoDescriptor)?;
    let fences_for_writers = state.keys.fences_for_writers;
    Ok((Reply::Hello { fences_for_writers }, vec![valid, dup(bells)?]))
}

/// Returns the queue pair that a peer names, if it is connected to that peer.
fn target_of(state: &State, gid: Gid, target: u32) -> Result<Arc<QpCore>, Refusal> {
    let qp = state.queue_pair(target).ok_or(Refusal::NoQueuePair)?;
    match qp.lock().peer.as_ref() {
        None => return Err(Refusal::NotReady),
        Some(peer) if peer.endpoint.gid != gid => return Err(Refusal::NotYourPeer),
        Some(_) => {}
    }
    match qp.state() {
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => Ok(qp),
        QpState::Reset | QpState::Init => Err(Refusal::NotReady),
        QpState::Err => Err(Refusal::Broken),
    }
}

fn open_qp(
    state: &State,
    (gid, asker): (Gid, u64),
    target: u32,
    caller: QpFacts,
    descriptors: Vec<OwnedFd>,
) -> Answer {
    let qp = target_of(state, gid, target)?;
    let mut inner = qp.lock();
    let peer = inner.peer.as_ref().ok_or(Refusal::NotReady)?;
    if peer.endpoint.qpn != caller.qpn {
        return Err(Refusal::NotYourPeer);
    }
    if let Some(known) = &inner.connection {
        let same = known.facts.inbox_id == caller.inbox_id;
        return if same { Ok((Reply::Known, Vec::new())) } else { Err(Refusal::NotReady) };
    }
    let inbox_fd = inner.inbox_fd.clone().ok_or(Refusal::NotReady)?;
    let descriptors_of_ours =
        qp.descriptors(&inbox_fd).into_iter().map(dup).collect::<Result<_, _>>()?;
    let link = peer.link.clone().filter(|_| !peer.comes || inner.asks);
    let connection = Connection::new(link.clone(), caller, descriptors).map_err(|error| {
        tracing::warn!(%error, "a peer's queue pair cannot be used");
        Refusal::Malformed
    })?;
    inner.connect(connection);
    if let Some(peer) = &mut inner.peer {
        peer.asker = Some(asker);
        peer.link = link;
    }
    let facts = qp.facts(&inner);
    drop(inner);
    qp.go_on();
    Ok((Reply::Qp(facts), descriptors_of_ours))
}

fn resolve(state: &State, gid: Gid, target: u32, rkey: u32) -> Answer {
    let qp = target_of(state, gid, target)?;
    let mr = state.keys.lookup(rkey).ok_or(Refusal::NoRegion)?;
    if mr.pd != qp.pd || !mr.access.is_remote() {
        return Err(Refusal::NoRegion);
    }
    let region = mr.export().map_err(|error| {
        tracing::warn!(%error, "a region cannot be shared with a peer");
        Refusal::NoDescriptor
    })?;
    let watch = mr.watch().map_err(|_| Refusal::NoDescriptor)?;
    let bell = dup(watch.as_fd().ok_or(Refusal::NoDescriptor)?)?;
    let reply = Reply::Region {
        addr: mr.region.addr(),
        bytes: mr.region.bytes() as u64,
        access: mr.access.bits(),
    };
    Ok((reply, vec![region, bell]))
}

fn fault(state: &State, gid: Gid, target: u32, status: u32) {
    if let Ok(qp) = target_of(state, gid, target) {
        let reason = if status == 1 {
            "a request of the peer did not fit the rkey, bounds or rights"
        } else {
            "a request of the peer is not allowed on this queue pair"
        };
        qp.fail_by_peer(reason);
    }
}
