//! Steps over edges, tile by tile: what arrives at senders, and at receivers.
//!
//! What belongs to the edges of some senders is first looked up into arrays of their
//! own: loops with arithmetic are then over whole slices, of which the compiler makes vectors.
use super::chunks::Chunk;
use super::layout::{Layout, Part};
use super::parts::{Arithmetic, from, take};
use super::real::Real;
use super::state::{Copies, Fixed, Lost, Ready, Rounds, SweepScratch};
use super::step::{self, Receiver, Sender, Told};
use std::ops::Range;

/// The edges of one part.
pub(super) struct Sweep<'a, T> {
    part: &'a Part,
    values: &'a mut [T],
    inverse: &'a mut [T],
    /// The inverse penalties that receivers have heard of, where messages can be lost.
    heard: &'a mut [T],
    /// Over senders and receivers of these edges, in tiles.
    slopes: &'a mut [Sender<T>],
    sums: &'a mut [Receiver<T>],
    scratch: &'a mut SweepScratch<T>,
    /// What the edges of all parts read.
    x: &'a [T],
    stiffness: &'a [T],
    ready: &'a [Ready<T>],
    fixed: &'a Fixed<T>,
    /// What senders were told last, where replies can be lost.
    told: Option<&'a [Told<T>]>,
}

impl<T: Real> Rounds<T> {
    /// The edges of each part.
    pub(super) fn sweeps<'a>(
        &'a mut self,
        layout: &'a Layout,
    ) -> impl ExactSizeIterator<Item = Sweep<'a, T>> {
        let [mut values, mut inverse] =
            [&mut self.values, &mut self.inverse].map(Vec::as_mut_slice);
        let (mut slopes, mut sums) = (&mut self.slopes[..], &mut self.sums[..]);
        let (x, stiffness) = (&self.x, &self.stiffness);
        let (ready, fixed) = (&self.ready, &self.fixed);
        let (told, mut heard) = match &mut self.copies {
            Some(Copies { told, inverse }) => (Some(&told[..]), &mut inverse[..]),
            None => (None, Default::default()),
        };
        layout.parts.iter().zip(&mut self.hands).map(move |(part, hand)| {
            let edges = part.edges.edges.len();
            Sweep {
                part,
                values: take(&mut values, edges),
                inverse: take(&mut inverse, edges),
                heard: take(&mut heard, edges),
                slopes: take(&mut slopes, part.edges.senders.len()),
                sums: take(&mut sums, part.edges.receivers.len()),
                scratch: &mut hand.sweep,
                x,
                stiffness,
                ready,
                fixed,
                told,
            }
        })
    }
}

/// [`Sweep::gather`].
pub(super) struct Gather<'a, T> {
    pub(super) sweep: Sweep<'a, T>,
    pub(super) layout: &'a Layout,
    pub(super) renews: bool,
}

impl<T: Real> Arithmetic for Gather<'_, T> {
    #[inline(always)]
    fn compute(mut self) {
        self.sweep.gather(self.layout, self.renews);
    }
}

/// [`Sweep::deliver`].
pub(super) struct Deliver<'a, T> {
    pub(super) sweep: Sweep<'a, T>,
    pub(super) layout: &'a Layout,
    pub(super) lost: Option<&'a Lost>,
}

impl<T: Real> Arithmetic for Deliver<'_, T> {
    #[inline(always)]
    fn compute(mut self) {
        self.sweep.deliver(self.layout, self.lost);
    }
}

