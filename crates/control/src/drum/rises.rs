//! What receivers would be sent if prices rose, and every sender answered by its own elasticity.
use super::answer::{Answer, factor_at, steep_exponent};
use super::chunks::{CHUNK, Chunk};
use super::layout::{Layout, Part};
use super::model::Model;
use super::parts::{Arithmetic, each, from, take, widest};
use super::utility::Power;
use std::ops::Range;

/// How a sender answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Response {
    /// Its rate.
    pub(super) x: f64,
    /// 1 over the marginal utility.
    pub(super) inverse_marginal: f64,
    /// As in [`Answer`].
    pub(super) inverse_elasticity: f64,
    pub(super) offset: f64,
}

/// What a receiver is sent, and how that changes with its price.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) z: f64,
    pub(super) slope: f64,
}

/// Buffers, in tiles; nothing is allocated once they are made.
#[derive(Clone, Debug)]
pub(super) struct Rises {
    responses: Vec<Response>,
    loads: Vec<Load>,
    hands: Vec<Hand>,
}

/// Over those edges of a chunk whose receiver has a price.
#[derive(Clone, Debug)]
struct Hand {
    to: Vec<u32>,
    /// Completions, and times the price.
    completions: Vec<f64>,
    paid: Vec<f64>,
    x: Vec<f64>,
    inverse_marginal: Vec<f64>,
    inverse_elasticity: Vec<f64>,
    offset: Vec<f64>,
    parts: Vec<f64>,
    slopes: Vec<f64>,
}

struct Share<'a> {
    part: &'a Part,
    loads: &'a mut [Load],
    hand: &'a mut Hand,
}

impl Rises {
    pub(super) fn new(layout: &Layout) -> Self {
        let edges = layout.widest_chunk();
        let hand = |_: &Part| Hand {
            to: vec![0; edges],
            completions: vec![0.0; edges],
            paid: vec![0.0; edges],
            x: vec![0.0; edges],
            inverse_marginal: vec![0.0; edges],
            inverse_elasticity: vec![0.0; edges],
            offset: vec![0.0; edges],
            parts: vec![0.0; edges],
            slopes: vec![0.0; edges],
        };
        Self {
            responses: vec![Response::default(); layout.senders.len()],
            loads: vec![Load::default(); layout.receivers.len()],
            hands: layout.parts.iter().map(hand).collect(),
        }
    }

    /// Finds how each sender answers, from its rate and from what its completions are worth, in tiles.
    pub(super) fn set<P: Power>(
        &mut self,
        model: &Model,
        power: P,
        x: &[f64],
        completions: &[f64],
    ) {
        let mut rest = &mut self.responses[..];
        let shares = model.layout.parts.iter().map(|part| {
            let responses = take(&mut rest, part.edges.senders.len());
            Responding { part, model, power, x, completions, responses }
        });
        each(shares, widest);
    }

    /// Replaces the sum of each sender's prices, in tiles, by its rate then.
    pub(super) fn answer(&self, layout: &Layout, rises: &mut [f64], alpha: f64) {
        let mut rest = rises;
        let steepest = 1.0 / steep_exponent(alpha);
        let shares = layout.parts.iter().map(|part| {
            let senders = part.edges.senders.clone();
            let rises = take(&mut rest, senders.len());
            Answering { rises, responses: &self.responses[senders], steepest }
        });
        each(shares, widest);
    }

    /// Finds what each receiver that has a price, of at least 0, would be sent; at `first` no price has risen. Prices stand in
    /// tiles.
    pub(super) fn load(&mut self, model: &Model, prices: &[f64], first: bool) {
        let responses = &self.responses;
        let steepest = 1.0 / steep_exponent(model.alpha);
        let mut loads = &mut self.loads[..];
        let shares = model.layout.parts.iter().zip(&mut self.hands).map(|(part, hand)| {
            let loads = take(&mut loads, part.edges.receivers.len());
            Loading {
                share: Share { part, loads, hand },
                model,
                prices,
                responses,
                steepest,
                first,
            }
        });
        each(shares, widest);
    }

    /// Copies what the receivers of a host would be sent.
    pub(super) fn row(&self, layout: &Layout, receivers: Range<usize>, into: &mut [Load]) {
        layout.receiving.to_rows(receivers, &self.loads, into);
    }
}

/// How the senders of one part answer.
struct Responding<'a, P> {
    part: &'a Part,
    model: &'a Model,
    power: P,
    x: &'a [f64],
    completions: &'a [f64],
    responses: &'a mut [Response],
}

