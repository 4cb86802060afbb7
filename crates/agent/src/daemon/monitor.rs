//! The thread of one application: who it is, what it registers, the states of its queue pairs. It ends when
//! the application hangs up, and everything of the application with it.
use super::connection::NewQp;
use super::engine::{Command, Newcomer};
use super::holdings::{Memory, rights_of_slices};
use super::own::OwnQp;
use super::status::tell;
use super::{Shared, calls, forever};
use crate::entry::{MAX_INLINE_BYTES, MAX_SGES};
use crate::peer::{Change, Local, Sharing};
use crate::policy::{Mode, Rule};
use crate::pool::{self, AgentEnd};
use crate::protocol::{self, Account, Device, Hints, Reply, Request, Transition};
use catchment_provider_shm::seqpacket::Credentials;
use catchment_verbs::provider::{check_limit, check_qp};
use catchment_verbs::{
    Access, Caps, Context, Cq, ModifyError, Pd, PortAddr, QpInit, QpState, QpTransition, RtrAttr,
    Service, event,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long a connection may be silent before its first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Chunks of one connection in the device's hands.
const CHUNKS: u32 = 64;
/// Entries of an application's completion queue at the device.
const CQ_ENTRIES: u32 = 1 << 14;
/// Requests of one queue pair.
const MOST_REQUESTS: u32 = 1 << 12;
// The agents of peers keep all receives that are told of.
const _: () = assert!(MOST_REQUESTS < crate::matching::AHEAD);
const MOST_PDS: usize = 1 << 8;
const MOST_AHS: usize = 1 << 12;

/// An application that has said Hello.
pub(super) struct Monitor<'a> {
    pub(super) shared: &'a Shared,
    pub(super) key: u64,
    pub(super) rule: Rule,
    context: Arc<dyn Context>,
    caps: Caps,
    cq: Arc<dyn Cq>,
    numbers: u32,
    pub(super) pds: BTreeMap<u32, Arc<dyn Pd>>,
    pub(super) memory: Memory,
    /// Rights that slices may have.
    pub(super) slices: Option<Access>,
    queue_pairs: BTreeMap<u32, Known>,
    /// Its address handles.
    ahs: BTreeSet<u32>,
}

/// A queue pair: sends, receives, and its number at the device.
#[derive(Clone, Copy)]
struct Known {
    most: (u32, u32),
    qpn: u32,
}

pub(super) type Answer = Result<Reply, String>;

/// Serves a connection until its end.
pub(super) fn serve(shared: &Shared, fd: &Arc<OwnedFd>) {
    if let Err(error) = converse(shared, fd) {
        tracing::debug!(%error, "connection of an application ended");
    }
}

fn converse(shared: &Shared, fd: &Arc<OwnedFd>) -> io::Result<()> {
    let who = Credentials::of_peer(fd.as_fd())?;
    let mut deadline = Instant::now() + HELLO_TIMEOUT;
    loop {
        let message = protocol::receive(fd.as_fd(), protocol::REQUEST_BYTES, deadline)?;
        let Some((request, _)) = message else { return Ok(()) };
        match request {
            Request::Status => {
                tell(shared, fd)?;
                deadline = forever();
            }
            Request::Hello { version, application } => {
                return match admit(shared, fd, who, version, &application) {
                    Ok(mut monitor) => {
                        let served = monitor.serve(fd);
                        monitor.leave();
                        served
                    }
                    Err(reason) => refuse(fd, reason),
                };
            }
            Request::Offer { version, application, service } => {
                let names = (application.as_str(), service.as_str());
                let offered = match protocol::check_version(version) {
                    Ok(()) => calls::offer(shared, fd, who, names)?,
                    Err(reason) => Err(reason),
                };
                return offered.map_or_else(|reason| refuse(fd, reason), Ok);
            }
            Request::Call(call) => {
                let called = protocol::check_version(call.version);
                return match called.and_then(|()| calls::call(shared, who, call)) {
                    Ok(card) => protocol::send(fd.as_fd(), &Reply::Accepted { card }, &[]),
                    Err(reason) => refuse(fd, reason),
                };
            }
            Request::Accept { .. }
            | Request::Reject { .. }
            | Request::Hint(_)
            | Request::AllocPd
            | Request::DropPd { .. }
            | Request::Register { .. }
            | Request::Deregister { .. }
            | Request::Chunk { .. }
            | Request::Bind { .. }
            | Request::DropChunk { .. }
            | Request::CreateAh { .. }
            | Request::DropAh { .. }
            | Request::CreateQp { .. }
            | Request::Modify { .. }
            | Request::DestroyQp { .. } => return refuse(fd, "a Hello comes first".to_owned()),
        }
    }
}

