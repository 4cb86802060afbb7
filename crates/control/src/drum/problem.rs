//! What is to be shared, as a structure of arrays.
use thiserror::Error;

/// How completions follow from rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coupling {
    /// `z = P x`: completions are given exactly as they arise.
    Equal,
    /// `z >= P x`: a completion rate may be left unused.
    AtLeast,
}

/// Which hosts an application's completions arise at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sided {
    /// Every application has exactly one edge, to itself: hosts do not depend on each other.
    One,
    /// Rates of one host use completions of others.
    Two,
}

/// Rates that may be preempted: a capacity holds in the worst case of an ellipsoid of shares.
///
/// The capacity of host `i` is then `reserved_i . v_i + ||uncertain_i o v_i|| <= capacity_i`.
#[derive(Clone, Debug, PartialEq)]
pub struct Preemption {
    /// Mean share, `hosts * applications` values, host by host; above 0.
    pub reserved: Vec<f64>,
    /// Half axes of the ellipsoid, in the same order; at least 0.
    pub uncertain: Vec<f64>,
}

/// Edges from a sending to a completing application, as a structure of arrays of one length.
///
/// An application is named by its index `host * applications + application`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edges {
    /// Who sends.
    pub from: Vec<u32>,
    /// Who gets the completions.
    pub to: Vec<u32>,
    /// Completions at `to` for each unit that `from` sends; above 0.
    pub completions: Vec<f64>,
}

impl Edges {
    /// Adds an edge.
    pub fn push(&mut self, from: usize, to: usize, completions: f64) {
        let index = |at: usize| u32::try_from(at).expect("at most 2^32 applications");
        self.from.push(index(from));
        self.to.push(index(to));
        self.completions.push(completions);
    }
}

/// Rates to be decided: maximise `sum w U(x) - sum beta / z^2` within the capacities of the hosts.
///
/// Rates and capacities are in Mops, 10^6 units of NIC time a second; weights have no unit; `beta` is
/// in utility times Mops^2. `U(x) = x^(1-alpha) / (1-alpha)`, the logarithm at 1 (DRUM, section III,
/// with linear capacities in place of `sum log x <= q`, which is no convex set).
///
/// Arrays over applications have `hosts * applications` values, host by host. An application whose
/// weight is 0 does not exist: it has no rate and must have no edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of applications of each host.
    pub applications: usize,
    /// Fairness, above 0: 1 is proportional, larger values come nearer to max-min.
    pub alpha: f64,
    /// Weight of each application; 0 where there is none.
    pub weights: Vec<f64>,
    /// For each host, how much its applications suffer from few completions; at least 0.
    pub beta: Vec<f64>,
    /// For each host, the rate that it can send, in Mops.
    pub send_capacity: Vec<f64>,
    /// For each host, the completions that it can give, in Mops.
    pub completion_capacity: Vec<f64>,
    /// Which rate uses which completions.
    pub edges: Edges,
    /// How completions follow from rates.
    pub coupling: Coupling,
    /// Preemption of what is sent.
    pub send_preemption: Option<Preemption>,
    /// Preemption of completions.
    pub completion_preemption: Option<Preemption>,
    /// Most that each application can use, in Mops.
    pub limits: Option<Vec<f64>>,
}

impl Problem {
    /// Returns whether hosts depend on each other.
    #[must_use]
    pub fn sided(&self) -> Sided {
        let own = self.edges.from == self.edges.to;
        let active = self.weights.iter().filter(|weight| **weight > 0.0).count();
        let mut seen = vec![false; self.weights.len()];
        let once = self.edges.from.iter().all(|from| {
            seen.get_mut(*from as usize).is_some_and(|seen| !std::mem::replace(seen, true))
        });
        if own && once && self.edges.from.len() == active { Sided::One } else { Sided::Two }
    }
}

/// Why a problem is none. Every variant holds the value that was seen.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ProblemError {
    /// There is no host or no application.
    #[error(
        "{hosts} hosts with {applications} applications: at least one of each is needed, at most 2^32 in all"
    )]
    Size {
        /// Number of hosts.
        hosts: usize,
        /// Applications of each.
        applications: usize,
    },
    /// An array is too short or too long.
    #[error("{what} has {length} values, and {expected} are needed")]
    Length {
        /// Which array.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The length that it must have.
        expected: usize,
    },
    /// Alpha is not a positive number of a usable size.
    #[error("alpha is {value}: it must be above 0 and at most 16")]
    Alpha {
        /// The value.
        value: f64,
    },
    /// Max-min fairness is not solved by rounds of messages.
    #[error(
        "alpha is infinite: use progressive filling, which is central, or an alpha of at most 16"
    )]
    MaxMin,
    /// Hosts depend on each other, or a capacity is not linear.
    #[error(
        "only hosts without edges between them, preemption and unused completions have an exact solution: use a Solver"
    )]
    NotOneSided,
    /// A value of a host cannot be used.
    #[error("host {host}: {what} is {value}, and must be {rule}")]
    Host {
        /// The host.
        host: usize,
        /// Which value.
        what: &'static str,
        /// The value.
        value: f64,
        /// What it must be.
        rule: &'static str,
    },
    /// A value of an application cannot be used.
    #[error("host {host}, application {application}: {what} is {value}, and must be {rule}")]
    Application {
        /// The host.
        host: usize,
        /// The application.
        application: usize,
        /// Which value.
        what: &'static str,
        /// The value.
        value: f64,
        /// What it must be.
        rule: &'static str,
    },
    /// An edge names an application that does not exist or has no weight.
    #[error("edge {edge}: its {end} is application {index}, {reason}")]
    End {
        /// Index of the edge.
        edge: usize,
        /// Which end.
        end: &'static str,
        /// What it names.
        index: usize,
        /// What is wrong with that.
        reason: &'static str,
    },
    /// Two edges have the same ends.
    #[error("host {host}, application {application}: two edges to application {to} of all")]
    Twice {
        /// Host of the sender.
        host: usize,
        /// The sender.
        application: usize,
        /// Index of the receiver.
        to: usize,
    },
}
