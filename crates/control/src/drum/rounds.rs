//! Rounds of all hosts: every sender's step, the messages, every receiver's step, the replies.
use super::fill::Price;
use super::flow::{Flow, add_worth};
use super::layout::{Layout, Part};
use super::model::Model;
use super::own::Own;
use super::parts::{each, widest};
use super::real::Real;
use super::rows::{EachHost, Flatten, HostStep, Receive, Send, Stiffen};
use super::start::Point;
use super::state::{Copies, Fixed, Hand, Lost, Norms, Ready, Residuals, Rounds, SweepScratch};
use super::step::{CLIP, KAPPA, RENEWALS, Receiver, Scratch, Sender};
use super::sweep::{Deliver, Gather};
use super::utility::Power;

fn narrow<T: Real>(values: &[f64]) -> Vec<T> {
    values.iter().map(|value| T::of(*value)).collect()
}

impl<T: Real> Fixed<T> {
    fn new(model: &Model, point: &Point, flow: &mut Flow) -> Self {
        let layout = &model.layout;
        let ones = vec![1.0; layout.receivers.len()];
        flow.fold(model, &ones, 0.0, add_worth);
        let shared = flow.senders_mut();
        shared.iter_mut().for_each(|sum| *sum = KAPPA / sum.max(1e-300));
        let shared_tiles = narrow(shared);
        let shared = layout.sending.all_rows(shared);
        let flat = shared.iter().zip(&model.weights);
        let flat = flat.map(|(shared, weight)| T::of(1.0 / (shared * model.alpha * weight)));
        let spread = |to| T::of(1.0 / f64::from(layout.incoming(to)));
        let clip = |values: &[f64]| {
            let floor = |value: &f64| (T::of(CLIP) * T::of(*value)).or_larger(T::of(1e-12));
            values.iter().map(floor).collect()
        };
        Self {
            weights: narrow(&model.weights),
            x_floor: clip(&point.x),
            flat: flat.collect(),
            shared: shared_tiles,
            z_floor: clip(&point.z),
            spread: (0..layout.receivers.len()).map(spread).collect(),
            completions: narrow(&model.completions),
        }
    }
}

impl<T: Real> Rounds<T> {
    /// Begins at a point; `flow` are buffers.
    pub(super) fn new(model: &Model, point: &Point, flow: &mut Flow) -> Self {
        let layout = &model.layout;
        let (edges, senders) = (layout.edge_count(), layout.senders.len());
        let receivers = layout.receivers.len();
        let hand = |_: &Part| Hand {
            rows: Scratch::new(layout.widest()),
            sweep: SweepScratch::new(layout),
            passes: [0; 2],
        };
        let mut rounds = Self {
            x: narrow(&point.x),
            stiffness: vec![T::default(); senders],
            sending: point.sending.clone(),
            completing: point.completing.clone(),
            norms: vec![Norms::default(); layout.hosts],
            z: narrow(&point.z),
            y: narrow(&point.y),
            ready: vec![Ready::default(); receivers],
            given: Vec::new(),
            rho: vec![T::default(); if layout.one_sided { senders } else { 0 }],
            values: vec![T::default(); edges],
            inverse: vec![T::default(); edges],
            slopes: vec![Sender::default(); senders],
            sums: vec![Receiver::default(); receivers],
            fixed: Fixed::new(model, point, flow),
            copies: None,
            round: 0,
            passes: [0; 2],
            hands: layout.parts.iter().map(hand).collect(),
        };
        rounds.begin(model, point);
        rounds
    }

    /// Gives every edge what it carries at a point.
    fn begin(&mut self, model: &Model, point: &Point) {
        let layout = &model.layout;
        let x = layout.sending.all(&point.x);
        let mut given = vec![T::default(); self.z.len()];
        for chunk in layout.all_chunks() {
            for slot in chunk.slots() {
                let edges = chunk.edges.start + slot.start..chunk.edges.start + slot.end;
                for (edge, x) in edges.zip(&x[chunk.senders.clone()]) {
                    self.values[edge] = T::of(model.completions[edge] * x);
                    given[layout.to[edge] as usize] += self.values[edge];
                }
            }
        }
        self.given = layout.receiving.all_rows(&given);
        self.prepare(model);
    }

    /// Makes ready what the edges read, from prices and completions.
    fn prepare(&mut self, model: &Model) {
        for (ready, price) in self.ready.iter_mut().zip(&self.y) {
            (ready.moved, ready.price) = (T::default(), *price);
        }
        self.on_rows(&model.layout, Flatten { model });
    }