fn refuse(fd: &OwnedFd, reason: String) -> io::Result<()> {
    tracing::info!(reason, "application refused");
    protocol::send(fd.as_fd(), &Reply::Refused { reason }, &[])
}

/// Makes an application's request pool, and welcomes it.
fn admit<'a>(
    shared: &'a Shared,
    fd: &OwnedFd,
    who: Credentials,
    version: u32,
    name: &str,
) -> Result<Monitor<'a>, String> {
    protocol::check_version(version)?;
    // Until the engine knows of it: other rules are then for this one too.
    let policy = shared.policy.lock();
    let rule = policy.admit(name, who.into())?.clone();
    let text = |error: io::Error| error.to_string();
    let port = &shared.port;
    let (context, channel) = (&port.context, Arc::clone(&port.channel));
    let slices = rights_of_slices(context.caps(), port.is_hardware, shared.parts.is_some());
    let device = Device::new(context.caps(), context.gid(), context.net(), MOST_REQUESTS);
    let datagrams = rule.datagrams && context.caps().services.has(Service::Ud);
    let device = Device { slices: slices.map(|rights| rights.bits()), datagrams, ..device };
    let caps = device.caps();
    let entries = CQ_ENTRIES.min(context.caps().max_cqe);
    let cq = context.create_cq(entries, Some(channel)).map_err(|error| error.to_string())?;
    let bell = event::event_fd().map_err(text)?;
    let theirs = bell.try_clone().map_err(text)?;
    let (end, pool) = AgentEnd::new(bell).map_err(|error| error.to_string())?;
    let descriptors = [pool.as_fd(), shared.bell.as_fd(), theirs.as_fd()];
    let welcome = Reply::Welcome(device);
    let key = shared.next_key();
    let account = Account {
        application: rule.name.clone(),
        process: who.process,
        user: who.user,
        weight: rule.weight,
        most_bytes_per_s: rule.max_bytes_per_s,
        ..Account::default()
    };
    let socket = fd.try_clone().map_err(text)?;
    let newcomer = Newcomer { key, end, cq: Arc::clone(&cq), socket, account };
    shared.tell(Command::Join(Box::new(newcomer)));
    drop(policy);
    tracing::info!(application = name, process = who.process, weight = rule.weight, "application");
    let monitor = Monitor {
        shared,
        key,
        rule,
        context: Arc::clone(context),
        caps,
        cq,
        numbers: 0,
        pds: BTreeMap::new(),
        memory: Memory::default(),
        slices,
        queue_pairs: BTreeMap::new(),
        ahs: BTreeSet::new(),
    };
    if let Err(error) = protocol::send(fd.as_fd(), &welcome, &descriptors) {
        monitor.leave();
        return Err(error.to_string());
    }
    Ok(monitor)
}