impl<T: Real> Sweep<'_, T> {
    /// Edge values follow their prices, penalties are renewed if so asked, and senders gather their coefficients.
    #[inline(always)]
    fn gather(&mut self, layout: &Layout, renews: bool) {
        for block in layout.blocks(self.part) {
            let ready = &mut self.scratch.ready[..block.receivers.len()];
            layout.receiving.to_tiles(block.receivers.clone(), self.ready, ready);
            for chunk in layout.chunks(&block) {
                self.gather_chunk(layout, block.receivers.start, &chunk, renews);
            }
        }
    }

    #[inline(always)]
    fn gather_chunk(
        &mut self,
        layout: &Layout,
        first_receiver: usize,
        chunk: &Chunk<'_>,
        renews: bool,
    ) {
        let edges = chunk.edges.clone();
        let count = edges.len();
        let completions = &self.fixed.completions[edges.clone()];
        let own = from(self.part.edges.edges.start, edges.clone());
        let (values, inverse) = (&mut self.values[own.clone()], &mut self.inverse[own]);
        let scratch = &mut *self.scratch;
        let SweepScratch { told, ready, .. } = &mut *scratch;
        let told = &mut told[..count];
        for (told, to) in told.iter_mut().zip(&layout.to[edges.clone()]) {
            *told = ready[*to as usize - first_receiver];
        }
        for at in 0..count {
            values[at] = values[at] - told[at].moved * inverse[at];
        }
        if let Some(told) = self.told {
            scratch.recall(&told[edges]);
        }
        if renews {
            let senders = &chunk.senders;
            layout.sending.to_tiles(senders.clone(), self.stiffness, &mut scratch.stiffness);
            scratch.renew(chunk, &self.fixed.shared[senders.clone()], completions, inverse);
        }
        let slopes = &mut self.slopes[from(self.part.edges.senders.start, chunk.senders.clone())];
        let value = self.told.is_none().then_some(&*values);
        scratch.add_slopes(chunk, completions, (inverse, value), slopes);
    }

    /// Takes every message to its receiver; one that is lost leaves the edge as it was.
    #[inline(always)]
    fn deliver(&mut self, layout: &Layout, lost: Option<&Lost>) {
        let first_receiver = self.part.edges.receivers.start;
        self.sums.fill(Receiver::default());
        for chunk in layout.chunks(&self.part.edges) {
            let own = from(self.part.edges.edges.start, chunk.edges.clone());
            if lost.is_some() {
                self.scratch.value[..own.len()].copy_from_slice(&self.values[own.clone()]);
            }
            self.relax(layout, &chunk);
            if let Some(lost) = lost {
                self.lose(own.clone(), &lost.messages[chunk.edges.clone()]);
            }
            let heard = if lost.is_some() { &*self.heard } else { &*self.inverse };
            let sent = self.values[own.clone()].iter().zip(&heard[own]);
            for ((value, inverse), to) in sent.zip(&layout.to[chunk.edges]) {
                self.sums[*to as usize - first_receiver].add(*value, *inverse);
            }
        }
    }

    /// Over-relaxes what the senders of a chunk send.
    #[inline(always)]
    fn relax(&mut self, layout: &Layout, chunk: &Chunk<'_>) {
        let x = &mut self.scratch.x;
        layout.sending.to_tiles(chunk.senders.clone(), self.x, x);
        let completions = &self.fixed.completions[chunk.edges.clone()];
        let own = from(self.part.edges.edges.start, chunk.edges.clone());
        let values = &mut self.values[own];
        for slot in chunk.slots() {
            let (completions, x) = (&completions[slot.clone()], &x[..slot.len()]);
            let values = &mut values[slot];
            for at in 0..values.len() {
                values[at] = step::relax(completions[at] * x[at], values[at]);
            }
        }
    }

    /// Leaves edges whose messages are lost as they were, if their receivers have heard of them before.
    #[inline(always)]
    fn lose(&mut self, own: Range<usize>, messages: &[bool]) {
        let (values, heard) = (&mut self.values[own.clone()], &mut self.heard[own.clone()]);
        let (before, inverse) = (&self.scratch.value, &self.inverse[own]);
        for (at, lost) in messages.iter().enumerate() {
            if *lost && heard[at] > T::default() {
                values[at] = before[at];
            } else {
                heard[at] = inverse[at];
            }
        }
    }
}

impl<T: Real> SweepScratch<T> {
    /// Takes what was told last in place of what is ready.
    #[inline(always)]
    fn recall(&mut self, told: &[Told<T>]) {
        for (at, told) in told.iter().enumerate() {
            let &Told { price, value, flatness, curvature } = told;
            self.value[at] = value;
            self.told[at] = Ready { moved: T::default(), price, flatness, curvature };
        }
    }

    /// Renews the penalties of a chunk's edges.
    #[inline(always)]
    fn renew(&mut self, chunk: &Chunk<'_>, shared: &[T], completions: &[T], inverse: &mut [T]) {
        let count = chunk.senders.len();
        let stiffness = &self.stiffness[..count];
        let all = &mut self.sums[..count];
        all.copy_from_slice(stiffness);
        for slot in chunk.slots() {
            let (shared, all) = (&shared[..slot.len()], &mut all[..slot.len()]);
            let completions = &completions[slot.clone()];
            let (own, told) = (&mut self.own[slot.clone()], &self.told[slot]);
            for at in 0..own.len() {
                own[at] = shared[at] * completions[at] * completions[at] * told[at].curvature;
                all[at] += own[at];
            }
        }
        for slot in chunk.slots() {
            let (stiffness, all) = (&stiffness[..slot.len()], &all[..slot.len()]);
            let (completions, own) = (&completions[slot.clone()], &self.own[slot.clone()]);
            let (told, inverse) = (&self.told[slot.clone()], &mut inverse[slot]);
            for at in 0..inverse.len() {
                let elsewhere = step::stiffness_elsewhere(stiffness[at], all[at], own[at]);
                inverse[at] = step::inverse_penalty(elsewhere, completions[at], told[at].flatness);
            }
        }
    }

    /// Adds up the coefficients of each sender's minimisation, from the edge values that were recalled if none are given.
    #[inline(always)]
    fn add_slopes(
        &mut self,
        chunk: &Chunk<'_>,
        completions: &[T],
        (inverse, value): (&[T], Option<&[T]>),
        slopes: &mut [Sender<T>],
    ) {
        let count = chunk.senders.len();
        let value = value.unwrap_or(&self.value);
        let (a, b) = (&mut self.a[..count], &mut self.b[..count]);
        a.fill(T::default());
        b.fill(T::default());
        for slot in chunk.slots() {
            let (a, b) = (&mut a[..slot.len()], &mut b[..slot.len()]);
            let (completions, inverse) = (&completions[slot.clone()], &inverse[slot.clone()]);
            let (told, value) = (&self.told[slot.clone()], &value[slot]);
            for at in 0..a.len() {
                let rho = T::of(1.0) / inverse[at];
                let (own_a, own_b) =
                    step::edge_slopes(rho, completions[at], told[at].price, value[at]);
                a[at] += own_a;
                b[at] += own_b;
            }
        }
        for at in 0..count {
            slopes[at] = Sender { a: a[at], b: b[at] };
        }
    }
}
