//! Edges, a few senders at a time.
//!
//! The edges of a chunk stand in slots: the first edges of all its senders, then the second edges of those that have one,
//! and so on. Senders with more edges stand before those with fewer, so a slot is as wide as the senders that have it, and what
//! belongs to a sender and to its edge in a slot has the same index: loops over slots are loops over whole slices.
use std::ops::Range;

/// Senders of a chunk at most. With fewer the streams of edges begin anew more often than memory likes; with more, what belongs
/// to them leaves the second-level cache.
pub(super) const CHUNK: usize = 1024;

/// Where chunks begin, and how wide their slots are.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    /// For each chunk its first sender, its first edge and its first slot, and those after the last one.
    starts: Vec<[u32; 3]>,
    widths: Vec<u32>,
}

/// Some senders, by their places in tiles, and their edges.
#[derive(Clone, Debug)]
pub(super) struct Chunk<'a> {
    pub(super) senders: Range<usize>,
    pub(super) edges: Range<usize>,
    widths: &'a [u32],
}

impl<'a> Chunk<'a> {
    /// The edges of each slot, counted from the first of the chunk: one for each of its first senders.
    #[inline(always)]
    pub(super) fn slots(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let mut end = 0;
        self.widths.iter().map(move |width| {
            let begin = end;
            end += *width as usize;
            begin..end
        })
    }
}

impl Chunks {
    /// Orders the senders within the chunks of each tile, most edges first; `order` are senders tile by tile, `tiles` where
    /// each tile begins, and `degrees` how many edges each sender has.
    pub(super) fn sort(order: &mut [u32], tiles: &[u32], degrees: &[u32]) -> Self {
        let mut chunks = Self { starts: Vec::new(), widths: Vec::new() };
        let (mut edges, mut begin) = (0, 0);
        for end in tiles[1..].iter().map(|end| *end as usize) {
            while begin < end {
                let senders = begin..end.min(begin + CHUNK);
                chunks.starts.push([begin as u32, edges, chunks.widths.len() as u32]);
                let own = &mut order[senders.clone()];
                own.sort_by_key(|sender| std::cmp::Reverse(degrees[*sender as usize]));
                let most = own.first().map_or(0, |sender| degrees[*sender as usize]);
                for slot in 0..most {
                    let has = |sender: &u32| degrees[*sender as usize] > slot;
                    let width = own.partition_point(has) as u32;
                    chunks.widths.push(width);
                    edges += width;
                }
                begin = senders.end;
            }
        }
        chunks.starts.push([begin as u32, edges, chunks.widths.len() as u32]);
        chunks
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    #[inline(always)]
    pub(super) fn get(&self, chunk: usize) -> Chunk<'_> {
        let ([sender, edge, slot], [sender_end, edge_end, slot_end]) =
            (self.starts[chunk], self.starts[chunk + 1]);
        Chunk {
            senders: sender as usize..sender_end as usize,
            edges: edge as usize..edge_end as usize,
            widths: &self.widths[slot as usize..slot_end as usize],
        }
    }

    /// First sender and edge of a chunk, or of what would come after the last one.
    pub(super) fn start(&self, chunk: usize) -> (usize, usize) {
        let [sender, edge, _] = self.starts[chunk];
        (sender as usize, edge as usize)
    }

    /// The chunk whose first sender, which begins a tile, is this; the end if there is none.
    pub(super) fn beginning_at(&self, sender: u32) -> usize {
        self.starts.partition_point(|start| start[0] < sender)
    }

    /// Edges of a sender, in their order.
    pub(super) fn out(&self, sender: usize) -> impl Iterator<Item = usize> + '_ {
        let chunk = self.starts.partition_point(|start| start[0] as usize <= sender) - 1;
        let start = self.starts[chunk];
        let at = sender - start[0] as usize;
        let slots = &self.widths[start[2] as usize..self.starts[chunk + 1][2] as usize];
        let mut end = start[1] as usize;
        slots.iter().take_while(move |width| at < **width as usize).map(move |width| {
            let edge = end + at;
            end += *width as usize;
            edge
        })
    }
}