/// What concerns shared queue pairs.
impl Monitor<'_> {
    /// To tell who keeps the sessions, where connections share queue pairs.
    fn news(&self) -> Option<&UnboundedSender<Change>> {
        self.shared.news.as_ref().filter(|_| self.shared.parts.is_some())
    }

    /// Returns the host with which a connection shares queue pairs, if it does, and the number of its life.
    fn share(&self, qp: &OwnQp, attr: &RtrAttr) -> Option<(u32, u64)> {
        let (reply, answer) = channel();
        let (qpn, remote) = (qp.qpn(), attr.remote);
        let (queue_pair, _) = self.queue_pairs.iter().find(|(_, known)| known.qpn == qpn)?;
        let life = self.shared.next_key();
        let at = Local { key: self.key, queue_pair: *queue_pair, qpn, life };
        let asked = Sharing::Share { at, remote, reply };
        self.news()?.send(Change::Shared(asked)).ok()?;
        let host = answer.recv().ok().flatten()?;
        Some((host, life))
    }

    /// Ends the sharing of connections that end: what they have on shared queue pairs is done, and peers give
    /// nothing more to them. Waits no longer than agents may be silent.
    fn unshare<'a>(&self, queue_pairs: impl IntoIterator<Item = (&'a u32, &'a Known)>) {
        let Some(news) = self.news() else { return };
        let queue_pairs: Vec<_> = queue_pairs.into_iter().collect();
        let (reply, all) = channel();
        for (queue_pair, _) in &queue_pairs {
            self.shared.tell(Command::StopSharing(self.key, **queue_pair, reply.clone()));
        }
        drop(reply);
        self.wait_for_peers(&all);
        let (reply, all) = channel();
        for (_, Known { qpn, .. }) in queue_pairs {
            let reply = reply.clone();
            let _ = news.send(Change::Shared(Sharing::Unshare { qpn: *qpn, life: None, reply }));
        }
        drop(reply);
        self.wait_for_peers(&all);
    }

    fn wait_for_peers<T>(&self, all: &Receiver<T>) {
        let lease = Duration::from_millis(self.shared.policy().between.lease_ms.into());
        if matches!(all.recv_timeout(2 * lease), Err(RecvTimeoutError::Timeout)) {
            tracing::warn!(application = self.rule.name, "an agent has not let go of it in time");
        }
    }

    /// Ends a region on shared queue pairs: no peer reaches it after that.
    pub(super) fn revoke(&self, lkey: u32, is_shared: bool) {
        if is_shared {
            let (reply, all) = channel();
            self.shared.tell(Command::RemoveRegion(self.key, lkey, reply));
            self.wait_for_peers(&all);
        }
    }
}

