//! Which providers may be used, and with which settings: the same for every command.
use super::Security;
use crate::failure::{Code, Failure, OrFail as _};
use anyhow::anyhow;
use catchment::ibverbs::IbverbsOptions;
use catchment::providers::{AgentOptions, ProviderOptions as _, ProviderSet};
use catchment::roce::{Faults, PathMtu, RoceOptions};
use catchment::session::path::PathRules;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// The provider whose device is an agent's.
const AGENT: &str = "agent";

/// Choice of the provider.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProviderArgs {
    /// Use only these providers on this side: shm, ibverbs, roce, and agent with --agent
    #[arg(long, visible_alias = "provider", value_name = "PROVIDER", value_delimiter = ',')]
    pub(crate) require: Vec<String>,
    /// Use these providers where they are possible, in this order
    #[arg(long, value_name = "PROVIDER", value_delimiter = ',')]
    pub(crate) prefer: Vec<String>,
    /// Do not use these providers
    #[arg(long, value_name = "PROVIDER", value_delimiter = ',')]
    pub(crate) forbid: Vec<String>,
    /// Also offer the device of an agent on this host (`catchment agent`), as this application of its policy
    #[arg(long, value_name = "APPLICATION[@AGENT]")]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
    /// Faults to inject into what is sent over RoCEv2, such as drop=0.01,reorder=0.02,seed=7: tests
    /// the other end
    #[arg(long, value_name = "FAULTS")]
    pub(crate) fault: Option<Faults>,
}

/// Settings of the devices that a provider opens.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArgs {
    /// UDP port of RoCEv2; hardware knows only 4791 [default: 4791, another one if it is taken]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) roce_port: Option<u16>,
    /// Largest path MTU of RoCEv2, in software and of RNICs: 256, 512, 1024, 2048 or 4096 [default: what the network takes]
    #[arg(long, value_name = "BYTES", value_parser = path_mtu)]
    pub(crate) roce_mtu: Option<PathMtu>,
    /// The verbs library of the system [default: libibverbs.so.1]
    #[arg(long, value_name = "FILE")]
    pub(crate) ibverbs_library: Option<PathBuf>,
}

impl DeviceArgs {
    pub(crate) fn roce(&self) -> RoceOptions {
        let usual = RoceOptions::default();
        RoceOptions { port: self.roce_port.unwrap_or(usual.port), path_mtu: self.roce_mtu, ..usual }
    }

    pub(crate) fn ibverbs(&self) -> IbverbsOptions {
        let usual = IbverbsOptions::default();
        IbverbsOptions {
            library: self.ibverbs_library.clone().unwrap_or(usual.library),
            path_mtu: self.roce_mtu.map(|mtu| mtu.bytes() as u32),
            ..usual
        }
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one == name)
}

fn idle_fault(because: &str) -> Failure {
    let error = anyhow!("--fault would do nothing: it spoils frames over RoCEv2, and {because}");
    Failure::new(Code::Usage, error).hint("add --provider roce, or omit --fault")
}

fn path_mtu(text: &str) -> Result<PathMtu, String> {
    let bytes = text.parse().ok().and_then(PathMtu::from_bytes);
    bytes.ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096 bytes".to_owned())
}

impl ProviderArgs {
    /// Returns the providers as the library takes them. A provider that has options is one line more
    /// here, others none.
    ///
    /// # Errors
    /// A rule names a provider that does not exist.
    pub(crate) fn set(&self) -> Result<ProviderSet, Failure> {
        let rules = PathRules {
            require: self.require.clone(),
            prefer: self.prefer.clone(),
            forbid: self.forbid.clone(),
        };
        let mut set = ProviderSet::default().with(self.roce()).with(self.devices.ibverbs());
        if let Some(agent) = self.agent_options() {
            set.set(agent);
        }
        if self.lacks_application() {
            let error = anyhow!("provider {AGENT} needs to know which application this is");
            let hint = "add --agent APPLICATION, a name of the agent's policy";
            return Err(Failure::new(Code::Usage, error).hint(hint));
        }
        rules.check(&set.known()).or_fail(Code::Usage)?;
        let spoilt = self.roce().info().name;
        let is_out = !self.require.is_empty() && !has(&self.require, spoilt);
        if self.fault.is_some() && (is_out || has(&self.forbid, spoilt)) {
            return Err(idle_fault(&format!("the rules leave {spoilt} out")));
        }
        Ok(set.rules(rules))
    }

    /// Returns the same, with authenticated packets if they are asked for.
    ///
    /// # Errors
    /// As [`ProviderArgs::set`].
    pub(crate) fn secured(&self, security: &Security) -> Result<ProviderSet, Failure> {
        let authenticate = security.authenticate;
        Ok(self.set()?.with(RoceOptions { authenticate, ..self.roce() }))
    }

    /// Refuses faults where both ends are on this host, which frames then cross over shared memory.
    ///
    /// # Errors
    /// No rule keeps frames off shared memory.
    pub(crate) fn check_fault_within_host(&self) -> Result<(), Failure> {
        let known = ProviderSet::default().known();
        let packets = known.wire(self.roce().info().name);
        let are_packets = |name: &str| known.wire(name) == packets;
        let only_packets =
            !self.require.is_empty() && self.require.iter().all(|name| are_packets(name));
        let packets_first = self.prefer.first().is_some_and(|name| are_packets(name));
        let mut others = known.names().filter(|name| !are_packets(name));
        let no_other = others.all(|name| has(&self.forbid, name));
        if self.fault.is_none() || only_packets || packets_first || no_other {
            return Ok(());
        }
        Err(idle_fault("within a host they go through shared memory"))
    }

    /// Returns the same with nothing but RoCE in software.
    pub(crate) fn only_roce(&self) -> Self {
        Self { require: vec![self.roce().info().name.to_owned()], ..self.clone() }
    }

    pub(crate) fn roce(&self) -> RoceOptions {
        RoceOptions { fault: self.fault, ..self.devices.roce() }
    }

    /// Returns whether the rules want an agent, and nothing says as which application.
    pub(crate) fn lacks_application(&self) -> bool {
        self.agent.is_none() && (has(&self.require, AGENT) || has(&self.prefer, AGENT))
    }

    fn agent_options(&self) -> Option<AgentOptions> {
        self.agent.as_deref().map(AgentOptions::from)
    }

    /// Returns the same as arguments for another process of this program.
    pub(crate) fn words(&self) -> impl Iterator<Item = OsString> {
        let lists =
            [("--require", &self.require), ("--prefer", &self.prefer), ("--forbid", &self.forbid)];
        let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
        let lists = lists.map(|(option, names)| (option, names.join(",")));
        let devices = &self.devices;
        let port = devices.roce_port.map(|port| ("--roce-port", port.to_string()));
        let mtu = devices.roce_mtu.map(|mtu| ("--roce-mtu", mtu.bytes().to_string()));
        let library = devices
            .ibverbs_library
            .iter()
            .flat_map(|library| ["--ibverbs-library".into(), library.into()]);
        let fault = self.fault.map(|faults| ("--fault", faults.to_string()));
        let agent = self.agent.clone().map(|agent| ("--agent", agent));
        let given = lists.chain(port).chain(mtu).chain(fault).chain(agent);
        given.flat_map(|(option, value)| [option.into(), value.into()]).chain(library)
    }
}
