//! Who is connected with whom: only applications that exist, and edges in the order of their senders.
use super::chunks::{Chunk, Chunks};
use super::problem::{Edges, Problem, Sided};
use super::tiles::{Order, Tiles};
use std::num::NonZero;
use std::ops::Range;

/// Edges that a thread is begun for, at least.
const LEAST_EDGES: usize = 1 << 16;

/// Indices into arrays over senders, receivers and edges.
///
/// Senders are the applications with a weight, receivers those with an incoming edge. Both stand host by host in *rows*,
/// which is the order of all arrays unless something else is said, and in tiles ([`Tiles`]); edges stand in the order of
/// their senders in tiles.
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
    pub(super) sending: Tiles,
    pub(super) receiving: Tiles,
    chunks: Chunks,
    /// For each edge the place of its receiver in tiles.
    pub(super) to: Vec<u32>,
    /// How many edges each receiver has.
    incoming: Vec<u32>,
    /// Where no edge crosses from what is before to what comes after, first and last place included.
    cuts: Vec<Cut>,
    /// Most edges of a chunk, and most receivers of a block.
    widest: [usize; 2],
    /// What each thread does.
    pub(super) parts: Vec<Part>,
}

/// First chunk and receiver after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    chunk: usize,
    receiver: usize,
}

/// Places in tiles whose edges stay among them.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) senders: Range<usize>,
    pub(super) receivers: Range<usize>,
    pub(super) edges: Range<usize>,
    chunks: Range<usize>,
}

/// What one thread does of each step.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Of steps over rows.
    pub(super) hosts: Range<usize>,
    /// Of steps over edges.
    pub(super) edges: Block,
    blocks: Range<usize>,
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

/// Returns, for each host, where its `members` begin.
fn count_hosts(hosts: usize, applications: usize, members: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; hosts];
    for member in members {
        counts[*member as usize / applications] += 1;
    }
    ranges(&counts)
}

/// Returns the members with a true entry in `is`.
fn members(is: impl Iterator<Item = bool>) -> Vec<u32> {
    is.enumerate().filter(|(_, is)| *is).map(|(index, _)| index as u32).collect()
}

/// Returns the place in tiles of each application of a problem; 0 where there is none.
fn places(all: usize, members: &[u32], order: &Order) -> Vec<u32> {
    let mut places = vec![0; all];
    let rows = order.rows.iter().enumerate();
    rows.for_each(|(at, row)| places[members[*row as usize] as usize] = at as u32);
    places
}

/// Returns the indices in the problem of all edges: those of each sender by their receivers, chunk by chunk and slot by slot.
fn order_edges(edges: &Edges, chunks: &Chunks, degrees: &[u32], places: &[u32]) -> Vec<u32> {
    let starts = ranges(degrees);
    let mut next = starts.clone();
    let mut by_sender = vec![0; edges.from.len()];
    for (edge, from) in edges.from.iter().enumerate() {
        let next = &mut next[places[*from as usize] as usize];
        by_sender[*next as usize] = edge as u32;
        *next += 1;
    }
    for range in starts.windows(2) {
        by_sender[range[0] as usize..range[1] as usize]
            .sort_unstable_by_key(|edge| edges.to[*edge as usize]);
    }
    let slots = (0..chunks.len()).flat_map(|chunk| {
        let chunk = chunks.get(chunk);
        let first = chunk.senders.start;
        chunk.slots().enumerate().flat_map(move |(slot, edges)| {
            (first..first + edges.len()).map(move |sender| (sender, slot))
        })
    });
    slots.map(|(sender, slot)| by_sender[starts[sender] as usize + slot]).collect()
}

impl Layout {
    /// Returns, beside the layout, for each of its edges the index in the problem.
    pub(super) fn new(problem: &Problem, threads: NonZero<usize>) -> (Self, Vec<u32>) {
        let &Problem { hosts, applications, ref edges, .. } = problem;
        let all = problem.weights.len();
        let senders = members(problem.weights.iter().map(|weight| *weight > 0.0));
        let mut received = vec![0; all];
        edges.to.iter().for_each(|to| received[*to as usize] += 1);
        let receivers = members(received.iter().map(|count| *count > 0));
        let incoming = receivers.iter().map(|receiver| received[*receiver as usize]).collect();
        let send_hosts = count_hosts(hosts, applications, &senders);
        let receive_hosts = count_hosts(hosts, applications, &receivers);
        let one_sided = problem.sided() == Sided::One;
        let (mut sent, arrived) = if one_sided {
            (Order::of_rows(&send_hosts), Order::of_rows(&receive_hosts))
        } else {
            let width = Tiles::width(hosts, applications, senders.len());
            let order = |members: &[u32], of_host: &[u32]| {
                Order::new(applications, members, of_host, width)
            };
            (order(&senders, &send_hosts), order(&receivers, &receive_hosts))
        };
        let mut sends = vec![0; all];
        edges.from.iter().for_each(|from| sends[*from as usize] += 1);
        let degrees: Vec<u32> = senders.iter().map(|sender| sends[*sender as usize]).collect();
        let chunks = Chunks::sort(&mut sent.rows, &sent.tiles, &degrees);
        let degrees: Vec<u32> = sent.rows.iter().map(|row| degrees[*row as usize]).collect();
        let ids = order_edges(edges, &chunks, &degrees, &places(all, &senders, &sent));
        let receiver_places = places(all, &receivers, &arrived);
        let to = ids.iter().map(|edge| receiver_places[edges.to[*edge as usize] as usize]);
        let mut layout = Self {
            hosts,
            applications,
            one_sided,
            send_hosts,
            receive_hosts,
            to: to.collect(),
            senders,
            receivers,
            sending: Tiles::new(&sent),
            receiving: Tiles::new(&arrived),
            chunks,
            incoming,
            cuts: Vec::new(),
            widest: [0; 2],
            parts: Vec::new(),
        };
        layout.cut(&sent.tiles, &arrived.tiles);
        // Who has little to do is faster alone.
        layout.parts = layout.divide(threads.get().min(layout.to.len() / LEAST_EDGES).max(1));
        (layout, ids)
    }

