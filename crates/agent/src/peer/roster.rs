//! The applications of this host, and where their queue pairs lead.
use super::message::MOST_ASKED;
use catchment_control::drum::{Application, Destination};
use std::collections::{BTreeMap, BTreeSet};

/// Where a queue pair leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Not to an application that another agent of ours is known to serve.
    Elsewhere,
    /// To the device of this agent: the number of the queue pair there.
    Here,
    /// To a host whose agent was asked which application it is.
    Asked(u32),
    /// To this application of a host.
    There(u32, u32),
}

/// A queue pair that is connected.
#[derive(Debug, Clone)]
struct Connection {
    /// The other end: the digest of its device's address, and its number there.
    device: String,
    qpn: u32,
    end: End,
}

#[derive(Debug, Clone, Default)]
struct Member {
    weight: f64,
    limit: Option<f64>,
    connections: BTreeMap<u32, Connection>,
    /// How many of these lead to this host.
    here: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Roster {
    host: u32,
    device: String,
    members: BTreeMap<u32, Member>,
    /// Which application has a queue pair of this device, and which of its own that is.
    owners: BTreeMap<u32, QueuePair>,
    /// The number at the device of each queue pair.
    numbers: BTreeMap<QueuePair, u32>,
    /// Which queue pairs are connected with one of this number, of whatever device.
    leads: BTreeMap<u32, BTreeSet<QueuePair>>,
    /// Applications of which something is news.
    changed: BTreeSet<u32>,
    /// Of peers that have a session, or had one, by the digest of their device's address.
    devices: BTreeMap<String, u32>,
}

/// A queue pair: the application and its number there.
pub(super) type QueuePair = (u32, u32);

impl Roster {
    pub(super) fn new(host: u32, device: String) -> Self {
        Self {
            host,
            device,
            members: BTreeMap::new(),
            owners: BTreeMap::new(),
            numbers: BTreeMap::new(),
            leads: BTreeMap::new(),
            changed: BTreeSet::new(),
            devices: BTreeMap::new(),
        }
    }

    /// Returns the applications of which something is news since this was last called.
    pub(super) fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    /// Notes that queue pairs of this device have other owners than before: where connections within this host lead may be
    /// news.
    fn note_owner(&mut self) {
        let at_home = self.members.iter().filter(|(_, member)| member.here > 0);
        self.changed.extend(at_home.map(|(application, _)| *application));
    }

    pub(super) fn add(&mut self, application: u32, weight: f64) {
        self.members.insert(application, Member { weight, ..Member::default() });
        self.changed.insert(application);
    }

    pub(super) fn remove(&mut self, application: u32) {
        let connections = self.members.get(&application).map(|member| &member.connections);
        let connected: Vec<u32> = connections.into_iter().flatten().map(|(at, _)| *at).collect();
        connected.into_iter().for_each(|queue_pair| self.disconnect((application, queue_pair)));
        let all = self.numbers.range((application, 0)..=(application, u32::MAX));
        let all: Vec<QueuePair> = all.map(|(at, _)| *at).collect();
        all.into_iter().for_each(|at| self.disown(at));
        self.members.remove(&application);
        self.changed.remove(&application);
        self.note_owner();
    }

    fn disown(&mut self, at: QueuePair) {
        if let Some(qpn) = self.numbers.remove(&at) {
            self.owners.remove(&qpn);
        }
    }

    pub(super) fn has(&self, application: u32) -> bool {
        self.members.contains_key(&application)
    }

    pub(super) fn set_weight(&mut self, application: u32, weight: f64) {
        if let Some(member) = self.members.get_mut(&application) {
            member.weight = weight;
            self.changed.insert(application);
        }
    }

    /// Sets the most that an application asks for.
    pub(super) fn limit(&mut self, application: u32, limit: Option<f64>) {
        if let Some(member) = self.members.get_mut(&application) {
            member.limit = limit;
            self.changed.insert(application);
        }
    }

