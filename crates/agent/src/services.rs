//! Services that applications of this host offer by name, and the callers that wait for an answer.
//!
//! A caller gives a *card*, what its peer needs to connect a queue pair with its own, and gets that of the service: agents
//! pass both on, and read neither. Callers of other hosts come by the sessions of their agents.
use crate::protocol::{self, Offered, Reply};
use catchment_session::names::printable;
use catchment_verbs::sync::Mutex;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Services of a host.
const MOST_SERVICES: usize = 1024;
/// Callers of one service that wait.
const MOST_CALLERS: usize = 64;
/// Names that an error has room for.
const MOST_NAMED: usize = 16;
/// How long a service may take to answer a caller.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Longest card, in bytes.
pub(crate) const CARD_BYTES: usize = 512;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) application: String,
    /// The number of its host; nothing: this one.
    pub(crate) host: Option<u32>,
}

/// The card of the service, or why there is none, for people.
pub(crate) type Answer = Result<String, String>;

struct Waiting {
    until: Instant,
    reply: Box<dyn FnOnce(Answer) + Send>,
}

struct Service {
    number: u64,
    socket: Arc<OwnedFd>,
    application: String,
    process: u32,
    calls: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Default)]
struct Inner {
    services: BTreeMap<String, Service>,
    numbers: u64,
    has_ended: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Services {
    inner: Mutex<Inner>,
}

/// The place of a service. Dropping it withdraws the service; who waits is told.
pub(crate) struct Place {
    services: Arc<Services>,
    name: String,
    number: u64,
}

impl Services {
    /// Offers a service, whose callers are told over this socket.
    ///
    /// # Errors
    /// Why not: another process offers it already.
    pub(crate) fn offer(
        self: &Arc<Self>,
        name: &str,
        (application, process): (&str, u32),
        socket: Arc<OwnedFd>,
    ) -> Result<Place, String> {
        let mut inner = self.inner.lock();
        if let Some(other) = inner.services.get(name) {
            let (application, process) = (&other.application, other.process);
            return Err(format!(
                "process {process}, application {application:?}, offers the service {name:?} already"
            ));
        }
        if inner.services.len() >= MOST_SERVICES || inner.has_ended {
            return Err(format!("{MOST_SERVICES} services are offered already"));
        }
        inner.numbers += 1;
        let number = inner.numbers;
        let service = Service {
            number,
            socket,
            application: application.to_owned(),
            process,
            calls: 0,
            waiting: BTreeMap::new(),
        };
        inner.services.insert(name.to_owned(), service);
        Ok(Place { services: Arc::clone(self), name: name.to_owned(), number })
    }

    /// Calls a service; `reply` gets its answer, now or later.
    pub(crate) fn call(
        &self,
        name: &str,
        caller: Caller,
        card: String,
        reply: impl FnOnce(Answer) + Send + 'static,
    ) {
        let mut inner = self.inner.lock();
        let Some(service) = inner.services.get_mut(name) else {
            let reason = inner.unknown(name);
            drop(inner);
            return reply(Err(reason));
        };
        let now = Instant::now();
        // Dropped: nobody waits for these any more.
        service.waiting.retain(|_, waiting| waiting.until > now);
        if service.waiting.len() >= MOST_CALLERS {
            drop(inner);
            return reply(Err(format!("{MOST_CALLERS} callers wait for the service {name:?}")));
        }
        service.calls += 1;
        let call = service.calls;
        let Caller { application, host } = caller;
        let called = Reply::Called { call, application, host, card };
        match protocol::send(service.socket.as_fd(), &called, &[]) {
            Ok(()) => {
                let waiting = Waiting { until: now + PATIENCE, reply: Box::new(reply) };
                service.waiting.insert(call, waiting);
            }
            Err(error) => {
                drop(inner);
                reply(Err(format!("the service {name:?} cannot be told: {error}")));
            }
        }
    }

    /// Returns which services there are.
    pub(crate) fn offered(&self) -> Vec<Offered> {
        let inner = self.inner.lock();
        let all = inner.services.iter().map(|(name, service)| Offered {
            service: name.clone(),
            application: service.application.clone(),
            process: service.process,
            calls: service.calls,
        });
        all.collect()
    }

    /// Hangs up on services that may not be offered any more.
    pub(crate) fn keep(&self, may_offer: impl Fn(&str, &str) -> bool) {
        let inner = self.inner.lock();
        for (name, service) in &inner.services {
            if !may_offer(&service.application, name) {
                let _ = rustix::net::shutdown(&*service.socket, rustix::net::Shutdown::Both);
            }
        }
    }

