//! The fields of every row: units last in a name, null where one does not apply.
use serde::Serialize;

/// Rounds from a start to the optimum.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Solve {
    pub(crate) what: &'static str,
    pub(crate) instance: String,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) edges: usize,
    pub(crate) sided: &'static str,
    pub(crate) coupling: &'static str,
    pub(crate) alpha: f64,
    pub(crate) precision: &'static str,
    pub(crate) algorithm: &'static str,
    pub(crate) start: Option<&'static str>,
    pub(crate) iterations: Option<usize>,
    pub(crate) iterations_999: Option<usize>,
    pub(crate) iterations_1e6: Option<usize>,
    pub(crate) utility_fraction_of_optimum: Option<f64>,
    pub(crate) gap_rel: Option<f64>,
    pub(crate) objective: Option<f64>,
    pub(crate) optimum: Option<f64>,
    pub(crate) certified_gap_rel: Option<f64>,
    pub(crate) x_error_rel: Option<f64>,
    pub(crate) ns_per_variable_iteration: Option<f64>,
    pub(crate) ns_per_edge_iteration: Option<f64>,
    pub(crate) feasible: bool,
    pub(crate) max_use: f64,
    pub(crate) status: Option<&'static str>,
}

/// Rounds while messages are lost.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Loss {
    pub(crate) what: &'static str,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) alpha: f64,
    pub(crate) loss: f64,
    pub(crate) seed: u64,
    pub(crate) iterations: Option<usize>,
    pub(crate) gap_rel_at_10: f64,
    pub(crate) gap_rel_at_20: f64,
    pub(crate) gap_rel_worst_from_5: f64,
    /// Only hosts of their own fall back; the central solver has no guard.
    pub(crate) fell_back: Option<usize>,
}

/// How far an iteration is from the optimum.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Course {
    pub(crate) what: &'static str,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) alpha: f64,
    pub(crate) algorithm: &'static str,
    /// The part of all messages that is lost.
    pub(crate) loss: f64,
    pub(crate) iteration: usize,
    /// Of several runs the worst, as is the next.
    pub(crate) gap_rel: f64,
    /// The larger of the gap and of how much too low all rates are in effect: 0.005 at 99.5 % of the optimum.
    pub(crate) below_optimum_fraction: f64,
    pub(crate) runs: usize,
}

/// Rounds after a change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Warm {
    pub(crate) what: &'static str,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) alpha: f64,
    pub(crate) change: &'static str,
    pub(crate) iterations: Option<usize>,
}

/// A choice of the top k.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Topk {
    pub(crate) what: &'static str,
    pub(crate) instance: String,
    pub(crate) active: Option<Vec<Vec<usize>>>,
    pub(crate) objective: Option<f64>,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) alpha: f64,
    pub(crate) beta_hat: Option<f64>,
    pub(crate) selector: &'static str,
    pub(crate) gap: Option<f64>,
    pub(crate) bound_gap: Option<f64>,
    pub(crate) unserved: Option<usize>,
}

/// Time of an iteration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Speed {
    pub(crate) what: &'static str,
    pub(crate) algorithm: &'static str,
    pub(crate) precision: &'static str,
    pub(crate) isa: &'static str,
    pub(crate) alpha: f64,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) threads: usize,
    pub(crate) ns_per_variable_iteration: f64,
    pub(crate) ns_per_edge_iteration: f64,
    pub(crate) bytes_per_variable_iteration: f64,
    pub(crate) triad_bytes_per_s: f64,
    pub(crate) bandwidth_fraction: f64,
    pub(crate) passes: [f64; 2],
}

/// A large problem, from nothing to a certificate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Scale {
    pub(crate) what: &'static str,
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) edges: usize,
    pub(crate) alpha: f64,
    pub(crate) precision: &'static str,
    pub(crate) threads: usize,
    pub(crate) seconds_to_certified_995: Option<f64>,
    pub(crate) seconds_per_iteration: f64,
    pub(crate) iterations: usize,
    pub(crate) certified_gap_rel: f64,
    pub(crate) peak_bytes: Option<u64>,
}
