//! The claims that were registered: when each was, what it was before it changed, and those that no
//! scenario measures yet.
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

const REGISTER: &str = include_str!("../../scenarios/register.toml");

/// When a claim was written down.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registered {
    pub(crate) commit: String,
    pub(crate) date: String,
}

/// What a claim was before it was changed, and why it is another one now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changed {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) was: String,
    pub(crate) why: String,
}

/// A claim that no scenario measures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Other {
    pub(crate) id: String,
    pub(crate) experiment: String,
    pub(crate) registered: Registered,
    pub(crate) claim: String,
    /// The claim of a scenario that says the same.
    pub(crate) rests_on: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    #[serde(rename = "claim")]
    claims: Vec<Other>,
}

/// Returns the claims that no scenario measures.
pub(super) fn others() -> Result<Vec<Other>> {
    let register: Register = toml::from_str(REGISTER).context("register.toml")?;
    Ok(register.claims)
}