    /// Finds the tiles that no edge leaves, of which `sent` and `received` are where each begins.
    fn cut(&mut self, sent: &[u32], received: &[u32]) {
        let tile_of = |to: u32| received.partition_point(|start| *start <= to) - 1;
        let cuts = sent.iter().zip(received).map(|(sender, receiver)| Cut {
            chunk: self.chunks.beginning_at(*sender),
            receiver: *receiver as usize,
        });
        let cuts: Vec<Cut> = cuts.collect();
        // How many more edges cross the end of each tile than that of the one before.
        let mut crossing = vec![0_i64; cuts.len() + 1];
        for (tile, ends) in cuts.windows(2).enumerate() {
            let own = received[tile]..received[tile + 1];
            let out = self.to[self.between(ends[0], ends[1]).edges].iter();
            for to in out.filter(|to| !own.contains(to)) {
                let other = tile_of(*to);
                crossing[tile.min(other)] += 1;
                crossing[tile.max(other)] -= 1;
            }
        }
        let mut now = 0;
        let mut is_closed = |tile: usize| {
            now += crossing[tile];
            now == 0
        };
        self.cuts = vec![cuts[0]];
        let ends = cuts[1..].iter().enumerate();
        self.cuts.extend(ends.filter(|(tile, _)| is_closed(*tile)).map(|(_, cut)| *cut));
        let chunks = (0..self.chunks.len()).map(|chunk| self.chunks.get(chunk).edges.len());
        let receivers = (1..self.cuts.len()).map(|block| self.block(block - 1).receivers.len());
        self.widest = [chunks.max().unwrap_or(0), receivers.max().unwrap_or(0)];
    }

    fn block(&self, block: usize) -> Block {
        self.between(self.cuts[block], self.cuts[block + 1])
    }

    fn between(&self, begin: Cut, end: Cut) -> Block {
        let [first, last] = [begin.chunk, end.chunk].map(|chunk| self.chunks.start(chunk));
        Block {
            senders: first.0..last.0,
            receivers: begin.receiver..end.receiver,
            edges: first.1..last.1,
            chunks: begin.chunk..end.chunk,
        }
    }

    /// Divides the steps among so many threads.
    fn divide(&self, threads: usize) -> Vec<Part> {
        let blocks = self.cuts.len() - 1;
        let rows = |host: usize| (self.send_hosts[host] + self.receive_hosts[host]) as usize;
        let bound = |share: usize, all: usize, at: &dyn Fn(usize) -> usize| match share {
            0 => 0,
            _ if share == threads => all,
            _ => at(share),
        };
        let host = |share: usize| {
            let most = rows(self.hosts) * share / threads;
            (1..self.hosts).take_while(|host| rows(*host) <= most).count()
        };
        let block = |share: usize| {
            let most = self.to.len() * share / threads;
            self.cuts[1..blocks].partition_point(|cut| self.chunks.start(cut.chunk).1 <= most)
        };
        let part = |share: usize| {
            let [hosts, blocks] =
                [(self.hosts, &host as &dyn Fn(usize) -> usize), (blocks, &block)]
                    .map(|(all, at)| bound(share, all, at)..bound(share + 1, all, at));
            let [begin, end] = [blocks.start, blocks.end].map(|cut| self.cuts[cut]);
            Part { hosts, edges: self.between(begin, end), blocks }
        };
        (0..threads).map(part).collect()
    }

