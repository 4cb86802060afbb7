//! Which sessions there are: one for each pair of hosts.
use super::message::{Hello, PeerMessage};
use crate::protocol::{By, Peer};
use catchment_session::names::printable;
use catchment_verbs::sync::Mutex;
use std::collections::BTreeMap;
use tokio::sync::{Notify, mpsc};

/// Frames that wait to be sent to one peer. What does not fit is lost: rounds go on without it.
const OUTBOX: usize = 256;
/// Hosts that are known at a time.
const MOST_HOSTS: usize = 1024;
/// Peers that a status has room for.
const MOST_SHOWN: usize = 64;

/// What is sent to a peer.
pub(super) enum Out {
    Frame(Vec<u8>),
    /// The session ends with it.
    Last(Vec<u8>),
}

/// The place of a session.
pub(super) struct Seat {
    pub(super) host: u32,
    pub(super) epoch: u32,
    number: u64,
    /// To end the session with a last word.
    pub(super) last: mpsc::WeakSender<Out>,
}

struct Session {
    number: u64,
    dialed: bool,
    outbox: mpsc::Sender<Out>,
}

/// What is known of a host.
struct Known {
    hello: Hello,
    /// The name in its certificate, if it connected here with one.
    certificate: Option<String>,
    session: Option<Session>,
    reason: String,
    /// The way of the last message of a round that went there.
    by: Option<By>,
}

#[derive(Default)]
struct Inner {
    hosts: BTreeMap<u32, Known>,
    /// Addresses at which nobody was reached: why.
    silent: BTreeMap<String, String>,
    sessions: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Registry {
    inner: Mutex<Inner>,
    changed: Notify,
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) transient: bool,
}

impl Refusal {
    pub(super) fn message(self) -> PeerMessage {
        let Self { reason, transient } = self;
        PeerMessage::Refused { reason, transient }
    }
}

fn refuse<T>(reason: String, transient: bool) -> Result<T, Refusal> {
    Err(Refusal { reason, transient })
}

impl Registry {
    /// Gives a session to who says `hello`; `ours` is the number of this host. Of two sessions of a pair of
    /// hosts that both dialed, the one stays which the lower number dialed.
    pub(super) fn admit(
        &self,
        ours: u32,
        hello: &Hello,
        dialed: bool,
        certificate: Option<&str>,
    ) -> Result<(Seat, mpsc::Receiver<Out>), Refusal> {
        let mut inner = self.inner.lock();
        let (host, epoch) = (hello.host, hello.epoch);
        let is_full = inner.hosts.len() >= MOST_HOSTS && !inner.hosts.contains_key(&host);
        if is_full && !inner.forget_one() {
            return refuse(format!("{MOST_HOSTS} hosts have sessions already"), true);
        }
        if let Some(known) = inner.hosts.get(&host) {
            let newest = known.hello.epoch;
            if epoch < newest {
                // Tenths of a second, so far as the clock of that host went back since.
                let seconds = (newest - epoch).div_ceil(10);
                let reason = format!(
                    "epoch {epoch} of host {host} is over, {newest} was heard: if its clock went back, set it right or start its agent again in {seconds} s"
                );
                return refuse(reason, false);
            }
            let is_other = |old: &String| certificate.is_some_and(|new| new != old);
            if known.certificate.as_ref().is_some_and(is_other) {
                let reason = format!("host {host} is known under another certificate");
                return refuse(reason, false);
            }
            let keeps =
                |session: &Session| session.dialed != dialed && session.dialed == (ours < host);
            if epoch == newest && known.session.as_ref().is_some_and(keeps) {
                return refuse(format!("host {host} has a session"), true);
            }
        }
        inner.sessions += 1;
        let number = inner.sessions;
        let (sender, outbox) = mpsc::channel(OUTBOX);
        let old = inner.hosts.remove(&host);
        let bound = old.and_then(|known| known.certificate);
        let last = sender.downgrade();
        let known = Known {
            hello: hello.clone(),
            certificate: certificate.map(str::to_owned).or(bound),
            session: Some(Session { number, dialed, outbox: sender }),
            reason: String::new(),
            by: None,
        };
        inner.hosts.insert(host, known);
        drop(inner);
        self.changed.notify_waiters();
        Ok((Seat { host, epoch, number, last }, outbox))
    }

    /// Notes the end of a session, unless another one took its place; returns whether the peer has none now.
    pub(super) fn leave(&self, seat: &Seat, reason: String) -> bool {
        let mut inner = self.inner.lock();
        let Some(known) = inner.hosts.get_mut(&seat.host) else { return false };
        let is_it = known.session.as_ref().is_some_and(|session| session.number == seat.number);
        if is_it {
            (known.session, known.reason) = (None, reason);
        }
        drop(inner);
        self.changed.notify_waiters();
        is_it
    }

    /// Sends a frame to a host, if it has a session.
    pub(super) fn send(&self, host: u32, bytes: Vec<u8>) {
        let inner = self.inner.lock();
        let session = inner.hosts.get(&host).and_then(|known| known.session.as_ref());
        if let Some(session) = session {
            let _ = session.outbox.try_send(Out::Frame(bytes));
        }
    }

    /// Notes which way a message of a round went.
    pub(super) fn note_way(&self, host: u32, by: By) {
        if let Some(known) = self.inner.lock().hosts.get_mut(&host) {
            known.by = Some(by);
        }
    }

    /// Ends the session of a host, and tells it why.
    pub(super) fn turn_away(&self, host: u32, reason: String) {
        let mut inner = self.inner.lock();
        let Some(known) = inner.hosts.get_mut(&host) else { return };
        if let Some(session) = &known.session {
            let message = Refusal { reason, transient: false }.message();
            let _ = session.outbox.try_send(Out::Last(message.encode()));
        }
    }

