//! Checks of a problem: what passes here, every solver ends on.
use super::problem::{Preemption, Problem, ProblemError};

/// Largest value of any input: squares of it, and powers up to alpha, stay numbers.
const MOST: f64 = 1e15;
/// Smallest value of what must be above 0.
const LEAST: f64 = 1e-12;
const ABOVE: &str = "at least 1e-12 and at most 1e15";
const FROM_ZERO: &str = "0, or at least 1e-24 and at most 1e15";
const WEIGHT: &str = "0 where there is no application, else at least 1e-12 and at most 1e15";
const MOST_ALPHA: f64 = 16.0;

impl Problem {
    /// Checks every value.
    ///
    /// # Errors
    /// Names the first host, application or edge whose value no solver could use.
    pub fn check(&self) -> Result<(), ProblemError> {
        check(self)
    }
}

fn check(problem: &Problem) -> Result<(), ProblemError> {
    let &Problem { hosts, applications, alpha, .. } = problem;
    let size = ProblemError::Size { hosts, applications };
    let all = hosts.checked_mul(applications).filter(|all| (1..u32::MAX as usize).contains(all));
    let all = all.ok_or(size)?;
    if alpha == f64::INFINITY {
        return Err(ProblemError::MaxMin);
    }
    if !(1e-3..=MOST_ALPHA).contains(&alpha) {
        return Err(ProblemError::Alpha { value: alpha });
    }
    lengths(problem, all)?;
    hosts_of(problem)?;
    let each = |what, values: &[f64], rule, good: fn(f64) -> bool| {
        let Some(at) = values.iter().position(|value| !good(*value)) else { return Ok(()) };
        Err(application(problem, at, what, values[at], rule))
    };
    each("weight", &problem.weights, WEIGHT, |value| value == 0.0 || is_above(value))?;
    if let Some(limits) = &problem.limits {
        each("limit", limits, ABOVE, is_above)?;
    }
    for preemption in
        [&problem.send_preemption, &problem.completion_preemption].into_iter().flatten()
    {
        each("reserved share", &preemption.reserved, ABOVE, is_above)?;
        each("uncertain share", &preemption.uncertain, FROM_ZERO, is_from_zero)?;
    }
    edges(problem, all)
}

fn is_above(value: f64) -> bool {
    (LEAST..=MOST).contains(&value)
}

fn is_from_zero(value: f64) -> bool {
    value == 0.0 || (1e-24..=MOST).contains(&value)
}

fn application(
    problem: &Problem,
    at: usize,
    what: &'static str,
    value: f64,
    rule: &'static str,
) -> ProblemError {
    let (host, application) = (at / problem.applications, at % problem.applications);
    ProblemError::Application { host, application, what, value, rule }
}

fn lengths(problem: &Problem, all: usize) -> Result<(), ProblemError> {
    let edges = &problem.edges;
    let demand = |what, length, expected| {
        if length == expected {
            Ok(())
        } else {
            Err(ProblemError::Length { what, length, expected })
        }
    };
    demand("weights", problem.weights.len(), all)?;
    demand("beta", problem.beta.len(), problem.hosts)?;
    demand("send_capacity", problem.send_capacity.len(), problem.hosts)?;
    demand("completion_capacity", problem.completion_capacity.len(), problem.hosts)?;
    demand("edges.to", edges.to.len(), edges.from.len())?;
    demand("edges.completions", edges.completions.len(), edges.from.len())?;
    if let Some(limits) = &problem.limits {
        demand("limits", limits.len(), all)?;
    }
    for Preemption { reserved, uncertain } in
        [&problem.send_preemption, &problem.completion_preemption].into_iter().flatten()
    {
        demand("reserved", reserved.len(), all)?;
        demand("uncertain", uncertain.len(), all)?;
    }
    Ok(())
}

fn hosts_of(problem: &Problem) -> Result<(), ProblemError> {
    for host in 0..problem.hosts {
        let demand = |what, value: f64, rule, good: fn(f64) -> bool| {
            if good(value) { Ok(()) } else { Err(ProblemError::Host { host, what, value, rule }) }
        };
        demand("send capacity", problem.send_capacity[host], ABOVE, is_above)?;
        demand("completion capacity", problem.completion_capacity[host], ABOVE, is_above)?;
        demand("beta", problem.beta[host], FROM_ZERO, is_from_zero)?;
    }
    Ok(())
}

fn edges(problem: &Problem, all: usize) -> Result<(), ProblemError> {
    let edges = &problem.edges;
    for (edge, (&from, &to)) in edges.from.iter().zip(&edges.to).enumerate() {
        for (end, index) in [("sender", from as usize), ("receiver", to as usize)] {
            if index >= all {
                return Err(ProblemError::End { edge, end, index, reason: "which does not exist" });
            }
        }
        if problem.weights[from as usize] == 0.0 {
            let reason = "whose weight is 0";
            return Err(ProblemError::End { edge, end: "sender", index: from as usize, reason });
        }
        let value = edges.completions[edge];
        if !is_above(value) {
            return Err(application(problem, from as usize, "completions per unit", value, ABOVE));
        }
    }
    twice(problem)
}

/// Finds two edges with the same ends.
fn twice(problem: &Problem) -> Result<(), ProblemError> {
    let edges = &problem.edges;
    let mut ends: Vec<(u32, u32)> = Vec::new();
    if edges.from.is_sorted() {
        // The usual order: a sender's edges stand together, and are few.
        let mut begin = 0;
        for group in edges.from.chunk_by(|one, next| one == next) {
            let end = begin + group.len();
            ends.clear();
            ends.extend(edges.to[begin..end].iter().map(|to| (group[0], *to)));
            twice_among(problem, &mut ends)?;
            begin = end;
        }
        return Ok(());
    }
    ends.extend(edges.from.iter().copied().zip(edges.to.iter().copied()));
    twice_among(problem, &mut ends)
}

fn twice_among(problem: &Problem, ends: &mut [(u32, u32)]) -> Result<(), ProblemError> {
    ends.sort_unstable();
    let Some(pair) = ends.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(()) };
    let (from, to) = (pair[0].0 as usize, pair[0].1 as usize);
    let (host, application) = (from / problem.applications, from % problem.applications);
    Err(ProblemError::Twice { host, application, to })
}
