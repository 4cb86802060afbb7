//! The two orders in which applications stand: in rows, host by host, and in tiles.
//!
//! A host's step reads its row. Edges mostly join hosts that run the same application, so they stand in tiles: those of
//! the first few applications of every host, then those of the next few. What the edges of a tile read and write
//! stays in the cache while the tile is swept.
use std::ops::Range;

/// The applications of one tile of all hosts, at most: what its edges read then fits into the second-level cache.
const TILE: usize = 16_384;
/// A tile has at least so many of each host, a cache line of `f32`: shorter pieces cost more to copy than a larger tile.
const NARROWEST: usize = 16;

/// Of every so many places it is known in which piece they are.
const MARK: usize = 32;

/// Pieces that stand together in both orders, in the sequence of one of them.
#[derive(Clone, Debug)]
struct Pieces {
    /// Where each begins here, and at last where the last one ends.
    here: Vec<u32>,
    /// Where each begins in the other order.
    there: Vec<u32>,
    /// The piece of every [`MARK`]th place here.
    marks: Vec<u32>,
}

impl Pieces {
    /// `order` has, for each place here, its place in the other order.
    fn new(order: &[u32]) -> Self {
        let mut pieces = Self { here: Vec::new(), there: Vec::new(), marks: Vec::new() };
        for (here, there) in order.iter().enumerate() {
            if here == 0 || order[here - 1] + 1 != *there {
                pieces.here.push(here as u32);
                pieces.there.push(*there);
            }
            if here.is_multiple_of(MARK) {
                pieces.marks.push(pieces.there.len() as u32 - 1);
            }
        }
        pieces.here.push(order.len() as u32);
        pieces
    }

    /// The pieces in a range of places: for each its length, and where it begins in the other order.
    #[inline(always)]
    fn within(&self, range: Range<usize>) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = range.start;
        let mut piece = self.marks.get(at / MARK).map_or(0, |piece| *piece as usize);
        // The one that ends beyond the place.
        while self.here.get(piece).is_some_and(|begin| *begin as usize <= at) {
            piece += 1;
        }
        std::iter::from_fn(move || {
            (at < range.end).then(|| {
                let end = (self.here[piece] as usize).min(range.end);
                let begin = at - self.here[piece - 1] as usize + self.there[piece - 1] as usize;
                let length = end - at;
                (at, piece) = (end, piece + 1);
                (length, begin)
            })
        })
    }

    #[inline(always)]
    fn copy<T: Copy>(&self, range: Range<usize>, from: &[T], into: &mut [T]) {
        let mut done = 0;
        for (length, begin) in self.within(range) {
            into[done..done + length].copy_from_slice(&from[begin..begin + length]);
            done += length;
        }
    }
}

/// How what stands in rows stands in tiles.
#[derive(Clone, Debug)]
pub(super) struct Tiles {
    /// In the order of tiles.
    tiles: Pieces,
    /// In the order of rows.
    rows: Pieces,
}

/// Members, by their places in rows, tile by tile, and where each tile begins, the end of the last one included.
pub(super) struct Order {
    pub(super) rows: Vec<u32>,
    pub(super) tiles: Vec<u32>,
}

impl Order {
    /// Each host is a tile.
    pub(super) fn of_rows(of_host: &[u32]) -> Self {
        let count = of_host.last().copied().unwrap_or(0);
        Self { rows: (0..count).collect(), tiles: of_host.to_vec() }
    }

    /// `members` are those that exist, host by host, with `of_host` where those of each host begin; a tile has `width`
    /// applications of each.
    pub(super) fn new(applications: usize, members: &[u32], of_host: &[u32], width: usize) -> Self {
        let mut next = of_host[..of_host.len() - 1].to_vec();
        let mut rows = Vec::with_capacity(members.len());
        let mut tiles = vec![0];
        for end in (0..applications).step_by(width).map(|begin| begin.saturating_add(width)) {
            for (host, next) in next.iter_mut().enumerate() {
                let most = host * applications + end.min(applications);
                while *next < of_host[host + 1] && (members[*next as usize] as usize) < most {
                    rows.push(*next);
                    *next += 1;
                }
            }
            tiles.push(rows.len() as u32);
        }
        Self { rows, tiles }
    }
}

