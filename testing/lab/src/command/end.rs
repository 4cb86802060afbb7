//! `catchment-lab end`: one end of a connection, driven by lines on stdin.
use crate::end::server;
use anyhow::{Result, bail};
use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider};
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_verbs::Provider;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which provider
    provider: String,
    /// Its device
    device: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (stdin, stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
    server::serve(&*provider(&args.provider)?, &args.device, stdin, stdout)
}

pub(super) fn provider(name: &str) -> Result<Box<dyn Provider>> {
    Ok(match name {
        "roce" => Box::new(RoceProvider::new(RoceOptions::default())),
        "ibverbs" => Box::new(IbverbsProvider::new(IbverbsOptions::default())),
        other => bail!("no provider is called {other:?} here: roce, ibverbs"),
    })
}
