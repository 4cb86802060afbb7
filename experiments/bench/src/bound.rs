//! Bounds of single numbers, and how many of them a run held: goals that are no ratios of two things.
use serde::Serialize;
use std::fmt::Display;

/// What must hold for a number.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Goal {
    what: &'static str,
    goal: String,
    value: Option<f64>,
    held: Option<bool>,
    /// Why it is not measured, or what its row says of a miss.
    why_not: Option<String>,
}

impl Goal {
    pub(crate) fn new(goal: String, value: Option<f64>, held: impl Fn(f64) -> bool) -> Self {
        let why_not = value.is_none().then(|| "not measured in this run".to_owned());
        Self { what: "goal", goal, value, held: value.map(held), why_not }
    }

    pub(crate) fn least(name: impl Display, value: Option<f64>, least: f64) -> Self {
        Self::new(format!("{name} >= {least}"), value, |value| value >= least)
    }

    pub(crate) fn most(name: impl Display, value: Option<f64>, most: f64) -> Self {
        Self::new(format!("{name} <= {most}"), value, |value| value <= most)
    }

    pub(crate) fn unmeasured(goal: &str, why_not: &str) -> Self {
        let (value, held) = (None, None);
        Self { what: "goal", goal: goal.to_owned(), value, held, why_not: Some(why_not.to_owned()) }
    }

    /// Says why, where it is missed.
    pub(crate) fn because(mut self, cause: impl FnOnce() -> String) -> Self {
        if self.held == Some(false) {
            self.why_not = Some(cause());
        }
        self
    }

    pub(crate) fn line(&self) -> String {
        let word = match self.held {
            Some(true) => "held  ",
            Some(false) => "MISSED",
            None => "-     ",
        };
        let said = match (self.value, &self.why_not) {
            (Some(value), Some(why)) => format!("{value} ({why})"),
            (Some(value), None) => value.to_string(),
            (None, why) => why.clone().unwrap_or_default(),
        };
        format!("{word} {}: {said}", self.goal)
    }
}

/// The last row.
#[derive(Debug, Serialize)]
pub(crate) struct Goals {
    what: &'static str,
    held: usize,
    of: usize,
    not_measured: usize,
}

impl Goals {
    pub(crate) fn of(goals: &[Goal]) -> Self {
        let count = |held| goals.iter().filter(|goal| goal.held == held).count();
        Self { what: "goals", held: count(Some(true)), of: goals.len(), not_measured: count(None) }
    }

    pub(crate) fn line(&self) -> String {
        let Self { held, of, not_measured, .. } = self;
        format!("{held} of {of} goals held, {not_measured} not measured")
    }
}
