//! Problems with known optima: the format `drum-oracle/1`, JSON.
use super::problem::{Coupling, Edges, Preemption, Problem, Sided};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const FORMAT: &str = "drum-oracle/1";

/// A file of instances.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Oracle {
    /// Always `drum-oracle/1`.
    pub format: String,
    /// Units, in words.
    #[serde(default)]
    pub units: String,
    /// Order of the arrays, in words.
    #[serde(default)]
    pub layout: String,
    /// The problem, in words.
    #[serde(default)]
    pub problem: String,
    /// What found the optima.
    #[serde(default)]
    pub solver: String,
    /// How near a solution must come, in words.
    #[serde(default)]
    pub tolerances: String,
    /// Number of instances.
    pub count: usize,
    /// The instances.
    pub instances: Vec<Instance>,
}

/// A problem, and its optimum where it is known. The names are those of the file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Instance {
    /// Name within the file.
    pub id: String,
    /// What is special.
    #[serde(default)]
    pub note: String,
    /// `topk` where at most `k` applications may exceed `x_floor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Hosts.
    pub n: usize,
    /// Applications of each host.
    pub m: usize,
    /// Most applications that may exceed `x_floor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<usize>,
    /// `one` or `two`.
    pub sided: String,
    /// `eq` or `ge`.
    pub coupling: String,
    /// Fairness.
    pub alpha: f64,
    /// Weights, host by host.
    pub w: Vec<f64>,
    /// Over hosts.
    pub beta: Vec<f64>,
    /// Over hosts, in Mops.
    pub q: Vec<f64>,
    /// Over hosts, in Mops.
    pub c: Vec<f64>,
    /// `[l, j, i, p]`: `z[i, j] += p x[l, j]`.
    pub edges: Vec<(usize, usize, usize, f64)>,
    /// Reserved shares of what is sent.
    #[serde(default)]
    pub abar_x: Option<Vec<f64>>,
    /// Uncertain shares of what is sent.
    #[serde(default)]
    pub theta_x: Option<Vec<f64>>,
    /// Reserved shares of completions.
    #[serde(default)]
    pub abar_z: Option<Vec<f64>>,
    /// Uncertain shares of completions.
    #[serde(default)]
    pub theta_z: Option<Vec<f64>>,
    /// Limits, in Mops.
    #[serde(default)]
    pub x_max: Option<Vec<f64>>,
    /// Rate of those that are not among the `k`, in Mops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_floor: Option<f64>,
    /// The optimum.
    #[serde(default)]
    pub optimum: Option<Optimum>,
}

/// A known optimum.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Optimum {
    /// The indices of the best set, where there are `k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Vec<usize>>,
    /// The objective.
    pub objective: f64,
    /// What tolerances are fractions of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs_scale: Option<f64>,
    /// Part of the rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f: Option<f64>,
    /// Part of the completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub g: Option<f64>,
    /// Rates, in Mops.
    pub x: Vec<f64>,
    /// Completions, in Mops.
    pub z: Vec<f64>,
    /// How well the rates are known, as a fraction of the largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_uncertainty_rel: Option<f64>,
}

/// Why a file could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It is not JSON of this form.
    #[error("not a file of the format {FORMAT}: {0}")]
    Json(#[from] serde_json::Error),
    /// It says that it has another format.
    #[error("the format is {0:?}, and {FORMAT:?} is needed")]
    Format(String),
    /// A word is none of those that are known.
    #[error("instance {id}: {what} is {value:?}, and must be {rule}")]
    Word {
        /// The instance.
        id: String,
        /// Which field.
        what: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// Only one of the two arrays of a preemption is there.
    #[error("instance {id}: abar and theta of {what} must both be there, or neither")]
    Half {
        /// The instance.
        id: String,
        /// Which capacity.
        what: &'static str,
    },
    /// An edge leaves the instance.
    #[error(
        "instance {id}: edge {edge} goes from [{from}, {application}] to host {to}, of {n} hosts and {m} applications"
    )]
    Edge {
        /// The instance.
        id: String,
        /// Index of the edge.
        edge: usize,
        /// Host that sends.
        from: usize,
        /// The application.
        application: usize,
        /// Host that completes.
        to: usize,
        /// Hosts.
        n: usize,
        /// Applications.
        m: usize,
    },
}