impl Tiles {
    pub(super) fn new(order: &Order) -> Self {
        let mut places = vec![0; order.rows.len()];
        order.rows.iter().enumerate().for_each(|(at, row)| places[*row as usize] = at as u32);
        Self { tiles: Pieces::new(&order.rows), rows: Pieces::new(&places) }
    }

    /// How many applications of each host a tile has where `senders` of all exist.
    pub(super) fn width(hosts: usize, applications: usize, senders: usize) -> usize {
        let narrow = (TILE / hosts).max(NARROWEST);
        // Of many applications few may exist.
        (narrow * hosts).saturating_mul(applications).div_ceil(senders.max(1)).max(1)
    }

    /// Copies a range of tiles from what stands in rows.
    #[inline(always)]
    pub(super) fn to_tiles<T: Copy>(&self, tiles: Range<usize>, rows: &[T], into: &mut [T]) {
        self.tiles.copy(tiles, rows, into);
    }

    /// Copies a range of rows from what stands in tiles.
    #[inline(always)]
    pub(super) fn to_rows<T: Copy>(&self, rows: Range<usize>, tiles: &[T], into: &mut [T]) {
        self.rows.copy(rows, tiles, into);
    }

    /// Returns all that stands in rows, in tiles.
    pub(super) fn all<T: Copy + Default>(&self, rows: &[T]) -> Vec<T> {
        let mut all = vec![T::default(); rows.len()];
        self.to_tiles(0..rows.len(), rows, &mut all);
        all
    }

    /// Returns all that stands in tiles, in rows.
    pub(super) fn all_rows<T: Copy + Default>(&self, tiles: &[T]) -> Vec<T> {
        let mut all = vec![T::default(); tiles.len()];
        self.to_rows(0..tiles.len(), tiles, &mut all);
        all
    }

    /// Place in tiles of one that stands in rows.
    pub(super) fn place_of(&self, row: usize) -> usize {
        self.rows.within(row..row + 1).map(|(_, begin)| begin).sum()
    }

    /// Place in rows of one that stands in tiles.
    pub(super) fn row_of(&self, place: usize) -> usize {
        self.tiles.within(place..place + 1).map(|(_, begin)| begin).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three hosts with some of five applications each.
    const MEMBERS: [u32; 9] = [0, 1, 4, 5, 6, 7, 8, 10, 13];
    const OF_HOST: [u32; 4] = [0, 3, 7, 9];

    #[test]
    fn a_tile_has_a_few_applications_of_every_host() {
        let order = Order::new(5, &MEMBERS, &OF_HOST, 2);
        let in_tiles: Vec<u32> = order.rows.iter().map(|row| MEMBERS[*row as usize]).collect();
        assert_eq!(in_tiles, [0, 1, 5, 6, 10, 7, 8, 13, 4]);
        assert_eq!(order.tiles, [0, 5, 8, 9]);
        let tiles = Tiles::new(&order);
        assert_eq!(tiles.all(&MEMBERS), in_tiles);
        assert_eq!(tiles.all_rows(&in_tiles), MEMBERS);
    }

    fn check_every_range(tiles: &Tiles, members: &[u32]) {
        let all = tiles.all(members);
        for begin in 0..=members.len() {
            for end in begin..=members.len() {
                let mut some = vec![99; end - begin];
                tiles.to_tiles(begin..end, members, &mut some);
                assert_eq!(some, all[begin..end]);
                tiles.to_rows(begin..end, &all, &mut some);
                assert_eq!(some, members[begin..end]);
            }
        }
        for row in 0..members.len() {
            assert_eq!(tiles.row_of(tiles.place_of(row)), row);
            assert_eq!(all[tiles.place_of(row)], members[row]);
        }
    }

    #[test]
    fn every_range_is_copied_there_and_back() {
        check_every_range(&Tiles::new(&Order::new(5, &MEMBERS, &OF_HOST, 2)), &MEMBERS);
        // More places than a mark is for, in pieces of seven and of one.
        let members: Vec<u32> = (0..150).filter(|member| member % 50 < 29).collect();
        for width in [1, 7] {
            let order = Order::new(50, &members, &[0, 29, 58, 87], width);
            check_every_range(&Tiles::new(&order), &members);
        }
    }
}