    pub(super) fn add_queue_pair(&mut self, at: QueuePair, qpn: u32) {
        self.disown(at);
        self.owners.insert(qpn, at);
        self.numbers.insert(at, qpn);
        self.note_owner();
    }

    pub(super) fn remove_queue_pair(&mut self, at: QueuePair) {
        self.disconnect(at);
        self.disown(at);
        self.note_owner();
    }

    /// Whether a device is this agent's or that of a peer.
    pub(super) fn knows(&self, device: &str) -> bool {
        device == self.device || self.devices.contains_key(device)
    }

    /// Notes where a queue pair leads; returns the host that must be asked, if any.
    pub(super) fn connect(&mut self, at: QueuePair, device: String, qpn: u32) -> Option<u32> {
        let end = match self.devices.get(&device) {
            _ if device == self.device => End::Here,
            Some(host) => End::Asked(*host),
            None => End::Elsewhere,
        };
        self.disconnect(at);
        let member = self.members.get_mut(&at.0)?;
        member.here += u32::from(end == End::Here);
        member.connections.insert(at.1, Connection { device, qpn, end });
        self.leads.entry(qpn).or_default().insert(at);
        self.changed.insert(at.0);
        if let End::Asked(host) = end { Some(host) } else { None }
    }

    pub(super) fn disconnect(&mut self, at: QueuePair) {
        let Some(member) = self.members.get_mut(&at.0) else { return };
        let Some(Connection { qpn, end, .. }) = member.connections.remove(&at.1) else { return };
        member.here -= u32::from(end == End::Here);
        if let Some(leads) = self.leads.get_mut(&qpn) {
            leads.remove(&at);
            if leads.is_empty() {
                self.leads.remove(&qpn);
            }
        }
        self.changed.insert(at.0);
    }

    fn connections(&mut self) -> impl Iterator<Item = (QueuePair, &mut Connection)> {
        self.members.iter_mut().flat_map(|(application, member)| {
            let all = member.connections.iter_mut();
            all.map(|(queue_pair, connection)| ((*application, *queue_pair), connection))
        })
    }

    /// Notes a peer. Returns the queue pairs that led to an earlier life of it, and have ended with it.
    pub(super) fn meet(&mut self, host: u32, device: &str) -> Vec<QueuePair> {
        self.devices.retain(|_, known| *known != host);
        self.devices.insert(device.to_owned(), host);
        let (mut lost, mut changed) = (Vec::new(), Vec::new());
        for (at, connection) in self.connections() {
            let is_there = connection.device == device;
            match connection.end {
                End::Elsewhere if is_there => {
                    connection.end = End::Asked(host);
                    changed.push(at.0);
                }
                End::Asked(known) | End::There(known, _) if known == host && !is_there => {
                    connection.end = End::Elsewhere;
                    lost.push(at);
                }
                End::Elsewhere | End::Here | End::Asked(_) | End::There(..) => {}
            }
        }
        self.changed.extend(changed.into_iter().chain(lost.iter().map(|at| at.0)));
        lost
    }

    /// Returns what to ask a peer: the numbers of queue pairs on its device, in lists that fit a message.
    pub(super) fn questions(&mut self, host: u32) -> Vec<Vec<u32>> {
        let all = self.connections().filter(|(_, connection)| match connection.end {
            End::Asked(known) | End::There(known, _) => known == host,
            End::Elsewhere | End::Here => false,
        });
        let numbers: BTreeSet<u32> = all.map(|(_, connection)| connection.qpn).collect();
        let numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.chunks(MOST_ASKED).map(<[u32]>::to_vec).collect()
    }

    /// Returns the host whose device this is, of those that are known.
    pub(super) fn host_of(&self, device: &str) -> Option<u32> {
        self.devices.get(device).copied()
    }

    /// Returns the hosts that are known.
    pub(super) fn hosts(&self) -> impl Iterator<Item = u32> {
        self.devices.values().copied()
    }