impl Monitor<'_> {
    fn serve(&mut self, fd: &OwnedFd) -> io::Result<()> {
        loop {
            let received = protocol::receive(fd.as_fd(), protocol::REQUEST_BYTES, forever());
            let (request, descriptors) = match received {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                Err(error) => return Err(error),
            };
            let answer = if let Request::Chunk { bytes } = request {
                self.give_chunk(bytes).map(|(reply, chunk)| (reply, Some(chunk)))
            } else {
                self.answer(request, descriptors).map(|reply| (reply, None))
            };
            let (reply, chunk) = answer.unwrap_or_else(|reason| (Reply::Refused { reason }, None));
            let given: Vec<_> = chunk.iter().map(OwnedFd::as_fd).collect();
            protocol::send(fd.as_fd(), &reply, &given)?;
        }
    }

    /// Ends the application: its queue pairs, then its memory.
    fn leave(&self) {
        let (reply, all) = channel();
        self.shared.tell(Command::Leave(self.key, reply));
        if let Ok(remains) = all.recv() {
            // The others need not wait for the device until queue pairs have ended: this thread does.
            drop(remains);
            self.wait_for_peers(&all);
        }
        self.unshare(&self.queue_pairs);
        tracing::info!(application = self.rule.name, "application gone");
    }

    fn answer(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Answer {
        match request {
            Request::AllocPd => self.alloc_pd(),
            Request::DropPd { pd } => {
                self.pds.remove(&pd);
                Ok(Reply::Done)
            }
            Request::Register { pd, bytes, access, writable } => {
                let fd = descriptors.into_iter().next();
                let fd = fd.ok_or("memory comes with its descriptor")?;
                self.register(pd, bytes, Access::from_bits_truncate(access), writable, fd)
            }
            Request::Deregister { lkey } => self.deregister(lkey),
            Request::Bind { pd, chunk, offset, bytes, access, again } => {
                let access = Access::from_bits_truncate(access);
                self.bind((pd, access), chunk, (offset, bytes), again)
            }
            Request::DropChunk { chunk } => self.drop_chunk(chunk),
            Request::CreateAh { pd, gid, net } => self.create_ah(pd, &gid, net),
            Request::DropAh { ah } => {
                if self.ahs.remove(&ah) {
                    self.shared.ask(|reply| Command::RemoveAh(self.key, ah, reply));
                }
                Ok(Reply::Done)
            }
            Request::CreateQp { pd, datagrams, max_send_wr, max_recv_wr } => {
                let service = if datagrams { Service::Ud } else { Service::Rc };
                self.create_qp(pd, service, (max_send_wr, max_recv_wr))
            }
            Request::Modify { queue_pair, to } => self.modify(queue_pair, &to),
            Request::DestroyQp { queue_pair } => {
                self.unshare(self.queue_pairs.get_key_value(&queue_pair));
                let gone = self.shared.ask(|reply| Command::RemoveQp(self.key, queue_pair, reply));
                if let Some(mut qp) = gone.flatten() {
                    // Its peer is told of the end by this one.
                    qp.receive();
                }
                self.queue_pairs.remove(&queue_pair);
                Ok(Reply::Done)
            }
            Request::Hint(hints) => self.hint(hints),
            Request::Chunk { .. }
            | Request::Hello { .. }
            | Request::Status
            | Request::Offer { .. }
            | Request::Accept { .. }
            | Request::Reject { .. }
            | Request::Call(_) => Err("not after a Hello".to_owned()),
        }
    }

    fn hint(&self, hints: Hints) -> Answer {
        let (policy, name) = (self.shared.policy(), &self.rule.name);
        // Of the policy of now.
        let rule = policy.rule(name).ok_or_else(|| format!("the policy has no {name:?}"))?;
        hints.check(name, rule.weight)?;
        self.shared.tell(Command::Hint(self.key, hints));
        Ok(Reply::Done)
    }

    fn alloc_pd(&mut self) -> Answer {
        if self.pds.len() >= MOST_PDS {
            return Err(format!("an application has at most {MOST_PDS} protection domains"));
        }
        let pd = self.context.alloc_pd().map_err(|error| error.to_string())?;
        self.numbers += 1;
        self.pds.insert(self.numbers, pd);
        Ok(Reply::Pd { pd: self.numbers })
    }

    fn create_ah(&mut self, pd: u32, gid: &str, net: Option<protocol::Net>) -> Answer {
        let offered = self.caps.services;
        if !offered.has(Service::Ud) {
            return Err(format!("this application may use {offered}, and no datagrams"));
        }
        if self.ahs.len() >= MOST_AHS {
            return Err(format!("an application has at most {MOST_AHS} address handles"));
        }
        let domain = self.pds.get(&pd).ok_or("no such protection domain")?;
        let gid = gid.parse().map_err(|_| "the address of the port is no GID")?;
        let net = net.map(protocol::net_end);
        let made = domain.create_ah(&PortAddr { gid, net }).map_err(|error| error.to_string())?;
        let ah = made.handle();
        let added = self.shared.ask(|reply| Command::AddAh(self.key, pd, made, reply));
        added.ok_or("the agent ends")?;
        self.ahs.insert(ah);
        Ok(Reply::Ah { ah })
    }

    fn create_qp(
        &mut self,
        pd: u32,
        service: Service,
        (max_send_wr, max_recv_wr): (u32, u32),
    ) -> Answer {
        let (number, pd) = (pd, self.pds.get(&pd).ok_or("no such protection domain")?);
        let init = QpInit {
            service,
            send_cq: Arc::clone(&self.cq),
            recv_cq: Arc::clone(&self.cq),
            max_send_wr,
            max_recv_wr,
            max_sge: MAX_SGES as u32,
            max_inline_bytes: MAX_INLINE_BYTES as u32,
            strict: false,
        };
        check_qp(&self.caps, &init).map_err(|error| error.to_string())?;
        let chunks = CHUNKS.min(self.context.caps().max_send_wr);
        let others = self.queue_pairs.values();
        let (mut slots, mut entries) = (max_send_wr + max_recv_wr, chunks + max_recv_wr);
        for Known { most: (sends, receives), .. } in others {
            slots += sends + receives;
            entries += chunks + receives;
        }
        let limit = |error: catchment_verbs::VerbsError| error.to_string();
        check_limit(
            "requests of all queue pairs of an application",
            slots,
            pool::MOST_REQUESTS as u32,
        )
        .map_err(limit)?;
        check_limit("chunks and receives of an application", entries, self.cq.capacity())
            .map_err(limit)?;
        let own = (self.shared.policy().mode == Mode::Raw).then(|| {
            let channel = Arc::clone(&self.shared.port.channel);
            self.context.create_cq(chunks + max_recv_wr, Some(channel))
        });
        let cq = own.transpose().map_err(limit)?;
        let used = cq.as_ref().unwrap_or(&self.cq);
        let (send_cq, recv_cq) = (Arc::clone(used), Arc::clone(used));
        let below = QpInit { max_send_wr: chunks, send_cq, recv_cq, ..init };
        let qp = pd.create_qp(below).map_err(|error| error.to_string())?;
        let qp = OwnQp::new(qp, self.shared.parts.is_some() && service == Service::Rc);
        let (endpoint, qpn) = (qp.endpoint().to_string(), qp.qpn());
        let most = (max_send_wr, max_recv_wr);
        let new = NewQp { qp, service, pd: number, cq };
        let added = self.shared.ask(|reply| Command::AddQp(self.key, new, most, chunks, reply));
        let queue_pair = added.flatten().ok_or("the agent ends")?;
        self.queue_pairs.insert(queue_pair, Known { most, qpn });
        Ok(Reply::Created { queue_pair, endpoint })
    }

    /// Changes a state. The engine goes on with everything else meanwhile: the peer may take its time.
    fn modify(&self, queue_pair: u32, to: &Transition) -> Answer {
        let transition = to.transition().ok_or("the peer is no endpoint")?;
        let mut qp = self.borrow(queue_pair)?;
        let result = if matches!(transition, QpTransition::ToSqd) {
            // The engine holds back what comes later: what came before may still wait for its turn here.
            let state = qp.state();
            let works = state == QpState::Rts;
            works.then_some(()).ok_or_else(|| format!("no transition from {state:?} to Sqd"))
        } else {
            let (borrowed, result) = self.change(queue_pair, qp, transition)?;
            qp = borrowed;
            result.map_err(|error| error.to_string())
        };
        let made = result.is_ok().then_some(transition);
        let endpoint = qp.endpoint().to_string();
        self.shared.tell(Command::Return(self.key, queue_pair, qp, made));
        result.map(|()| Reply::Qp { endpoint })
    }

    fn borrow(&self, queue_pair: u32) -> Result<OwnQp, String> {
        let lent = self.shared.ask(|reply| Command::Lend(self.key, queue_pair, reply));
        Ok(lent.flatten().ok_or("no such queue pair")?)
    }

    /// Changes a state, and agrees with the agent of the peer on whether the connection shares queue pairs.
    fn change(
        &self,
        queue_pair: u32,
        mut qp: OwnQp,
        transition: QpTransition,
    ) -> Result<(OwnQp, Result<(), ModifyError>), String> {
        let result = match transition {
            QpTransition::ToRtr(attr) if qp.state() == QpState::Init => {
                match self.share(&qp, &attr) {
                    Some(shared) => qp.hold(shared, attr),
                    None => {
                        if !qp.takes_receives() {
                            // Its receives come first, so that no message finds none.
                            qp.stay_alone();
                            self.shared.tell(Command::Return(self.key, queue_pair, qp, None));
                            qp = self.borrow(queue_pair)?;
                        }
                        qp.modify(transition)
                    }
                }
            }
            QpTransition::ToReset | QpTransition::ToErr => {
                self.unshare(self.queue_pairs.iter().find(|(_, known)| known.qpn == qp.qpn()));
                qp.modify(transition)
            }
            QpTransition::ToInit { .. }
            | QpTransition::ToInitUd { .. }
            | QpTransition::ToRtr(_)
            | QpTransition::ToRtrUc(_)
            | QpTransition::ToRtrUd
            | QpTransition::ToRts(_)
            | QpTransition::ToRtsUnreliable
            | QpTransition::ToSqd => qp.modify(transition),
        };
        Ok((qp, result))
    }
}
