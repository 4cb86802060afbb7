//! Rows `topk`: which applications get queue pairs of their own.
use crate::Output;
use crate::family::{Family, Spread};
use crate::rows::Topk;
use anyhow::{Context, Result};
use catchment_control::drum::format::Instance;
use catchment_control::drum::{
    Choice, Fifo, Fitter, Problem, Rotation, Score, Selector, SmallestFirst, TopK, Weight,
};

/// Periods of the rotation.
const PERIODS: usize = 2000;

pub(crate) fn run(output: &Output, instances: &[Instance], with_family: bool) -> Result<()> {
    for instance in instances.iter().filter(|instance| instance.kind.as_deref() == Some("topk")) {
        let problem = instance.problem()?;
        let k = instance.k.context("a top-k instance has its k")?;
        let floor = instance.x_floor.context("a top-k instance has its x_floor")?;
        let best = instance.optimum.as_ref().map(|optimum| optimum.objective);
        Case {
            output,
            name: &instance.id,
            problem: &problem,
            k,
            floors: vec![floor; instance.w.len()],
            best,
            beta_hat: None,
        }
        .run()?;
    }
    if !with_family {
        return Ok(());
    }
    for beta_hat in [1e-4, 0.01] {
        for alpha in [0.5, 1.0, 2.0, 5.0] {
            one_host(output, beta_hat, alpha)?;
            two_hosts(output, beta_hat, alpha)?;
        }
    }
    for alpha in [1.0, 2.0] {
        rotate(output, alpha)?;
    }
    Ok(())
}

fn draw(family: Family, beta_hat: f64) -> Problem {
    Family { spread: Spread::Decades, most_batch: 8, beta_hat, ..family }.draw()
}

fn floors(problem: &Problem, fraction: f64) -> Vec<f64> {
    let m = problem.applications;
    (0..problem.weights.len())
        .map(|at| fraction * problem.send_capacity[at / m] / m as f64)
        .collect()
}

/// Calls `visit` with every set of `k` of `m`.
fn sets(m: usize, k: usize) -> Vec<Vec<usize>> {
    let members = |set: u32| (0..m).filter(|at| set >> at & 1 == 1).collect();
    (0_u32..1 << m).filter(|set| set.count_ones() as usize == k).map(members).collect()
}

fn one_host(output: &Output, beta_hat: f64, alpha: f64) -> Result<()> {
    for seed in 0..if output.full { 30 } else { 4 } {
        let problem = draw(Family::new(1, 12, alpha, 0, 300 + seed), beta_hat);
        let name = format!("family-topk-one-seed{}", 300 + seed);
        let floors = floors(&problem, 0.02);
        let case = Case {
            output,
            name: &name,
            problem: &problem,
            k: 4,
            floors,
            best: None,
            beta_hat: Some(beta_hat),
        };
        let all: Vec<_> = sets(12, 4).into_iter().map(|set| vec![set]).collect();
        case.brute_force(all)?.run()?;
    }
    Ok(())
}

fn two_hosts(output: &Output, beta_hat: f64, alpha: f64) -> Result<()> {
    for seed in 0..if output.full { 10 } else { 2 } {
        let problem = draw(Family::new(2, 6, alpha, 1, 100 + seed), beta_hat);
        let name = format!("family-topk-two-seed{}", 100 + seed);
        let floors = floors(&problem, 0.05);
        let case = Case {
            output,
            name: &name,
            problem: &problem,
            k: 3,
            floors,
            best: None,
            beta_hat: Some(beta_hat),
        };
        let of_host = sets(6, 3);
        let pairs = of_host.iter().flat_map(|a| of_host.iter().map(|b| vec![a.clone(), b.clone()]));
        let pairs: Vec<_> = pairs.collect();
        case.brute_force(pairs)?.run()?;
    }
    Ok(())
}

struct Case<'a> {
    output: &'a Output,
    name: &'a str,
    problem: &'a Problem,
    k: usize,
    floors: Vec<f64>,
    /// The objective of the best set of all.
    best: Option<f64>,
    beta_hat: Option<f64>,
}

impl Case<'_> {
    fn topk(&self) -> Result<TopK<'_>> {
        let all = self.problem.weights.len();
        let sizes = (0..all).map(|at| ((at * 7) % all) as f64).collect();
        Ok(TopK::new(self.problem, self.k, self.floors.clone(), (0..all as u64).collect(), sizes)?)
    }

    fn brute_force(mut self, sets: Vec<Vec<Vec<usize>>>) -> Result<Self> {
        let mut best = f64::NEG_INFINITY;
        for set in sets {
            best = best.max(self.topk()?.solve(&set)?.0.objective.value());
        }
        self.best = Some(best);
        Ok(self)
    }

    fn run(&self) -> Result<()> {
        let topk = self.topk()?;
        let selectors: [&dyn Selector; 4] = [&Score, &Weight, &Fifo, &SmallestFirst];
        for selector in selectors {
            let choice = topk.choose(selector)?;
            self.output.row(&self.row(selector.name(), &choice)?)?;
        }
        Ok(())
    }

    /// Gaps are fractions of what the best set gains over nobody being chosen.
    fn row(&self, selector: &'static str, choice: &Choice) -> Result<Topk> {
        let none = Fitter::new(self.problem)?.fit(&self.floors).value();
        let value = choice.solution.objective.value();
        let best = self.best.unwrap_or(value).max(value);
        let fraction = |gap: f64| gap / (best - none);
        Ok(Topk {
            what: "topk",
            instance: self.name.to_owned(),
            active: Some(choice.active.clone()),
            objective: Some(value),
            n: self.problem.hosts,
            m: self.problem.applications,
            k: self.k,
            alpha: self.problem.alpha,
            beta_hat: self.beta_hat,
            selector,
            gap: self.best.map(|_| fraction(best - value)),
            bound_gap: choice.bound.is_finite().then(|| fraction(choice.bound - value)),
            unserved: None,
        })
    }
}

fn rotate(output: &Output, alpha: f64) -> Result<()> {
    let (m, k) = (200, 20);
    let problem = Family { beta_hat: 1e-9, ..Family::new(1, m, alpha, 0, 5) }.draw();
    let topk =
        TopK::new(&problem, k, floors(&problem, 0.02), (0..m as u64).collect(), vec![1.0; m])?;
    let mut rotation = Rotation::new(&problem);
    let mut served = vec![false; m];
    for _ in 0..if output.full { PERIODS } else { PERIODS / 4 } {
        let choice = topk.choose(&rotation)?;
        choice.active[0].iter().for_each(|at| served[*at] = true);
        rotation.observe(&choice.solution.x);
    }
    output.row(&Topk {
        what: "topk",
        instance: "family-rotation-seed5".to_owned(),
        active: None,
        objective: None,
        n: 1,
        m,
        k,
        alpha,
        beta_hat: Some(1e-9),
        selector: rotation.name(),
        gap: None,
        bound_gap: None,
        unserved: Some(served.iter().filter(|served| !**served).count()),
    })
}
