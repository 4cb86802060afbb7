//! Who is connected with whom: only applications that exist, host by host, and edges in two orders.
use super::problem::{Problem, Sided};
use std::ops::Range;

/// Indices into arrays over senders, receivers and edges.
///
/// Senders are the applications with a weight, receivers those with an incoming edge, both host by
/// host. Edges stand in the order of their senders.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) hosts: usize,
    pub(super) applications: usize,
    /// Whether edge, sender and receiver have the same index.
    pub(super) one_sided: bool,
    send_hosts: Vec<u32>,
    receive_hosts: Vec<u32>,
    /// Index in the problem of each sender and receiver.
    pub(super) senders: Vec<u32>,
    pub(super) receivers: Vec<u32>,
    outgoing: Vec<u32>,
    incoming: Vec<u32>,
    /// Edges by receiver.
    incoming_edges: Vec<u32>,
    /// For each edge its receiver, its sender, and its index in the problem.
    pub(super) to: Vec<u32>,
    pub(super) from: Vec<u32>,
    pub(super) edge_ids: Vec<u32>,
}

fn ranges(counts: &[u32]) -> Vec<u32> {
    let mut total = 0;
    let mut starts = vec![0];
    starts.extend(counts.iter().map(|count| {
        total += count;
        total
    }));
    starts
}

/// Returns, for each host, how many of `members` it has.
fn count_hosts(hosts: usize, applications: usize, members: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; hosts];
    for member in members {
        counts[*member as usize / applications] += 1;
    }
    ranges(&counts)
}

/// Returns the members with a true entry in `is`, and the place of each of all.
fn place(is: impl Iterator<Item = bool>) -> (Vec<u32>, Vec<u32>) {
    let mut members = Vec::new();
    let mut places = Vec::new();
    for (index, is) in is.enumerate() {
        places.push(members.len() as u32);
        if is {
            members.push(index as u32);
        }
    }
    (members, places)
}

impl Layout {
    pub(super) fn new(problem: &Problem) -> Self {
        let &Problem { hosts, applications, .. } = problem;
        let edges = &problem.edges;
        let (senders, sender_places) = place(problem.weights.iter().map(|weight| *weight > 0.0));
        let mut received = vec![false; problem.weights.len()];
        edges.to.iter().for_each(|to| received[*to as usize] = true);
        let (receivers, receiver_places) = place(received.into_iter());
        let mut edge_ids: Vec<u32> = (0..edges.from.len() as u32).collect();
        edge_ids.sort_by_key(|edge| (edges.from[*edge as usize], edges.to[*edge as usize]));
        let mut out = vec![0; senders.len()];
        let mut into = vec![0; receivers.len()];
        for edge in 0..edges.from.len() {
            out[sender_places[edges.from[edge] as usize] as usize] += 1;
            into[receiver_places[edges.to[edge] as usize] as usize] += 1;
        }
        let to: Vec<u32> = edge_ids
            .iter()
            .map(|edge| receiver_places[edges.to[*edge as usize] as usize])
            .collect();
        let from = edge_ids.iter().map(|edge| sender_places[edges.from[*edge as usize] as usize]);
        let from = from.collect();
        let (outgoing, incoming) = (ranges(&out), ranges(&into));
        let mut next = incoming.clone();
        let mut incoming_edges = vec![0; to.len()];
        for (edge, to) in to.iter().enumerate() {
            incoming_edges[next[*to as usize] as usize] = edge as u32;
            next[*to as usize] += 1;
        }
        Self {
            hosts,
            applications,
            one_sided: problem.sided() == Sided::One,
            send_hosts: count_hosts(hosts, applications, &senders),
            receive_hosts: count_hosts(hosts, applications, &receivers),
            senders,
            receivers,
            outgoing,
            incoming,
            incoming_edges,
            to,
            from,
            edge_ids,
        }
    }

    /// Senders of a host.
    pub(super) fn sent_by(&self, host: usize) -> Range<usize> {
        self.send_hosts[host] as usize..self.send_hosts[host + 1] as usize
    }

    /// Receivers of a host.
    pub(super) fn received_by(&self, host: usize) -> Range<usize> {
        self.receive_hosts[host] as usize..self.receive_hosts[host + 1] as usize
    }

    /// Edges of a sender.
    #[inline]
    pub(super) fn out(&self, sender: usize) -> Range<usize> {
        self.outgoing[sender] as usize..self.outgoing[sender + 1] as usize
    }

    /// Edges of a receiver.
    #[inline]
    pub(super) fn incoming(&self, receiver: usize) -> &[u32] {
        &self.incoming_edges[self.incoming[receiver] as usize..self.incoming[receiver + 1] as usize]
    }

    /// Host of a receiver.
    #[inline]
    pub(super) fn host_of_receiver(&self, receiver: usize) -> usize {
        self.receivers[receiver] as usize / self.applications
    }

    /// Host of a sender.
    pub(super) fn host_of_sender(&self, sender: usize) -> usize {
        self.senders[sender] as usize / self.applications
    }

    pub(super) fn edge_count(&self) -> usize {
        self.to.len()
    }

    /// Most senders or receivers of a host.
    pub(super) fn widest(&self) -> usize {
        let widths =
            (0..self.hosts).map(|host| self.sent_by(host).len().max(self.received_by(host).len()));
        widths.max().unwrap_or(0)
    }
}