impl Oracle {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`FormatError`] if it is not of this format.
    pub fn read(text: &str) -> Result<Self, FormatError> {
        let oracle: Self = serde_json::from_str(text)?;
        if oracle.format == FORMAT { Ok(oracle) } else { Err(FormatError::Format(oracle.format)) }
    }

    /// Makes a file of instances.
    #[must_use]
    pub fn of(instances: Vec<Instance>) -> Self {
        Self { format: FORMAT.to_owned(), count: instances.len(), instances, ..Self::default() }
    }

    /// Returns the file's text.
    ///
    /// # Errors
    /// [`FormatError::Json`] if a value is not finite.
    pub fn write(&self) -> Result<String, FormatError> {
        Ok(serde_json::to_string(self)?)
    }
}

impl Instance {
    /// Describes a problem whose edges stay with their application.
    #[must_use]
    pub fn of(id: String, problem: &Problem) -> Self {
        let m = problem.applications;
        let edges = &problem.edges;
        let edge = |at: usize| {
            let (from, to) = (edges.from[at] as usize, edges.to[at] as usize);
            (from / m, from % m, to / m, edges.completions[at])
        };
        let part = |preemption: &Option<Preemption>, reserved: bool| {
            let pick = |cone: &Preemption| {
                if reserved { cone.reserved.clone() } else { cone.uncertain.clone() }
            };
            preemption.as_ref().map(pick)
        };
        Self {
            id,
            n: problem.hosts,
            m,
            sided: if problem.sided() == Sided::One { "one" } else { "two" }.to_owned(),
            coupling: if problem.coupling == Coupling::Equal { "eq" } else { "ge" }.to_owned(),
            alpha: problem.alpha,
            w: problem.weights.clone(),
            beta: problem.beta.clone(),
            q: problem.send_capacity.clone(),
            c: problem.completion_capacity.clone(),
            edges: (0..edges.from.len()).map(edge).collect(),
            abar_x: part(&problem.send_preemption, true),
            theta_x: part(&problem.send_preemption, false),
            abar_z: part(&problem.completion_preemption, true),
            theta_z: part(&problem.completion_preemption, false),
            x_max: problem.limits.clone(),
            ..Self::default()
        }
    }

    /// Returns the problem; its values are not checked yet.
    ///
    /// # Errors
    /// [`FormatError`] where the instance describes none.
    pub fn problem(&self) -> Result<Problem, FormatError> {
        let coupling = match self.coupling.as_str() {
            "eq" => Coupling::Equal,
            "ge" => Coupling::AtLeast,
            other => return Err(self.word("coupling", other, "eq or ge")),
        };
        if !["one", "two"].contains(&self.sided.as_str()) {
            return Err(self.word("sided", &self.sided, "one or two"));
        }
        let &Self { n, m, .. } = self;
        let mut edges = Edges::default();
        for (edge, &(from, application, to, completions)) in self.edges.iter().enumerate() {
            if from >= n || to >= n || application >= m {
                return Err(FormatError::Edge {
                    id: self.id.clone(),
                    edge,
                    from,
                    application,
                    to,
                    n,
                    m,
                });
            }
            edges.push(from * m + application, to * m + application, completions);
        }
        Ok(Problem {
            hosts: n,
            applications: m,
            alpha: self.alpha,
            weights: self.w.clone(),
            beta: self.beta.clone(),
            send_capacity: self.q.clone(),
            completion_capacity: self.c.clone(),
            edges,
            coupling,
            send_preemption: self.preemption("x", &self.abar_x, &self.theta_x)?,
            completion_preemption: self.preemption("z", &self.abar_z, &self.theta_z)?,
            limits: self.x_max.clone(),
        })
    }

    fn word(&self, what: &'static str, value: &str, rule: &'static str) -> FormatError {
        FormatError::Word { id: self.id.clone(), what, value: value.to_owned(), rule }
    }

    fn preemption(
        &self,
        what: &'static str,
        reserved: &Option<Vec<f64>>,
        uncertain: &Option<Vec<f64>>,
    ) -> Result<Option<Preemption>, FormatError> {
        match (reserved, uncertain) {
            (None, None) => Ok(None),
            (Some(reserved), Some(uncertain)) => {
                Ok(Some(Preemption { reserved: reserved.clone(), uncertain: uncertain.clone() }))
            }
            _ => Err(FormatError::Half { id: self.id.clone(), what }),
        }
    }
}
