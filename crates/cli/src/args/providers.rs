//! Which providers may be used: the same for every command.

use catchment::session::path::PathRules;
use clap::Args;
use std::ffi::OsString;

/// Choice of the provider.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProviderArgs {
    /// Use only these providers: shm, roce
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

    /// The same as arguments for another process of this program.
    pub(crate) fn words(&self) -> impl Iterator<Item = OsString> {
        let lists = [
            ("--require", &self.require),
            ("--prefer", &self.prefer),
            ("--forbid", &self.forbid),
        ];
        let given = lists.into_iter().filter(|(_, names)| !names.is_empty());
        given.flat_map(|(option, names)| [option.into(), names.join(",").into()])
    }
}
