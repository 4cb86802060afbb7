//! A device of a provider for one role.
use crate::{
    job::{Job, Role},
    mechanism::Provider,
};
use anyhow::{Context as _, Result, bail};
use catchment_netns::Namespace;
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Provider as _, RtsAttr};
use std::sync::Arc;

/// For connections over software RoCE: a role that waits for its core on a busy machine is not gone.
pub(crate) fn patient() -> RtsAttr {
    RtsAttr {
        timeout: std::time::Duration::from_millis(268),
        ..RtsAttr::default()
    }
}

/// Opens it. For a network the role goes into its namespace first.
pub(super) fn open(provider: Provider, job: &Job, role: Role) -> Result<Arc<dyn Context>> {
    match provider {
        Provider::Shm => Ok(ShmProvider::new().open("shm0")?),
        Provider::Roce => {
            let ends = job.network.as_ref().context("a network needs addresses")?;
            let end = match role {
                Role::Source => &ends[0],
                Role::Collector => &ends[1],
            };
            Namespace::open(&end.netns)?.enter()?;
            // Its own thread sleeps when it finds nothing: the role shares its core with it.
            let options = RoceOptions {
                // Pairs that are measured in turn live side by side.
                port: 0,
                spin: std::time::Duration::ZERO,
                ..RoceOptions::default()
            };
            Ok(RoceProvider::new(options).open(&end.address.to_string())?)
        }
        Provider::Sim => bail!("virtual time has no processes"),
    }
}
