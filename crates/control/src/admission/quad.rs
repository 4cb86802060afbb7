//! Heaps of numbers with four below each: half as many lines of the cache to look at as with two.

/// Puts `entry` at a place that is free, or above; `put` is told where each goes that moves.
pub(super) fn rise(
    heap: &mut [u128],
    mut place: usize,
    entry: u128,
    mut put: impl FnMut(u128, usize),
) {
    while place > 0 {
        let above = heap[(place - 1) / 4];
        if above <= entry {
            break;
        }
        heap[place] = above;
        put(above, place);
        place = (place - 1) / 4;
    }
    heap[place] = entry;
    put(entry, place);
}

/// Puts `entry` at a place that is free, or below.
pub(super) fn sink(
    heap: &mut [u128],
    mut place: usize,
    entry: u128,
    mut put: impl FnMut(u128, usize),
) {
    loop {
        let first = 4 * place + 1;
        let (least, at) = match heap.get(first..first + 4) {
            Some(&[a, b, c, d]) => {
                let (left, right) =
                    ((a, first).min((b, first + 1)), (c, first + 2).min((d, first + 3)));
                left.min(right)
            }
            _ => {
                let rest = heap.get(first..).unwrap_or_default().iter().copied();
                let Some(least) = rest.zip(first..).min() else { break };
                least
            }
        };
        if entry <= least {
            break;
        }
        heap[place] = least;
        put(least, place);
        place = at;
    }
    heap[place] = entry;
    put(entry, place);
}

/// Takes out what is at a place; returns it.
pub(super) fn take(heap: &mut Vec<u128>, place: usize, put: impl FnMut(u128, usize)) -> u128 {
    let entry = heap.swap_remove(place);
    if let Some(moved) = heap.get(place).copied() {
        if moved < entry {
            rise(heap, place, moved, put);
        } else {
            sink(heap, place, moved, put);
        }
    }
    entry
}