impl<P: Power> Arithmetic for Responding<'_, P> {
    #[inline(always)]
    fn compute(self) {
        let Self { part, model, power, x, completions, responses } = self;
        let layout = &model.layout;
        let (mut rates, mut weights) = ([0.0; CHUNK], [0.0; CHUNK]);
        for chunk in layout.chunks(&part.edges) {
            layout.sending.to_tiles(chunk.senders.clone(), x, &mut rates);
            layout.sending.to_tiles(chunk.senders.clone(), &model.weights, &mut weights);
            let own = from(part.edges.senders.start, chunk.senders.clone());
            let of_senders = rates.iter().zip(&weights).zip(&completions[chunk.senders]);
            for (((x, weight), completion), response) in of_senders.zip(&mut responses[own]) {
                let rate = weight * power.of_inverse(1.0 / x);
                let answer = Answer::new(power.alpha(), rate, *completion);
                *response = Response {
                    x: *x,
                    inverse_marginal: 1.0 / (rate + completion),
                    inverse_elasticity: answer.inverse_elasticity,
                    offset: answer.offset,
                };
            }
        }
    }
}

/// The rates of one part's senders, once prices have risen.
struct Answering<'a> {
    rises: &'a mut [f64],
    responses: &'a [Response],
    steepest: f64,
}

impl Arithmetic for Answering<'_> {
    #[inline(always)]
    fn compute(self) {
        let Self { rises, responses, steepest } = self;
        for (rise, response) in rises.iter_mut().zip(responses) {
            let &Response { x, inverse_marginal, inverse_elasticity, offset } = response;
            let ratio = 1.0 + *rise * inverse_marginal;
            let factor = factor_at(ratio, inverse_elasticity, offset, steepest).0;
            *rise = x * if *rise > 0.0 { factor } else { 1.0 };
        }
    }
}

/// What the edges of one part would carry.
struct Loading<'a> {
    share: Share<'a>,
    model: &'a Model,
    prices: &'a [f64],
    responses: &'a [Response],
    steepest: f64,
    first: bool,
}

impl Arithmetic for Loading<'_> {
    #[inline(always)]
    fn compute(self) {
        let Self { share, model, prices, responses, steepest, first } = self;
        let Share { part, loads, hand } = share;
        let layout = &model.layout;
        let prices = &prices[part.edges.receivers.clone()];
        loads.fill(Load::default());
        for chunk in layout.chunks(&part.edges) {
            let completions = &model.completions[chunk.edges.clone()];
            let to = (&layout.to[chunk.edges.clone()], part.edges.receivers.start);
            let responses = &responses[chunk.senders.clone()];
            let count = hand.pick(&chunk, responses, to, completions, prices);
            hand.answer(count, steepest, first);
            for at in 0..count {
                let load = &mut loads[hand.to[at] as usize];
                load.z += hand.parts[at];
                load.slope -= hand.slopes[at];
            }
        }
    }
}

impl Hand {
    /// Picks the edges whose receivers have a price; returns how many.
    #[inline(always)]
    fn pick(
        &mut self,
        chunk: &Chunk<'_>,
        responses: &[Response],
        (to, first_receiver): (&[u32], usize),
        completions: &[f64],
        prices: &[f64],
    ) -> usize {
        let mut count = 0;
        for slot in chunk.slots() {
            for (at, response) in slot.zip(responses) {
                let receiver = to[at] as usize - first_receiver;
                let price = prices[receiver];
                // What is not picked is written over by the next.
                self.to[count] = receiver as u32;
                self.completions[count] = completions[at];
                self.paid[count] = completions[at] * price;
                self.x[count] = response.x;
                self.inverse_marginal[count] = response.inverse_marginal;
                self.inverse_elasticity[count] = response.inverse_elasticity;
                self.offset[count] = response.offset;
                count += usize::from(price >= 0.0);
            }
        }
        count
    }

    /// Finds what the picked edges would carry, and how that falls with the price.
    #[inline(always)]
    fn answer(&mut self, count: usize, steepest: f64, first: bool) {
        let (completions, paid) = (&self.completions[..count], &self.paid[..count]);
        let (x, inverse) = (&self.x[..count], &self.inverse_marginal[..count]);
        let (elasticity, offset) = (&mut self.inverse_elasticity[..count], &self.offset[..count]);
        let (parts, slopes) = (&mut self.parts[..count], &mut self.slopes[..count]);
        if first {
            for at in 0..count {
                parts[at] = completions[at] * x[at];
            }
        } else {
            for at in 0..count {
                let ratio = 1.0 + paid[at] * inverse[at];
                let (factor, found) = factor_at(ratio, elasticity[at], offset[at], steepest);
                elasticity[at] = found;
                parts[at] = completions[at] * x[at] * factor;
            }
        }
        for at in 0..count {
            let ratio = 1.0 + paid[at] * inverse[at];
            slopes[at] = parts[at] * elasticity[at] * completions[at] * inverse[at] / ratio;
        }
    }
}
