//! Connections of applications that offer a service, or call one: they are for that alone.
use super::{Shared, forever};
use crate::peer::{Calling, Change};
use crate::policy::{Policy, Who};
use crate::protocol::{self, Call, REQUEST_BYTES, Reply, Request};
use crate::services::{Answer, CARD_BYTES, Caller, PATIENCE};
use catchment_provider_shm::seqpacket::Credentials;
use catchment_session::names::{SERVICE_NAMES, is_service};
use catchment_verbs::Gid;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Offers a service until its application hangs up, or answers with what is no answer to a caller.
pub(super) fn offer(
    shared: &Shared,
    fd: &Arc<OwnedFd>,
    who: Credentials,
    (application, service): (&str, &str),
) -> io::Result<Result<(), String>> {
    let policy = shared.policy();
    let may_offer = check_owner(&policy, (application, who.into()), service);
    let owner = (application, who.process);
    let place = may_offer.and_then(|()| shared.services.offer(service, owner, Arc::clone(fd)));
    let place = match place {
        Ok(place) => place,
        Err(reason) => return Ok(Err(reason)),
    };
    tracing::info!(application, service, process = who.process, "service");
    protocol::send(fd.as_fd(), &Reply::Done, &[])?;
    let ended = loop {
        match protocol::receive(fd.as_fd(), REQUEST_BYTES, forever()) {
            Ok(Some((Request::Accept { call, card }, _))) => {
                place.answer(call, check_card(card));
            }
            Ok(Some((Request::Reject { call, reason }, _))) => place.answer(call, Err(reason)),
            Ok(Some(_)) => break Ok(Err("a service accepts or rejects callers".to_owned())),
            Ok(None) => break Ok(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => break Err(error),
        }
    };
    tracing::info!(application, service, "service gone");
    ended
}

/// Returns whether an application may offer a service.
fn check_owner(policy: &Policy, (name, who): (&str, Who), service: &str) -> Result<(), String> {
    let rule = policy.admit(name, who)?;
    if !is_service(service) {
        return Err(unnamed(service));
    }
    if rule.may_offer(service) {
        return Ok(());
    }
    let may = if rule.services.is_empty() { &[rule.name.clone()][..] } else { &rule.services };
    Err(format!(
        "application {name:?} may offer {}, and not {service:?}: see \"services\" of the agent's policy",
        may.join(", ")
    ))
}

fn unnamed(service: &str) -> String {
    let service: String = service.chars().take(64).collect();
    format!("{service:?} cannot name a service: {SERVICE_NAMES} can")
}

fn check_card(card: String) -> Answer {
    if card.len() <= CARD_BYTES {
        return Ok(card);
    }
    Err(format!("a card of {} bytes: at most {CARD_BYTES} are passed on", card.len()))
}

/// Calls a service for an application; waits for its answer.
pub(super) fn call(shared: &Shared, who: Credentials, asked: Call) -> Answer {
    let Call { application, host, addresses, service, card, .. } = asked;
    let name = shared.policy().admit(&application, who.into())?.name.clone();
    if !is_service(&service) {
        return Err(unnamed(&service));
    }
    let card = check_card(card)?;
    let caller = Caller { application: name, host: None };
    let (reply, answer) = channel();
    let reply = move |it| drop(reply.send(it));
    let ours = shared.port.context.gid();
    let is_here = host.is_empty() || addresses.iter().any(|ip| Gid::from_ip(*ip) == ours);
    let may_be_here = addresses.iter().any(std::net::IpAddr::is_loopback);
    match &shared.news {
        news if is_here || (news.is_none() && may_be_here) => {
            shared.services.call(&service, caller, card, reply);
        }
        None => {
            return Err(format!(
                "{host} is not this host, and the agent has none of other hosts: its policy's \"between\" says nothing of them"
            ));
        }
        Some(news) => {
            let calling =
                Calling { host, addresses, service, caller, card, reply: Box::new(reply) };
            let _ = news.send(Change::Call(Box::new(calling)));
        }
    }
    // Longer than whoever passes it on waits for a session, and for the service.
    let answered = answer.recv_timeout(2 * PATIENCE);
    answered.unwrap_or_else(|_| Err("the service did not answer".to_owned()))
}
