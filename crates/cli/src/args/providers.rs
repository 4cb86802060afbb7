//! Which providers may be used: the same for every command.

use catchment::roce::{Faults, PathMtu, RoceOptions};
use catchment::session::path::PathRules;
use clap::Args;
use std::ffi::OsString;

/// Choice of the provider.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProviderArgs {
    /// Use only these providers on this side: shm, ibverbs, roce
    #[arg(
        long,
        visible_alias = "provider",
        value_name = "PROVIDER",
        value_delimiter = ','
    )]
    pub(crate) require: Vec<String>,
    /// Use these providers where they are possible, in this order
    #[arg(long, value_name = "PROVIDER", value_delimiter = ',')]
    pub(crate) prefer: Vec<String>,
    /// Do not use these providers
    #[arg(long, value_name = "PROVIDER", value_delimiter = ',')]
    pub(crate) forbid: Vec<String>,
    /// UDP port of RoCEv2; hardware knows only 4791 [default: 4791, another one if it is taken]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) roce_port: Option<u16>,
    /// Largest path MTU of RoCEv2: 256, 512, 1024, 2048 or 4096 [default: what the network takes]
    #[arg(long, value_name = "BYTES", value_parser = path_mtu)]
    pub(crate) roce_mtu: Option<PathMtu>,
    /// Faults to inject into what is sent over RoCEv2, such as drop=0.01,reorder=0.02,seed=7: tests
    /// the other end
    #[arg(long, value_name = "FAULTS")]
    pub(crate) fault: Option<Faults>,
}

fn path_mtu(text: &str) -> Result<PathMtu, String> {
    let bytes = text.parse().ok().and_then(PathMtu::from_bytes);
    bytes.ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096 bytes".to_owned())
}

impl ProviderArgs {
    /// As the library takes it.
    pub(crate) fn rules(&self) -> PathRules {
        PathRules {
            require: self.require.clone(),
            prefer: self.prefer.clone(),
            forbid: self.forbid.clone(),
        }
    }

    /// Settings of the RoCEv2 devices.
    pub(crate) fn roce(&self) -> RoceOptions {
        let usual = RoceOptions::default();
        RoceOptions {
            port: self.roce_port.unwrap_or(usual.port),
            path_mtu: self.roce_mtu,
            fault: self.fault,
            ..usual
        }
    }

    /// The same as arguments for another process of this program.
    pub(crate) fn words(&self) -> impl Iterator<Item = OsString> {
        let lists = [
            ("--require", &self.require),
            ("--prefer", &self.prefer),
            ("--forbid", &self.forbid),
        ];
        let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
        let lists = lists.map(|(option, names)| (option, names.join(",")));
        let port = self.roce_port.map(|port| ("--roce-port", port.to_string()));
        let mtu = self
            .roce_mtu
            .map(|mtu| ("--roce-mtu", mtu.bytes().to_string()));
        let fault = self.fault.map(|faults| ("--fault", faults.to_string()));
        let given = lists.chain(port).chain(mtu).chain(fault);
        given.flat_map(|(option, value)| [option.into(), value.into()])
    }
}
