//! What edges carry from senders to receivers, and the worth of receivers back to senders, added up in `f64`.
use super::layout::{Layout, Part};
use super::model::Model;
use super::parts::{each, from, take};
use super::tiles::Tiles;
use std::ops::Range;

/// Buffers over senders and receivers, in tiles; nothing is allocated once they are made.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    senders: Vec<f64>,
    receivers: Vec<f64>,
}

/// What one thread has of the buffers.
struct Share<'a> {
    part: &'a Part,
    senders: &'a mut [f64],
    receivers: &'a mut [f64],
}

impl Flow {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            senders: vec![0.0; layout.senders.len()],
            receivers: vec![0.0; layout.receivers.len()],
        }
    }

    fn shares<'a>(&'a mut self, layout: &'a Layout) -> impl ExactSizeIterator<Item = Share<'a>> {
        let (mut senders, mut receivers) = (&mut self.senders[..], &mut self.receivers[..]);
        layout.parts.iter().map(move |part| Share {
            part,
            senders: take(&mut senders, part.edges.senders.len()),
            receivers: take(&mut receivers, part.edges.receivers.len()),
        })
    }

    /// `z = P x`.
    pub(super) fn complete(&mut self, model: &Model, x: &[f64], z: &mut [f64]) {
        let layout = &model.layout;
        each(self.shares(layout), |share| {
            let Share { part, senders, receivers } = share;
            layout.sending.to_tiles(part.edges.senders.clone(), x, senders);
            receivers.fill(0.0);
            let first = part.edges.receivers.start;
            for chunk in layout.chunks(&part.edges) {
                let completions = &model.completions[chunk.edges.clone()];
                let to = &layout.to[chunk.edges.clone()];
                let x = &senders[from(part.edges.senders.start, chunk.senders.clone())];
                for slot in chunk.slots() {
                    let (to, completions) = (&to[slot.clone()], &completions[slot]);
                    for ((to, completions), x) in to.iter().zip(completions).zip(x) {
                        receivers[*to as usize - first] += completions * x;
                    }
                }
            }
        });
        let of_part = |part: &Part| layout.received_by_all(part.hosts.clone());
        copy_rows(layout, &layout.receiving, of_part, &self.receivers, z);
    }

    /// Copies what each receiver is worth to tiles.
    pub(super) fn copy_worth(&mut self, layout: &Layout, worth: &[f64]) {
        each(self.shares(layout), |share| {
            let receivers = share.part.edges.receivers.clone();
            layout.receiving.to_tiles(receivers, worth, share.receivers);
        });
    }

    /// Sets what belongs to each sender, in tiles, to what `fold` makes of `begin` and then of the completions and the worth of
    /// the receiver of each of its edges.
    pub(super) fn fold(
        &mut self,
        model: &Model,
        worth: &[f64],
        begin: f64,
        fold: impl Fn(f64, f64, f64) -> f64 + Sync,
    ) {
        let layout = &model.layout;
        self.copy_worth(layout, worth);
        each(self.shares(layout), |share| {
            let Share { part, senders, receivers } = share;
            let first = part.edges.receivers.start;
            senders.fill(begin);
            for chunk in layout.chunks(&part.edges) {
                let completions = &model.completions[chunk.edges.clone()];
                let to = &layout.to[chunk.edges.clone()];
                let own = from(part.edges.senders.start, chunk.senders.clone());
                let into = &mut senders[own];
                for slot in chunk.slots() {
                    let (to, completions) = (&to[slot.clone()], &completions[slot]);
                    for ((to, completions), into) in to.iter().zip(completions).zip(&mut *into) {
                        *into = fold(*into, *completions, receivers[*to as usize - first]);
                    }
                }
            }
        });
    }

    /// Copies what belongs to senders to rows.
    pub(super) fn copy_senders(&self, layout: &Layout, into: &mut [f64]) {
        let of_part = |part: &Part| layout.sent_by_all(part.hosts.clone());
        copy_rows(layout, &layout.sending, of_part, &self.senders, into);
    }

    pub(super) fn senders(&self) -> &[f64] {
        &self.senders
    }

    pub(super) fn senders_mut(&mut self) -> &mut [f64] {
        &mut self.senders
    }

    pub(super) fn receivers(&self) -> &[f64] {
        &self.receivers
    }
}

/// Copies tiles to rows, each part those of its hosts.
fn copy_rows(
    layout: &Layout,
    tiles: &Tiles,
    of_part: impl Fn(&Part) -> Range<usize>,
    from: &[f64],
    into: &mut [f64],
) {
    let mut rest = into;
    let rows = layout.parts.iter().map(|part| {
        let range = of_part(part);
        (range.clone(), take(&mut rest, range.len()))
    });
    each(rows, |(range, into)| tiles.to_rows(range, from, into));
}

/// Adds what an edge is worth to its sender, for [`Flow::fold`].
pub(super) fn add_worth(sum: f64, completions: f64, worth: f64) -> f64 {
    sum + completions * worth
}
