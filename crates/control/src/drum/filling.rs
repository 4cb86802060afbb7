//! Max-min fairness, alpha without bound: progressive filling.
use super::flow::Flow;
use super::model::{Model, used};
use super::problem::{Problem, ProblemError};
use std::num::NonZero;

const BISECTIONS: usize = 200;

/// Returns the rates that are max-min fair in `x / weight`, in Mops, host by host; `alpha` and `beta` do
/// not count.
///
/// All rates rise together until a capacity is full; who uses it stays there, and the others go on.
/// It needs all hosts at one place: between hosts, choose an alpha of 5.
///
/// # Errors
/// As [`Problem::check`], any alpha being good.
pub fn max_min(problem: &Problem) -> Result<Vec<f64>, ProblemError> {
    let model = Model::new(&Problem { alpha: 1.0, ..problem.clone() }, NonZero::<usize>::MIN)?;
    let mut filling = Filling::new(&model);
    while filling.rise() {}
    let mut rates = vec![0.0; problem.weights.len()];
    for (sender, x) in model.layout.senders.iter().zip(&filling.x) {
        rates[*sender as usize] = x * model.scale;
    }
    Ok(rates)
}

struct Filling<'a> {
    model: &'a Model,
    x: Vec<f64>,
    z: Vec<f64>,
    flow: Flow,
    settled: Vec<bool>,
    level: f64,
}

impl<'a> Filling<'a> {
    fn new(model: &'a Model) -> Self {
        let count = model.layout.senders.len();
        let z = vec![0.0; model.layout.receivers.len()];
        let flow = Flow::new(&model.layout);
        Self { model, x: vec![0.0; count], z, flow, settled: vec![false; count], level: 0.0 }
    }

    fn limit(&self, sender: usize) -> f64 {
        self.model.limits.as_ref().map_or(f64::INFINITY, |limits| limits[sender])
    }

    /// Sets who is not settled to `level`, and calls `full` with each capacity that does not fit: its
    /// host, and whether it is that of completions.
    fn try_level(&mut self, level: f64, mut full: impl FnMut(usize, bool)) {
        for sender in 0..self.x.len() {
            if !self.settled[sender] {
                self.x[sender] = (self.model.weights[sender] * level).min(self.limit(sender));
            }
        }
        let model = self.model;
        self.flow.complete(model, &self.x, &mut self.z);
        for host in 0..model.layout.hosts {
            let row = &self.x[model.layout.sent_by(host)];
            if used(model.send_row(host), row.len(), |at| row[at]) > model.send_capacity[host] {
                full(host, false);
            }
            let row = &self.z[model.layout.received_by(host)];
            if used(model.completion_row(host), row.len(), |at| row[at])
                > model.completion_capacity[host]
            {
                full(host, true);
            }
        }
    }

    fn fits(&mut self, level: f64) -> bool {
        let mut fits = true;
        self.try_level(level, |_, _| fits = false);
        fits
    }

    /// Raises all to the next level at which somebody settles; returns whether anybody is left.
    fn rise(&mut self) -> bool {
        if self.settled.iter().all(|settled| *settled) {
            return false;
        }
        let (mut low, mut high) = (self.level, (2.0 * self.level).max(1e-6));
        while self.fits(high) && high < 1e40 {
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if self.fits(middle) { low = middle } else { high = middle }
        }
        let mut full = Vec::new();
        self.try_level(high, |host, completions| full.push((host, completions)));
        let settles: Vec<bool> = (0..self.x.len()).map(|sender| self.uses(sender, &full)).collect();
        self.try_level(low, |_, _| ());
        for (sender, settles) in settles.into_iter().enumerate() {
            self.settled[sender] |=
                settles || self.x[sender] >= self.limit(sender) || full.is_empty();
        }
        self.level = low;
        true
    }

    fn uses(&self, sender: usize, full: &[(usize, bool)]) -> bool {
        let layout = &self.model.layout;
        let edges = layout.out(layout.sending.place_of(sender));
        let completions = edges.map(|edge| layout.receiving.row_of(layout.to[edge] as usize));
        let mut hosts = completions.map(|to| (layout.host_of_receiver(to), true));
        full.contains(&(layout.host_of_sender(sender), false))
            || hosts.any(|host| full.contains(&host))
    }
}
