//! A goal that was written down before the first run, and what was reached.
use crate::stats::decimals;
use serde::Serialize;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Goal<P> {
    /// Always `goal`, so that a reader of the lines can tell.
    what: &'static str,
    pub(crate) goal: String,
    /// Where it was measured, in the columns of its table.
    #[serde(flatten)]
    pub(crate) place: P,
    pub(crate) ratio: f64,
    limit: f64,
    pub(crate) held: bool,
    /// Whether other programs disturbed a row that it rests on, where somebody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disturbed: Option<bool>,
}

/// A goal that nothing in this run says anything about: it is missed by nobody and held by nobody.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Unmeasured {
    what: &'static str,
    goal: String,
    /// Always null, as the next one.
    ratio: Option<f64>,
    held: Option<bool>,
    why_not: String,
}

impl Unmeasured {
    pub(crate) fn new(goal: &str, why_not: &str) -> Self {
        let (goal, why_not) = (goal.to_owned(), why_not.to_owned());
        Self { what: "goal", goal, ratio: None, held: None, why_not }
    }

    pub(crate) fn goal(&self) -> &str {
        &self.goal
    }

    pub(crate) fn why_not(&self) -> &str {
        &self.why_not
    }

    /// Returns it as a line for a person.
    pub(crate) fn line(&self) -> String {
        format!("-      {}: {}", self.goal, self.why_not)
    }
}

/// What a ratio must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl<P> Goal<P> {
    pub(crate) fn new(name: &str, place: P, ratio: f64, limit: Limit) -> Self {
        let (word, limit, held) = match limit {
            Limit::AtLeast(limit) => ("at least", limit, ratio >= limit),
            Limit::AtMost(limit) => ("at most", limit, ratio <= limit),
        };
        Self {
            what: "goal",
            goal: format!("{name}, {word} {limit}"),
            place,
            ratio: decimals(ratio, 3),
            limit,
            held,
            disturbed: None,
        }
    }

    /// Returns the verdict, for a page.
    pub(crate) fn verdict(&self) -> String {
        let word = if self.held { "held" } else { "**missed**" };
        let disturbed = if self.disturbed == Some(true) { ", but disturbed" } else { "" };
        format!("{word}{disturbed}")
    }
}

impl<P: fmt::Display> Goal<P> {
    /// Returns it as a line for a person.
    pub(crate) fn line(&self) -> String {
        let held = if self.held { "held  " } else { "MISSED" };
        let disturbed = if self.disturbed == Some(true) { " (disturbed)" } else { "" };
        format!("{held} {}{}: {:.3}{disturbed}", self.goal, self.place, self.ratio)
    }
}