    /// Returns the application that has a queue pair of this device, and its number there.
    pub(super) fn at(&self, qpn: u32) -> Option<QueuePair> {
        self.owners.get(&qpn).copied()
    }

    /// Returns the applications of this host.
    pub(super) fn applications(&self) -> impl Iterator<Item = u32> {
        self.members.keys().copied()
    }

    /// Returns an application's connections that lead to a host, with the application there.
    pub(super) fn leading(
        &self,
        application: u32,
        host: u32,
    ) -> impl Iterator<Item = (QueuePair, u32)> {
        let connections = self.members.get(&application).map(|member| &member.connections);
        connections.into_iter().flatten().filter_map(move |(queue_pair, connection)| {
            match connection.end {
                End::There(known, to) if known == host => Some(((application, *queue_pair), to)),
                End::There(..) | End::Elsewhere | End::Here | End::Asked(_) => None,
            }
        })
    }

    /// Returns the ends of the edge that data go along from a host to a queue pair of this device: the application there,
    /// and here.
    pub(super) fn ends(&self, qpn: u32, host: u32) -> Option<(u32, u32)> {
        let at = self.at(qpn)?;
        match self.members.get(&at.0)?.connections.get(&at.1)?.end {
            End::There(known, from) if known == host => Some((from, at.0)),
            End::There(..) | End::Elsewhere | End::Here | End::Asked(_) => None,
        }
    }

    /// Returns which application has a queue pair of this device.
    pub(super) fn owner(&self, qpn: u32) -> Option<u32> {
        self.owners.get(&qpn).map(|at| at.0)
    }

    /// Takes the answer of a peer: which application has a queue pair of its device.
    pub(super) fn take_answer(&mut self, host: u32, qpn: u32, application: Option<u32>) {
        for at in self.leads.get(&qpn).into_iter().flatten() {
            let member = self.members.get_mut(&at.0);
            let connection = member.and_then(|member| member.connections.get_mut(&at.1));
            let Some(connection) = connection else { continue };
            let about = match connection.end {
                End::Asked(known) | End::There(known, _) => known == host,
                End::Elsewhere | End::Here => false,
            };
            if about {
                connection.end = application.map_or(End::Elsewhere, |it| End::There(host, it));
                self.changed.insert(at.0);
            }
        }
    }

    /// Notes that an application of a peer is gone.
    pub(super) fn forget_application(&mut self, host: u32, application: u32) {
        let mut changed = Vec::new();
        for (at, connection) in self.connections() {
            if connection.end == End::There(host, application) {
                connection.end = End::Elsewhere;
                changed.push(at.0);
            }
        }
        self.changed.extend(changed);
    }

    /// Notes that a peer is gone. Returns the queue pairs that led there.
    pub(super) fn forget(&mut self, host: u32) -> Vec<QueuePair> {
        self.devices.retain(|_, known| *known != host);
        let mut lost = Vec::new();
        for (at, connection) in self.connections() {
            if matches!(connection.end, End::Asked(known) | End::There(known, _) if known == host) {
                connection.end = End::Elsewhere;
                lost.push(at);
            }
        }
        self.changed.extend(lost.iter().map(|at| at.0));
        lost
    }

    /// Whether an application has to wait for the answer of a peer.
    pub(super) fn waits(&self, application: u32) -> bool {
        let member = self.members.get(&application);
        member.is_some_and(|member| {
            member.connections.values().any(|known| matches!(known.end, End::Asked(_)))
        })
    }