    /// Sends a frame to every host that has a session.
    pub(super) fn send_all(&self, bytes: &[u8]) {
        let inner = self.inner.lock();
        for session in inner.hosts.values().filter_map(|known| known.session.as_ref()) {
            let _ = session.outbox.try_send(Out::Frame(bytes.to_vec()));
        }
    }

    /// Ends all sessions, and tells their peers.
    pub(super) fn say_goodbye(&self) {
        let inner = self.inner.lock();
        for session in inner.hosts.values().filter_map(|known| known.session.as_ref()) {
            let _ = session.outbox.try_send(Out::Last(PeerMessage::Goodbye {}.encode()));
        }
    }

    /// Returns the host whose agent has this name, if only one has.
    pub(super) fn host_of(&self, name: &str) -> Option<u32> {
        let inner = self.inner.lock();
        let mut named = inner.hosts.values().filter(|known| known.hello.name == name);
        let first = named.next()?.hello.host;
        named.next().is_none().then_some(first)
    }

    pub(super) fn is_up(&self, host: u32) -> bool {
        self.inner.lock().hosts.get(&host).is_some_and(|known| known.session.is_some())
    }

    fn is_empty(&self) -> bool {
        self.inner.lock().hosts.values().all(|known| known.session.is_none())
    }

    /// Waits until a host has no session.
    pub(super) async fn wait_for_end(&self, host: u32) {
        self.wait_until(|| !self.is_up(host)).await;
    }

    /// Waits until there is no session.
    pub(super) async fn wait_for_all_ends(&self) {
        self.wait_until(|| self.is_empty()).await;
    }

    async fn wait_until(&self, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds() {
                return;
            }
            changed.await;
        }
    }

    /// Notes why an address has no session; with `None` that somebody was reached there.
    pub(super) fn note_address(&self, address: &str, reason: Option<String>) {
        let mut inner = self.inner.lock();
        match reason {
            Some(reason) => inner.silent.insert(address.to_owned(), printable(&reason, 512)),
            None => inner.silent.remove(address),
        };
    }

    /// Returns what is known of peers, as many as a status has room for.
    pub(super) fn peers(&self) -> Vec<Peer> {
        let inner = self.inner.lock();
        let hosts = inner.hosts.values().map(|known| Peer {
            name: known.hello.name.clone(),
            host: Some(known.hello.host),
            epoch: Some(known.hello.epoch),
            address: None,
            connected: known.session.is_some(),
            reason: known.reason.clone(),
            by: known.by,
            ..Peer::default()
        });
        let silent = inner.silent.iter().map(|(address, reason)| Peer {
            address: Some(address.clone()),
            reason: reason.clone(),
            ..Peer::default()
        });
        silent.chain(hosts).take(MOST_SHOWN).collect()
    }
}

impl Inner {
    /// Forgets a host without a session; false if there is none.
    fn forget_one(&mut self) -> bool {
        let mut without = self.hosts.iter().filter(|(_, known)| known.session.is_none());
        let host = without.next().map(|(host, _)| *host);
        host.is_some_and(|host| self.hosts.remove(&host).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(host: u32, epoch: u32) -> Hello {
        Hello {
            version: super::super::message::VERSION,
            name: "other".into(),
            host,
            epoch,
            device: "0".repeat(32),
            alpha: 1.0,
            lease_ms: 2000,
            rates: true,
        }
    }

    fn reason<T>(result: Result<T, Refusal>) -> Refusal {
        result.err().expect("it is refused")
    }

    /// Of two sessions that were made at once both hosts keep the same one, in whatever order they see them.
    #[test]
    fn both_hosts_keep_the_session_that_the_lower_number_dialed() {
        for (ours, theirs) in [(1, 2), (2, 1)] {
            for dialed_first in [true, false] {
                let registry = Registry::default();
                let admit = |dialed| registry.admit(ours, &hello(theirs, 5), dialed, None);
                let (first, _) = admit(dialed_first).unwrap();
                let second = admit(!dialed_first);
                let stays = if ours < theirs { dialed_first } else { !dialed_first };
                assert_eq!(second.is_err(), stays, "{ours} {theirs} {dialed_first}");
                if stays {
                    assert!(reason(second).transient);
                }
                assert_eq!(registry.leave(&first, "over".into()), stays);
            }
        }
    }

    #[test]
    fn an_older_life_is_refused_and_a_newer_one_replaces_its_session() {
        let registry = Registry::default();
        let admit = |epoch| registry.admit(2, &hello(1, epoch), false, None);
        let (old, mut outbox) = admit(5).unwrap();
        let refusal = reason(admit(4));
        assert!(refusal.reason.starts_with("epoch 4 of host 1 is over, 5 was heard: if its clock"));
        assert!(refusal.reason.ends_with("in 1 s"), "{}", refusal.reason);
        assert!(!refusal.transient);
        let _new = admit(6).unwrap();
        assert!(matches!(outbox.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
        assert!(!registry.leave(&old, "replaced".into()));
        assert!(registry.is_up(1));
    }

    #[test]
    fn a_number_belongs_to_the_certificate_that_came_with_it() {
        let registry = Registry::default();
        let admit = |name| registry.admit(2, &hello(1, 5), false, Some(name));
        let (seat, _) = admit("a").unwrap();
        registry.leave(&seat, "over".into());
        assert!(reason(admit("b")).reason.contains("another certificate"));
        assert!(admit("a").is_ok());
    }
}
