//! What the hub has to do with calls of services.
use super::hub::Hub;
use super::message::PeerMessage;
use super::{Calling, Change, digest_of};
use crate::services::{Answer, Caller};
use catchment_verbs::Gid;
use std::time::Instant;

/// Returns what a device at each of the addresses is known by.
fn devices(calling: &Calling) -> impl Iterator<Item = String> {
    calling.addresses.iter().map(|ip| digest_of(Gid::from_ip(*ip)))
}

impl Hub {
    /// Passes on a call of an application here.
    pub(super) fn call(&mut self, calling: Calling) {
        let host = devices(&calling).find_map(|device| self.roster.host_of(&device));
        let host = host.or_else(|| self.registry.host_of(&calling.host));
        let at = host.filter(|host| self.registry.is_up(*host));
        if at.is_none() && calling.addresses.iter().any(std::net::IpAddr::is_loopback) {
            let Calling { service, caller, card, reply, .. } = calling;
            return self.services.call(&service, caller, card, reply);
        }
        if at.is_none() {
            calling.addresses.iter().for_each(|ip| self.look_for(*ip));
        }
        if let Some((host, message)) = self.calls.begin(calling, at, Instant::now()) {
            self.registry.send(host, message.encode());
        }
    }

    /// Passes on calls that waited for this host.
    pub(super) fn call_opened(&mut self, host: u32, device: &str, name: &str) {
        let is_there =
            |calling: &Calling| calling.host == name || devices(calling).any(|it| it == device);
        for message in self.calls.opened(host, Instant::now(), is_there) {
            self.registry.send(host, message.encode());
        }
    }

    /// Passes on a call of an application of another host.
    pub(super) fn heard_call(&self, host: u32, call: u64, called: (&str, String, String)) {
        let (service, application, card) = called;
        let back = self.back.clone();
        let caller = Caller { application, host: Some(host) };
        self.services.call(service, caller, card, move |answer| {
            if let Some(back) = back.upgrade() {
                let _ = back.send(Change::Answered { host, call, answer });
            }
        });
    }

    /// Passes on the answer of a service here.
    pub(super) fn answer_call(&self, host: u32, call: u64, answer: Answer) {
        let (card, reason) = match answer {
            Ok(card) => (Some(card), String::new()),
            Err(reason) => (None, reason),
        };
        self.registry.send(host, PeerMessage::Called { call, card, reason }.encode());
    }
}
