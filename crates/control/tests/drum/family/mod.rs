//! Problems drawn from the distributions of the project's numpy prototype, from a seed.
use catchment_control::drum::{Coupling, Edges, Preemption, Problem};

/// Chance from a seed (Steele and others, Fast splittable pseudorandom number generators).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x6a09_e667_f3bc_c908)
    }

    /// A number from 0 to below 1.
    pub(crate) fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.draw()
    }

    /// An index below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.draw() * count as f64) as usize
    }
}

/// How weights are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// 1, 2, 4 or 8.
    Powers,
    /// Over two decades.
    Decades,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) hosts: usize,
    pub(crate) applications: usize,
    pub(crate) alpha: f64,
    /// Destinations of each application besides its own host; 0: one-sided.
    pub(crate) degree: usize,
    pub(crate) spread: Spread,
    pub(crate) beta_hat: f64,
    /// Most requests for one completion.
    pub(crate) most_batch: usize,
    pub(crate) preempts: bool,
    pub(crate) limits: bool,
    pub(crate) coupling: Coupling,
    /// Fraction of the remote traffic that goes to so many hosts.
    pub(crate) hot: Option<(f64, usize)>,
    pub(crate) seed: u64,
}

impl Family {
    pub(crate) fn new(
        hosts: usize,
        applications: usize,
        alpha: f64,
        degree: usize,
        seed: u64,
    ) -> Self {
        Self {
            hosts,
            applications,
            alpha,
            degree,
            spread: Spread::Powers,
            beta_hat: 0.1,
            most_batch: 4,
            preempts: false,
            limits: false,
            coupling: Coupling::Equal,
            hot: None,
            seed,
        }
    }

    pub(crate) fn draw(&self) -> Problem {
        let mut chance = Chance::new(self.seed);
        let &Self { hosts, applications, alpha, .. } = self;
        let all = hosts * applications;
        let send_capacity: Vec<f64> = (0..hosts).map(|_| chance.between(20.0, 100.0)).collect();
        let completion_capacity: Vec<f64> =
            (0..hosts).map(|_| chance.between(15.0, 50.0)).collect();
        let weights = (0..all).map(|_| match self.spread {
            Spread::Powers => [1.0, 2.0, 4.0, 8.0][chance.below(4)],
            Spread::Decades => 10.0_f64.powf(chance.between(-1.0, 1.0)),
        });
        let weights = weights.collect();
        let edges = self.draw_edges(&mut chance);
        let share = |capacity: &f64| (capacity / applications as f64).powi(2) * self.beta_hat;
        let limits = (0..all).map(|at| {
            send_capacity[at / applications] / applications as f64
                * 10.0_f64.powf(chance.between(-0.7, 0.7))
        });
        let limits = self.limits.then(|| limits.collect());
        let mut preemption = || {
            let uncertain = |_| {
                let theta = chance.between(0.0, 0.6);
                if chance.draw() < 0.7 { theta } else { 0.0 }
            };
            let uncertain: Vec<f64> = (0..all).map(uncertain).collect();
            Preemption { reserved: uncertain.iter().map(|theta| 1.0 - theta).collect(), uncertain }
        };
        Problem {
            hosts,
            applications,
            alpha,
            weights,
            beta: completion_capacity.iter().map(share).collect(),
            send_preemption: self.preempts.then(&mut preemption),
            completion_preemption: self.preempts.then(&mut preemption),
            send_capacity,
            completion_capacity,
            edges,
            coupling: self.coupling,
            limits,
        }
    }

    fn draw_edges(&self, chance: &mut Chance) -> Edges {
        let &Self { hosts, applications, .. } = self;
        let batches: Vec<f64> = (0..hosts * applications)
            .map(|_| 1.0 / (1 + chance.below(self.most_batch)) as f64)
            .collect();
        let degree = self.degree.min(hosts - 1);
        let mut edges = Edges::default();
        for from in 0..hosts * applications {
            let (host, application) = (from / applications, from % applications);
            let mut targets: Vec<(usize, f64)> = Vec::new();
            let parts: Vec<f64> = (0..degree).map(|_| -(1.0 - chance.draw()).ln()).collect();
            let total: f64 = parts.iter().sum();
            for part in parts {
                let mut to = (host + 1 + chance.below(hosts - 1)) % hosts;
                if let Some((fraction, hot)) = self.hot {
                    let moves = chance.draw() < fraction;
                    let spot = chance.below(hot);
                    to = if moves { spot } else { to };
                    to = if to == host { (to + hot) % hosts } else { to };
                }
                match targets.iter_mut().find(|target| target.0 == to) {
                    Some(target) => target.1 += part / total,
                    None => targets.push((to, part / total)),
                }
            }
            targets.push((host, 1.0));
            for (to, part) in targets {
                let to = to * applications + application;
                edges.push(from, to, part * batches[to]);
            }
        }
        edges
    }
}
