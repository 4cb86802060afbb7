//! What rounds go on from: rates, completions, prices and edge values of all hosts, and what threads work with.
use super::chunks::CHUNK;
use super::fill::Price;
use super::layout::Layout;
use super::real::Real;
use super::step::{Receiver, Scratch, Sender, Told};

/// What arrives of the messages of a round: for each edge whether its message, and its reply, was lost.
pub(super) struct Lost {
    pub(super) messages: Vec<bool>,
    pub(super) replies: Vec<bool>,
}

/// What a sender holds of each edge when replies can be lost, and a receiver when messages can.
#[derive(Clone, Debug)]
pub(super) struct Copies<T> {
    pub(super) told: Vec<Told<T>>,
    pub(super) inverse: Vec<T>,
}

/// What a receiver has ready for all its edges.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready<T> {
    /// How far the price moved: edge values have yet to follow.
    pub(super) moved: T,
    pub(super) price: T,
    pub(super) flatness: T,
    pub(super) curvature: T,
}

impl<T: Real> Ready<T> {
    /// What an edge is told.
    #[inline(always)]
    pub(super) fn told(self, value: T) -> Told<T> {
        let Self { price, flatness, curvature, .. } = self;
        Told { price, value, flatness, curvature }
    }
}

/// Residuals of a round (Boyd and others, Distributed Optimization and Statistical Learning via the
/// Alternating Direction Method of Multipliers, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Residuals {
    /// `||P x - z||`, its positive part where completions may be left unused.
    pub primal: f64,
    /// `||r (z - z of the round before)||`.
    pub dual: f64,
    /// The larger of both, as fractions of `||P x||`, `||z||` and of `||Y||`.
    pub relative: f64,
}

/// Squares of what a host's residuals are made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Norms {
    pub(super) primal: f64,
    pub(super) dual: f64,
    pub(super) used: f64,
    pub(super) given: f64,
    pub(super) price: f64,
}

impl Norms {
    /// Adds those of all hosts, always in the same order.
    pub(super) fn residuals(hosts: &[Self]) -> Residuals {
        let mut all = Self::default();
        for host in hosts {
            all.primal += host.primal;
            all.dual += host.dual;
            all.used += host.used;
            all.given += host.given;
            all.price += host.price;
        }
        let relative = (all.primal.sqrt() / all.used.max(all.given).sqrt())
            .max(all.dual.sqrt() / all.price.sqrt().max(1e-30));
        Residuals { primal: all.primal.sqrt(), dual: all.dual.sqrt(), relative }
    }
}

/// What does not change within an epoch, in the precision of the rounds.
#[derive(Clone, Debug)]
pub(super) struct Fixed<T> {
    /// Over senders: their weights, the least rate that a curvature is taken at, and 1 over `alpha w` and over what is
    /// `shared`.
    pub(super) weights: Vec<T>,
    pub(super) x_floor: Vec<T>,
    pub(super) flat: Vec<T>,
    /// Over senders, in tiles: `KAPPA / sum of completions`.
    pub(super) shared: Vec<T>,
    /// Over receivers: the least completions that a curvature is taken at, and 1 over the number of edges.
    pub(super) z_floor: Vec<T>,
    pub(super) spread: Vec<T>,
    /// Over edges.
    pub(super) completions: Vec<T>,
}

/// What belongs to the edges of a chunk, and to a block.
#[derive(Clone, Debug)]
pub(super) struct SweepScratch<T> {
    /// Over the edges of a chunk: what they are told.
    pub(super) told: Vec<Ready<T>>,
    pub(super) value: Vec<T>,
    /// What the edge has of its sender's stiffness.
    pub(super) own: Vec<T>,
    /// Over the senders of a chunk: their coefficients, their stiffness, and their rates.
    pub(super) a: Vec<T>,
    pub(super) b: Vec<T>,
    pub(super) stiffness: Vec<T>,
    pub(super) sums: Vec<T>,
    pub(super) x: Vec<T>,
    /// Over the receivers of a block.
    pub(super) ready: Vec<Ready<T>>,
}

impl<T: Real> SweepScratch<T> {
    pub(super) fn new(layout: &Layout) -> Self {
        let row = || vec![T::default(); layout.widest_chunk()];
        let senders = || vec![T::default(); CHUNK];
        Self {
            told: vec![Ready::default(); layout.widest_chunk()],
            value: row(),
            own: row(),
            a: senders(),
            b: senders(),
            stiffness: senders(),
            sums: senders(),
            x: senders(),
            ready: vec![Ready::default(); layout.widest_block()],
        }
    }
}

/// What one thread works with.
#[derive(Clone, Debug)]
pub(super) struct Hand<T> {
    pub(super) rows: Scratch<T>,
    pub(super) sweep: SweepScratch<T>,
    /// Passes over rates and over completions in this round.
    pub(super) passes: [usize; 2],
}

/// The state of all hosts.
#[derive(Clone, Debug)]
pub(super) struct Rounds<T> {
    /// Over senders.
    pub(super) x: Vec<T>,
    /// Their part of the penalties of their edges.
    pub(super) stiffness: Vec<T>,
    /// Over hosts.
    pub(super) sending: Vec<Price>,
    pub(super) completing: Vec<Price>,
    pub(super) norms: Vec<Norms>,
    /// Over receivers.
    pub(super) z: Vec<T>,
    pub(super) y: Vec<T>,
    pub(super) ready: Vec<Ready<T>>,
    /// Sums of the edge values where completions may be left unused; else `z`.
    pub(super) given: Vec<T>,
    /// Penalties of hosts alone.
    pub(super) rho: Vec<T>,
    /// Over edges: relaxed messages, from which edge values follow once the price has moved.
    pub(super) values: Vec<T>,
    pub(super) inverse: Vec<T>,
    /// Over senders and receivers, in tiles.
    pub(super) slopes: Vec<Sender<T>>,
    pub(super) sums: Vec<Receiver<T>>,
    pub(super) fixed: Fixed<T>,
    pub(super) copies: Option<Copies<T>>,
    /// Rounds of this epoch.
    pub(super) round: usize,
    pub(super) passes: [usize; 2],
    pub(super) hands: Vec<Hand<T>>,
}