    /// Returns an application as the host's optimum has it: what it sends counts in full wherever its queue
    /// pairs lead, since all of it may go there; if that is nowhere that is known, at its own host.
    pub(super) fn application(&self, application: u32) -> Option<Application> {
        let member = self.members.get(&application)?;
        let ends = member.connections.values().filter_map(|connection| match connection.end {
            End::There(host, other) => Some((host, other)),
            End::Here => Some((self.host, self.owner(connection.qpn)?)),
            End::Elsewhere | End::Asked(_) => None,
        });
        let mut ends: BTreeSet<(u32, u32)> = ends.take(MOST_ENDS).collect();
        if ends.is_empty() {
            ends.insert((self.host, application));
        }
        let destination = |(host, application)| Destination { host, application, completions: 1.0 };
        Some(Application {
            application,
            weight: member.weight,
            limit: member.limit,
            destinations: ends.into_iter().map(destination).collect(),
        })
    }
}

/// Destinations that a host of DRUM takes of an application.
const MOST_ENDS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(roster: &Roster, application: u32) -> Vec<(u32, u32)> {
        let application = roster.application(application).unwrap();
        application.destinations.iter().map(|to| (to.host, to.application)).collect()
    }

    #[test]
    fn traffic_counts_where_queue_pairs_lead() {
        let mut roster = Roster::new(1, "us".into());
        roster.add(7, 2.0);
        assert_eq!(ends(&roster, 7), [(1, 7)], "nothing is connected");
        roster.add(8, 1.0);
        roster.add_queue_pair((8, 0), 80);
        assert_eq!(roster.connect((7, 0), "us".into(), 80), None);
        assert_eq!(ends(&roster, 7), [(1, 8)]);
        // Nobody knows that device yet.
        assert_eq!(roster.connect((7, 1), "them".into(), 90), None);
        assert!(!roster.waits(7));
        assert!(roster.meet(2, "them").is_empty());
        assert!(roster.waits(7));
        assert_eq!(roster.questions(2), [[90]]);
        roster.take_answer(3, 90, Some(6));
        assert!(roster.waits(7), "another host does not know");
        roster.take_answer(2, 90, Some(5));
        assert_eq!(ends(&roster, 7), [(1, 8), (2, 5)]);
        roster.forget_application(2, 5);
        assert_eq!(ends(&roster, 7), [(1, 8)]);
    }

    #[test]
    fn only_applications_of_which_there_is_news_are_named() {
        let mut roster = Roster::new(1, "us".into());
        let news = |roster: &mut Roster| roster.take_changed().into_iter().collect::<Vec<_>>();
        roster.add(7, 2.0);
        roster.add(8, 1.0);
        assert_eq!(news(&mut roster), [7, 8]);
        roster.meet(2, "them");
        roster.connect((7, 1), "them".into(), 90);
        assert_eq!(news(&mut roster), [7]);
        roster.take_answer(2, 91, Some(5));
        assert!(news(&mut roster).is_empty(), "another queue pair");
        roster.take_answer(2, 90, Some(5));
        assert_eq!(news(&mut roster), [7]);
        roster.connect((8, 0), "us".into(), 70);
        assert_eq!((news(&mut roster), ends(&roster, 8)), (vec![8], vec![(1, 8)]));
        roster.add_queue_pair((7, 0), 70);
        assert_eq!((news(&mut roster), ends(&roster, 8)), (vec![8], vec![(1, 7)]));
        roster.remove(7);
        assert_eq!((news(&mut roster), ends(&roster, 8)), (vec![8], vec![(1, 8)]));
        assert_eq!(roster.forget(2), [], "its connection went with it");
    }

    #[test]
    fn what_led_to_a_peer_that_is_gone_is_lost() {
        let mut roster = Roster::new(1, "us".into());
        roster.add(7, 2.0);
        roster.meet(2, "them");
        assert_eq!(roster.connect((7, 1), "them".into(), 90), Some(2));
        roster.take_answer(2, 90, Some(5));
        assert!(roster.meet(2, "them").is_empty(), "the same life has another session");
        assert_eq!(roster.meet(2, "them again"), [(7, 1)]);
        assert_eq!(ends(&roster, 7), [(1, 7)]);
        roster.connect((7, 1), "them again".into(), 91);
        assert_eq!(roster.forget(2), [(7, 1)]);
        assert_eq!(roster.forget(2), []);
    }
}