    /// The blocks of a part.
    #[inline(always)]
    pub(super) fn blocks(&self, part: &Part) -> impl Iterator<Item = Block> + '_ {
        part.blocks.clone().map(|block| self.block(block))
    }

    /// The chunks of a block.
    #[inline(always)]
    pub(super) fn chunks(&self, block: &Block) -> impl Iterator<Item = Chunk<'_>> {
        block.chunks.clone().map(|chunk| self.chunks.get(chunk))
    }

    /// All chunks.
    pub(super) fn all_chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        (0..self.chunks.len()).map(|chunk| self.chunks.get(chunk))
    }

    /// Every edge with its sender, which is named by its place in tiles; the edges of a sender in their order.
    pub(super) fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.all_chunks().flat_map(|chunk| {
            let slots = chunk.slots();
            let Chunk { senders, edges, .. } = chunk;
            slots.flat_map(move |slot| {
                senders.clone().zip(edges.start + slot.start..edges.start + slot.end)
            })
        })
    }

    /// Edges of a sender, which is named by its place in tiles.
    pub(super) fn out(&self, sender: usize) -> impl Iterator<Item = usize> + '_ {
        self.chunks.out(sender)
    }

    /// Most edges of a chunk.
    pub(super) fn widest_chunk(&self) -> usize {
        self.widest[0]
    }

    /// Most receivers of a block.
    pub(super) fn widest_block(&self) -> usize {
        self.widest[1]
    }

    /// Senders of a host.
    pub(super) fn sent_by(&self, host: usize) -> Range<usize> {
        self.sent_by_all(host..host + 1)
    }

    /// Receivers of a host.
    pub(super) fn received_by(&self, host: usize) -> Range<usize> {
        self.received_by_all(host..host + 1)
    }

    /// Senders of hosts that follow each other.
    pub(super) fn sent_by_all(&self, hosts: Range<usize>) -> Range<usize> {
        self.send_hosts[hosts.start] as usize..self.send_hosts[hosts.end] as usize
    }

    /// Receivers of hosts that follow each other.
    pub(super) fn received_by_all(&self, hosts: Range<usize>) -> Range<usize> {
        self.receive_hosts[hosts.start] as usize..self.receive_hosts[hosts.end] as usize
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drum::{Coupling, Edges};

    /// Every application sends to itself, and to that of another host which is `further` places on.
    fn layout(hosts: usize, applications: usize, further: usize, threads: usize) -> Layout {
        let mut edges = Edges::default();
        for from in 0..hosts * applications {
            let (host, application) = (from / applications, from % applications);
            if host % 7 != 3 {
                edges.push(from, from, 1.0);
            }
            let to = (application + further) % applications;
            edges.push(from, (host + 1) % hosts * applications + to, 0.5);
        }
        let problem = Problem {
            hosts,
            applications,
            alpha: 1.0,
            weights: vec![1.0; hosts * applications],
            beta: vec![0.1; hosts],
            send_capacity: vec![1.0; hosts],
            completion_capacity: vec![1.0; hosts],
            edges,
            coupling: Coupling::Equal,
            send_preemption: None,
            completion_preemption: None,
            limits: None,
        };
        Layout::new(&problem, NonZero::new(threads).expect("a thread")).0
    }

    #[test]
    fn blocks_are_closed_and_parts_have_each_host_edge_and_receiver_once() {
        for (further, threads) in [(0, 1), (0, 3), (1, 3)] {
            let layout = layout(300, 250, further, threads);
            assert_eq!(layout.parts.len(), if threads == 1 { 1 } else { 2 }, "130,000 edges");
            let (mut hosts, mut edges, mut receivers, mut blocks) = (0, 0, 0, 0);
            for part in &layout.parts {
                assert_eq!((part.hosts.start, part.edges.edges.start), (hosts, edges));
                assert_eq!(part.edges.receivers.start, receivers);
                (hosts, edges) = (part.hosts.end, part.edges.edges.end);
                receivers = part.edges.receivers.end;
                for block in layout.blocks(part) {
                    let mut to = layout.to[block.edges.clone()].iter();
                    assert!(to.all(|to| block.receivers.contains(&(*to as usize))));
                    blocks += 1;
                }
            }
            assert_eq!((hosts, edges, receivers), (300, layout.to.len(), layout.receivers.len()));
            assert_eq!(blocks, if further == 0 { 250_usize.div_ceil(16_384 / 300) } else { 1 });
        }
    }

    #[test]
    fn senders_with_more_edges_stand_first_and_have_all_of_them() {
        let layout = layout(20, 50, 3, 1);
        let senders = layout.sending.all(&layout.senders);
        let receivers = layout.receiving.all(&layout.receivers);
        let mut seen = vec![0; senders.len()];
        for (sender, edge) in layout.edges() {
            let (from, to) = (senders[sender], receivers[layout.to[edge] as usize]);
            let next = (from / 50 + 1) % 20 * 50 + (from + 3) % 50;
            assert!(to == from || to == next, "{from} to {to}");
            assert!(layout.out(sender).any(|own| own == edge));
            seen[sender] += 1;
        }
        for (sender, seen) in seen.iter().enumerate() {
            let expected = if senders[sender] / 50 % 7 == 3 { 1 } else { 2 };
            assert_eq!((*seen, layout.out(sender).count()), (expected, expected));
        }
    }
}