    /// Tells all who wait that the agent ends.
    pub(crate) fn end(&self) {
        let mut inner = self.inner.lock();
        inner.has_ended = true;
        let all = inner.services.values_mut();
        let waiting: Vec<_> =
            all.flat_map(|service| std::mem::take(&mut service.waiting)).collect();
        drop(inner);
        for (_, Waiting { reply, .. }) in waiting {
            reply(Err("the agent ends".to_owned()));
        }
    }
}

impl Inner {
    fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.services.keys().map(String::as_str).take(MOST_NAMED).collect();
        let known = if names.is_empty() {
            "none is offered there".to_owned()
        } else {
            format!("there are: {}", names.join(", "))
        };
        format!("there is no service {name:?}; {known}")
    }
}

impl Place {
    /// Gives a caller its answer. Nothing happens where nobody waits for it.
    pub(crate) fn answer(&self, call: u64, answer: Answer) {
        let mut inner = self.services.inner.lock();
        let service = inner.services.get_mut(&self.name);
        let waiting = service.and_then(|service| service.waiting.remove(&call));
        drop(inner);
        if let Some(Waiting { reply, .. }) = waiting {
            reply(answer.map_err(|reason| format!("refused: {}", printable(&reason, 256))));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.services.inner.lock();
        let is_it = inner.services.get(&self.name).is_some_and(|it| it.number == self.number);
        let gone = is_it.then(|| inner.services.remove(&self.name)).flatten();
        drop(inner);
        for (_, Waiting { reply, .. }) in gone.map(|gone| gone.waiting).unwrap_or_default() {
            reply(Err(format!("the service {:?} has ended", self.name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::REPLY_BYTES;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::sync::mpsc::{Receiver, channel};

    fn caller() -> Caller {
        Caller { application: "vision".into(), host: Some(7) }
    }

    fn offered(services: &Arc<Services>, name: &str) -> (Place, OwnedFd) {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (theirs, ours) = pair.unwrap();
        (services.offer(name, ("store", 1), Arc::new(ours)).unwrap(), theirs)
    }

    fn call(services: &Services, name: &str) -> Receiver<Answer> {
        let (reply, answer) = channel();
        services.call(name, caller(), "card".into(), move |it| reply.send(it).unwrap());
        answer
    }

    fn heard(socket: &OwnedFd) -> Reply {
        let deadline = Instant::now() + PATIENCE;
        protocol::receive(socket.as_fd(), REPLY_BYTES, deadline).unwrap().unwrap().0
    }

    #[test]
    fn callers_get_the_answer_that_was_meant_for_them() {
        let services = Arc::new(Services::default());
        let (place, socket) = offered(&services, "frames");
        let answers = [call(&services, "frames"), call(&services, "frames")];
        for number in 1..=2 {
            let (application, host) = ("vision".to_owned(), Some(7));
            let called = Reply::Called { call: number, application, host, card: "card".into() };
            assert_eq!(heard(&socket), called);
        }
        place.answer(2, Ok("two".into()));
        place.answer(1, Err("full".into()));
        // Nobody waits for these.
        place.answer(2, Ok("again".into()));
        place.answer(3, Ok("three".into()));
        assert_eq!(
            answers.map(|it| it.recv().unwrap()),
            [Err("refused: full".to_owned()), Ok("two".to_owned())]
        );
        let shown = services.offered();
        assert_eq!((shown.len(), shown[0].calls, shown[0].process), (1, 2, 1));
    }

    #[test]
    fn a_service_has_one_owner_and_tells_who_waits_when_it_ends() {
        let services = Arc::new(Services::default());
        let (place, socket) = offered(&services, "frames");
        let again =
            services.offer("frames", ("other", 2), Arc::new(socket.try_clone().unwrap())).map(drop);
        assert!(again.unwrap_err().contains("process 1, application \"store\""));
        let unknown = call(&services, "frame").recv().unwrap().unwrap_err();
        assert_eq!(unknown, "there is no service \"frame\"; there are: frames");
        let waits = call(&services, "frames");
        drop(place);
        assert_eq!(waits.recv().unwrap().unwrap_err(), "the service \"frames\" has ended");
        assert!(services.offered().is_empty());
        assert!(call(&services, "frames").recv().unwrap().unwrap_err().contains("none is offered"));
    }

    #[test]
    fn a_service_that_answers_nobody_has_so_many_callers() {
        let services = Arc::new(Services::default());
        let (_place, _socket) = offered(&services, "slow");
        let waiting: Vec<_> = (0..MOST_CALLERS).map(|_| call(&services, "slow")).collect();
        let refused = call(&services, "slow").recv().unwrap().unwrap_err();
        assert_eq!(refused, "64 callers wait for the service \"slow\"");
        services.end();
        for answer in waiting {
            assert_eq!(answer.recv().unwrap().unwrap_err(), "the agent ends");
        }
    }
}
