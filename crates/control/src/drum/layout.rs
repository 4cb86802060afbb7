//! Who is connected with whom: only applications that exist, host by host, and edges in two orders.
use super::problem::{Problem, Sided};
use std::ops::Range;

/// Indices into arrays over senders, receivers and edges.
///
/// Senders are the applications with a weight, receivers those with an incoming edge, both host by
/// host. Edges stand in tiles: those of the first few applications of every host, then those of the
/// next few. Edges mostly join hosts that run the same application, so what a tile's edges read and
/// write stays in the cache while the tile is swept.
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
    /// Senders in the order of their edges, and where the edges of each begin.
    order: Vec<u32>,
    starts: Vec<u32>,
    /// Place of each sender in `order`.
    places: Vec<u32>,
    /// How many edges each receiver has.
    incoming: Vec<u32>,
    /// For each edge its receiver and its index in the problem.
    pub(super) to: Vec<u32>,
    pub(super) edge_ids: Vec<u32>,
}

/// Applications of one tile: what it reads of a host fills whole cache lines, and of all hosts the
/// second-level cache.
const TILE: u32 = 32;

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

/// Returns the senders tile by tile, and within a tile host by host.
fn order_by_tile(applications: usize, senders: &[u32], of_host: &[u32]) -> Vec<u32> {
    let mut next = of_host[..of_host.len() - 1].to_vec();
    let mut order = Vec::with_capacity(senders.len());
    let applications = applications as u32;
    // A host that has few of many applications would have few in a tile.
    let width = u64::from(TILE) * u64::from(applications) * (next.len() as u64);
    let width = width / (senders.len() as u64).max(1);
    let width = u32::try_from(width).unwrap_or(u32::MAX);
    let mut end = 0;
    while order.len() < senders.len() {
        end += width;
        for (host, next) in next.iter_mut().enumerate() {
            let last = of_host[host + 1];
            let most = (host as u32 * applications).saturating_add(end.min(applications));
            while *next < last && senders[*next as usize] < most {
                order.push(*next);
                *next += 1;
            }
        }
    }
    order
}

impl Layout {
    pub(super) fn new(problem: &Problem) -> Self {
        let &Problem { hosts, applications, .. } = problem;
        let edges = &problem.edges;
        let (senders, sender_places) = place(problem.weights.iter().map(|weight| *weight > 0.0));
        let mut received = vec![false; problem.weights.len()];
        edges.to.iter().for_each(|to| received[*to as usize] = true);
        let (receivers, receiver_places) = place(received.into_iter());
        let send_hosts = count_hosts(hosts, applications, &senders);
        let one_sided = problem.sided() == Sided::One;
        let order = if one_sided {
            (0..senders.len() as u32).collect()
        } else {
            order_by_tile(applications, &senders, &send_hosts)
        };
        let mut places = vec![0; senders.len()];
        order.iter().enumerate().for_each(|(at, sender)| places[*sender as usize] = at as u32);
        let place_of = |from: u32| places[sender_places[from as usize] as usize] as usize;
        let mut out = vec![0; senders.len()];
        let mut incoming = vec![0; receivers.len()];
        for (from, to) in edges.from.iter().zip(&edges.to) {
            out[place_of(*from)] += 1;
            incoming[receiver_places[*to as usize] as usize] += 1;
        }
        let starts = ranges(&out);
        let mut next = starts.clone();
        let mut edge_ids = vec![0; edges.from.len()];
        for (edge, from) in edges.from.iter().enumerate() {
            let next = &mut next[place_of(*from)];
            edge_ids[*next as usize] = edge as u32;
            *next += 1;
        }
        for range in starts.windows(2) {
            edge_ids[range[0] as usize..range[1] as usize]
                .sort_unstable_by_key(|edge| edges.to[*edge as usize]);
        }
        let to = edge_ids.iter().map(|edge| receiver_places[edges.to[*edge as usize] as usize]);
        Self {
            hosts,
            applications,
            one_sided,
            send_hosts,
            receive_hosts: count_hosts(hosts, applications, &receivers),
            to: to.collect(),
            senders,
            receivers,
            order,
            starts,
            places,
            incoming,
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
        let place = self.places[sender] as usize;
        self.starts[place] as usize..self.starts[place + 1] as usize
    }

    /// Every sender with its edges, in the order of the edges.
    #[inline(always)]
    pub(super) fn sweep(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let ranges = self.starts.windows(2).map(|range| range[0] as usize..range[1] as usize);
        self.order.iter().map(|sender| *sender as usize).zip(ranges)
    }

    /// How many edges a receiver has.
    #[inline]
    pub(super) fn incoming(&self, receiver: usize) -> u32 {
        self.incoming[receiver]
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