    /// Whether copies for losses are kept.
    pub(super) fn expects_losses(&self) -> bool {
        self.copies.is_some()
    }

    /// Keeps, from now on, what each side was told last, so that messages can be lost.
    pub(super) fn expect_losses(&mut self, model: &Model) {
        if model.layout.one_sided && model.is_plain() {
            // Rounds of a host alone have kept neither.
            self.values.copy_from_slice(&self.z);
            self.rho.iter().zip(&mut self.inverse).for_each(|(rho, inverse)| {
                *inverse = if *rho > T::default() { T::of(1.0) / *rho } else { T::default() };
            });
            self.prepare(model);
        }
        let inverse = self.inverse.clone();
        let ready = self.follow_prices(model, &inverse);
        let told = model.layout.to.iter().zip(&self.values);
        let told = told.map(|(to, value)| ready[*to as usize].told(*value)).collect();
        self.copies = Some(Copies { told, inverse: vec![T::default(); inverse.len()] });
    }

    /// Moves all edge values after their prices; returns what receivers have ready, in tiles.
    fn follow_prices(&mut self, model: &Model, inverse: &[T]) -> Vec<Ready<T>> {
        let ready = model.layout.receiving.all(&self.ready);
        for ((value, to), inverse) in self.values.iter_mut().zip(&model.layout.to).zip(inverse) {
            *value = *value - ready[*to as usize].moved * *inverse;
        }
        self.ready.iter_mut().for_each(|ready| ready.moved = T::default());
        ready
    }

    /// One round of every host.
    pub(super) fn round<P: Power>(
        &mut self,
        model: &Model,
        power: P,
        lost: Option<&Lost>,
    ) -> Residuals {
        self.round += 1;
        let round = self.round;
        self.hands.iter_mut().for_each(|hand| hand.passes = [0; 2]);
        let layout = &model.layout;
        let renews = round <= RENEWALS + 1;
        if layout.one_sided && self.copies.is_none() && model.is_plain() {
            self.on_rows(layout, Own { model, power, renews });
        } else {
            if renews {
                self.on_rows(layout, Stiffen { model, power });
            }
            each(self.sweeps(layout), |sweep| widest(Gather { sweep, layout, renews }));
            self.on_rows(layout, Send { model, power });
            each(self.sweeps(layout), |sweep| widest(Deliver { sweep, layout, lost }));
            self.on_rows(layout, Receive { model, renews: round <= RENEWALS });
        }
        if let Some(lost) = lost {
            self.deliver_replies(model, lost);
        }
        let add =
            |all: [usize; 2], hand: &Hand<T>| [all[0] + hand.passes[0], all[1] + hand.passes[1]];
        self.passes = self.hands.iter().fold([0; 2], add);
        Norms::residuals(&self.norms)
    }

    fn deliver_replies(&mut self, model: &Model, lost: &Lost) {
        let Some(mut copies) = self.copies.take() else { return };
        let ready = self.follow_prices(model, &copies.inverse);
        let told = copies.told.iter_mut().zip(&lost.replies).zip(&model.layout.to);
        for (((told, lost), to), value) in told.zip(&self.values) {
            if !*lost {
                *told = ready[*to as usize].told(*value);
            }
        }
        self.copies = Some(copies);
    }

    /// Does a step of all hosts, each part on a thread of its own.
    fn on_rows(&mut self, layout: &Layout, step: impl HostStep<T>) {
        each(self.rows(layout), |rows| widest(EachHost { rows, step }));
    }

    /// The point where the rounds stand, in the units of another model of the same applications.
    pub(super) fn carry(&self, old: &Model, new: &Model) -> Point {
        let ratio = old.scale / new.scale;
        // A price is utility over rate: it scales as the marginal utility does.
        let price = ratio.powf(-new.alpha);
        let scale = |values: &[T], by: f64| values.iter().map(|value| value.wide() * by).collect();
        let prices = |prices: &[Price]| {
            let conic = price / ratio;
            let scaled =
                |now: &Price| Price { linear: now.linear * price, conic: now.conic * conic };
            prices.iter().map(scaled).collect()
        };
        Point {
            x: scale(&self.x, ratio),
            z: scale(&self.z, ratio),
            y: scale(&self.y, price),
            sending: prices(&self.sending),
            completing: prices(&self.completing),
        }
    }
}
