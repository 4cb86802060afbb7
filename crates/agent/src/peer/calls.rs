//! Calls of services between hosts: which wait for a session, and which for an answer.
use super::message::PeerMessage;
use crate::services::{Answer, Caller, PATIENCE};
use catchment_session::names::printable;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a call waits for a session with the agent of its host.
const SESSION: Duration = Duration::from_secs(5);
/// Calls that wait, of all applications.
const MOST_CALLS: usize = 1024;

/// A call of an application here.
pub(crate) struct Calling {
    /// The host, as the application names it: by address, or by the name of its agent.
    pub(crate) host: String,
    /// Its addresses.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) service: String,
    pub(crate) caller: Caller,
    pub(crate) card: String,
    pub(crate) reply: Box<dyn FnOnce(Answer) + Send>,
}

struct Out {
    /// Whose answer is due; nobody's, while there is no session.
    at: Option<u32>,
    until: Instant,
    calling: Calling,
}

/// See the module.
#[derive(Default)]
pub(super) struct Calls {
    numbers: u64,
    out: BTreeMap<u64, Out>,
}

impl Calls {
    /// Notes a call; returns what to send to its host, if that has a session.
    pub(super) fn begin(
        &mut self,
        calling: Calling,
        at: Option<u32>,
        now: Instant,
    ) -> Option<(u32, PeerMessage)> {
        if self.out.len() >= MOST_CALLS {
            (calling.reply)(Err(format!("{MOST_CALLS} calls wait for other hosts already")));
            return None;
        }
        self.numbers += 1;
        let patience = if at.is_some() { PATIENCE } else { SESSION };
        let out = Out { at, until: now + patience, calling };
        let message = out.message(self.numbers);
        self.out.insert(self.numbers, out);
        Some((at?, message))
    }

    /// Returns what to send to a host whose session begins; `is_there` says which calls are for it.
    pub(super) fn opened(
        &mut self,
        host: u32,
        now: Instant,
        is_there: impl Fn(&Calling) -> bool,
    ) -> Vec<PeerMessage> {
        let waiting = self.out.iter_mut().filter(|(_, out)| out.at.is_none());
        let found = waiting.filter(|(_, out)| is_there(&out.calling)).map(|(number, out)| {
            (out.at, out.until) = (Some(host), now + PATIENCE);
            out.message(*number)
        });
        found.collect()
    }

    /// Takes the answer of a host.
    pub(super) fn answered(&mut self, host: u32, call: u64, answer: Answer) {
        if self.out.get(&call).is_some_and(|out| out.at == Some(host))
            && let Some(out) = self.out.remove(&call)
        {
            (out.calling.reply)(answer.map_err(|reason| printable(&reason, 512)));
        }
    }

    /// Ends the calls whose host is gone.
    pub(super) fn closed(&mut self, host: u32) {
        for Out { calling, .. } in self.remove(|out| out.at == Some(host)) {
            (calling.reply)(Err(format!("the agent of {} is gone", calling.host)));
        }
    }

    /// Ends the calls that waited for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        for Out { at, calling, .. } in self.remove(|out| out.until <= now) {
            let Calling { host, service, reply, .. } = calling;
            reply(Err(match at {
                Some(_) => format!("the agent of {host} does not answer for {service:?}"),
                None => format!(
                    "no session with an agent of {host} within {SESSION:?}: `catchment agent status` shows with which there is one"
                ),
            }));
        }
    }

    fn remove(&mut self, is_it: impl Fn(&Out) -> bool) -> Vec<Out> {
        let found = self.out.iter().filter(|(_, out)| is_it(out)).map(|(number, _)| *number);
        let found: Vec<u64> = found.collect();
        found.iter().filter_map(|number| self.out.remove(number)).collect()
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.out.values().map(|out| out.until).min()
    }
}

impl Out {
    fn message(&self, call: u64) -> PeerMessage {
        let Calling { service, caller, card, .. } = &self.calling;
        PeerMessage::Call {
            call,
            service: service.clone(),
            application: caller.application.clone(),
            card: card.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn calling(host: &str) -> (Calling, Receiver<Answer>) {
        let (reply, answer) = channel();
        let calling = Calling {
            host: host.to_owned(),
            addresses: Vec::new(),
            service: "frames".into(),
            caller: Caller { application: "vision".into(), host: None },
            card: "card".into(),
            reply: Box::new(move |it| reply.send(it).unwrap()),
        };
        (calling, answer)
    }

    #[test]
    fn a_call_waits_for_its_session_and_takes_the_answer_of_its_host() {
        let (mut calls, now) = (Calls::default(), Instant::now());
        let (call, answer) = calling("b");
        assert!(calls.begin(call, None, now).is_none());
        assert!(calls.opened(8, now, |calling| calling.host == "c").is_empty());
        let sent = calls.opened(9, now, |calling| calling.host == "b");
        assert!(matches!(sent[..], [PeerMessage::Call { call: 1, .. }]), "{sent:?}");
        calls.answered(8, 1, Ok("of another host".into()));
        calls.answered(9, 2, Ok("of another call".into()));
        calls.expire(now + SESSION);
        assert!(answer.try_recv().is_err());
        calls.answered(9, 1, Ok("it".into()));
        assert_eq!(answer.recv().unwrap(), Ok("it".to_owned()));
        assert!(calls.due().is_none());
    }

    #[test]
    fn whoever_calls_is_told_why_there_is_no_answer() {
        let (mut calls, now) = (Calls::default(), Instant::now());
        let said = |answer: &Receiver<Answer>| answer.recv().unwrap().unwrap_err();
        let (call, answer) = calling("b");
        calls.begin(call, None, now);
        calls.expire(now + SESSION);
        assert!(said(&answer).contains("no session with an agent of b within 5s"));
        let (call, answer) = calling("b");
        assert!(calls.begin(call, Some(9), now).is_some());
        calls.closed(8);
        calls.closed(9);
        assert_eq!(said(&answer), "the agent of b is gone");
        let (call, answer) = calling("b");
        calls.begin(call, Some(9), now);
        assert_eq!(calls.due(), Some(now + PATIENCE));
        calls.expire(now + PATIENCE);
        assert_eq!(said(&answer), "the agent of b does not answer for \"frames\"");
    }
}
