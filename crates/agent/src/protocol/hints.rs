//! What an application wants of its rate.
use serde::{Deserialize, Serialize};

/// What an application wants of its rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hints {
    /// Its weight; nothing: that of the policy, which is also the most.
    pub weight: Option<f64>,
    /// The most that it is going to ask for, in bytes a second; nothing: as much as it gets.
    pub demand_bytes_per_s: Option<f64>,
    /// Others take its rate as they need it.
    pub preemptible: bool,
}

impl Hints {
    /// Checks the numbers, for an application that the policy gives this weight.
    ///
    /// # Errors
    /// Which one is wrong, with what it is.
    pub fn check(&self, application: &str, most_weight: f64) -> Result<(), String> {
        let is_good = |value: f64| value > 0.0 && value.is_finite();
        if let Some(weight) = self.weight {
            if !is_good(weight) {
                return Err(format!("a weight of {weight} is not above 0"));
            }
            if weight > most_weight {
                return Err(format!(
                    "a weight of {weight} is more than {most_weight}, which the agent's policy gives {application:?}"
                ));
            }
        }
        match self.demand_bytes_per_s {
            Some(demand) if !is_good(demand) => {
                Err(format!("a demand of {demand} bytes a second is not above 0"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
