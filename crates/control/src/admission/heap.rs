//! The transfers of a device that want something: a pairing heap (Fredman and others 1986) through the
//! transfers themselves, of which only the first matters.
use super::NONE;
use super::table::Transfers;
use super::transfer::Key;

/// Adds a transfer to the heap below `root`; returns the new root.
pub(super) fn insert(transfers: &mut Transfers, root: u32, at: u32, overtaking: bool) -> u32 {
    let links = &mut transfers[at].links;
    (links.child, links.sibling, links.before) = (NONE, NONE, NONE);
    if root == NONE { at } else { join(transfers, root, at, overtaking) }
}

/// Takes a transfer out that is in the heap below `root`; returns the new root.
pub(super) fn remove(transfers: &mut Transfers, root: u32, at: u32, overtaking: bool) -> u32 {
    let links = transfers[at].links;
    if at != root {
        let before = &mut transfers[links.before].links;
        if before.child == at {
            before.child = links.sibling;
        } else {
            before.sibling = links.sibling;
        }
        if links.sibling != NONE {
            transfers[links.sibling].links.before = links.before;
        }
    }
    let below = gather(transfers, links.child, overtaking);
    match (at == root, below) {
        (true, below) => below,
        (false, NONE) => root,
        (false, below) => join(transfers, root, below, overtaking),
    }
}

/// Joins two heaps.
fn join(transfers: &mut Transfers, one: u32, other: u32, overtaking: bool) -> u32 {
    let key = |at: u32| rank(transfers[at].key, overtaking);
    let (first, second) = if key(one) < key(other) { (one, other) } else { (other, one) };
    let child = std::mem::replace(&mut transfers[first].links.child, second);
    if child != NONE {
        transfers[child].links.before = second;
    }
    let links = &mut transfers[second].links;
    (links.sibling, links.before) = (child, first);
    first
}

/// Joins the heaps of a list, in pairs and then all.
fn gather(transfers: &mut Transfers, mut at: u32, overtaking: bool) -> u32 {
    let mut pairs = NONE;
    while at != NONE {
        let other = transfers[at].links.sibling;
        detach(transfers, at);
        let mut pair = at;
        at = NONE;
        if other != NONE {
            at = transfers[other].links.sibling;
            detach(transfers, other);
            pair = join(transfers, pair, other, overtaking);
        }
        transfers[pair].links.sibling = pairs;
        pairs = pair;
    }
    let mut root = NONE;
    while pairs != NONE {
        let next = transfers[pairs].links.sibling;
        detach(transfers, pairs);
        root = if root == NONE { pairs } else { join(transfers, root, pairs, overtaking) };
        pairs = next;
    }
    root
}

fn detach(transfers: &mut Transfers, at: u32) {
    let links = &mut transfers[at].links;
    (links.sibling, links.before) = (NONE, NONE);
}

/// Returns the place of a transfer among those of its device.
fn rank(key: Key, overtaking: bool) -> Key {
    if overtaking { key } else { key.in_turn() }
}

#[cfg(test)]
mod tests {
    use super::super::transfer::Transfer;
    use super::super::{ClassId, DeviceId, TransferId};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_root_is_the_first(
            keys in prop::collection::btree_set(0..1000_u64, 1..60),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
        ) {
            let (mut transfers, mut first) = (Transfers::new(), NONE);
            let (mut root, mut set) = (NONE, BTreeSet::new());
            for arrival in keys.into_iter().rev().enumerate().map(|(at, key)| key * 64 + at as u64) {
                let id = TransferId { device: DeviceId(0), number: arrival };
                let transfer = Transfer::new(id, ClassId(0), (0, 0), 1, arrival);
                let at = transfers.insert(transfer, &mut first);
                root = insert(&mut transfers, root, at, true);
                set.insert((transfers[at].key, at));
                prop_assert_eq!(root, set.first().unwrap().1);
            }
            for index in removed {
                let Some(one) = set.iter().nth(index.index(set.len().max(1))).copied() else { break };
                set.remove(&one);
                root = remove(&mut transfers, root, one.1, true);
                prop_assert_eq!(root, set.first().map_or(NONE, |(_, at)| *at));
            }
        }
    }
}
