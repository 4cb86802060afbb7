//! Arguments of `catchment agent`.
use super::{PageArgs, values};
use catchment::session::tls::TlsFiles;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const HELP: &str = "\
The policy is a JSON file:
  {\"name\": \"agent0\", \"device\": \"shm\",
   \"applications\": [{\"name\": \"three\", \"weight\": 3}, {\"name\": \"one\", \"weight\": 1}]}

Another device: {\"roce\": \"10.0.0.1\"}. Programs use the agent through the provider `agent` of the crate
catchment-agent. It runs until it is told to end; their connections end with it. SIGHUP reads the policy again: applications and
their weights change at once; a policy that cannot be used changes nothing.";

/// Share one device among applications, by weights
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    /// Who may connect, with which weight, and the device; several times for several devices, each an agent of its own name
    #[arg(long = "policy", value_name = "FILE", required = true)]
    pub(crate) policies: Vec<PathBuf>,
    /// In which order requests go to the device, in place of the policy's `mode`
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<AgentMode>,
    /// Fairness of the shares, above 0, in place of the policy's `alpha`: 1 is proportional fairness, more is nearer to equal
    /// rates
    #[arg(long, value_name = "ALPHA", value_parser = values::above_zero)]
    pub(crate) alpha: Option<f64>,
    /// Measure the device at start: what a request costs in place of the policy's `request_bytes`, and the capacities of
    /// `between` that it does not say. A line that is narrower than the device is not seen
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// Listen here for the agents of other hosts, in place of `listen` of the policy's `between`
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Agree on rates with the agent there (HOST:PORT; may be given several times), beside the policy's
    #[arg(long = "peer", value_name = "ADDR")]
    pub(crate) peers: Vec<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) security: PeerFiles,
    /// Write JSON lines: one when it listens, one with all accounts at its end
    #[arg(long)]
    pub(crate) json: bool,
    /// End when stdin closes, as under another program
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
}

/// How connections with agents of other hosts, or with a store, are protected.
#[derive(Debug, Clone, Args)]
pub(crate) struct PeerFiles {
    /// Certificate of this side (PEM); needed off loopback, `catchment cert` makes it. Read again, as key and
    /// authority, when it changes
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"], conflicts_with = "insecure")]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Certificate of the authority that the other side's certificate must be from (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
    /// Connect off loopback without certificates: anyone can say that he is the other side
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl PeerFiles {
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { cert: self.cert.clone()?, key: self.key.clone()?, ca: self.ca.clone()? })
    }
}

/// The order in which requests go to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AgentMode {
    /// At the shares of the optimum
    Drum,
    /// As they come, five connections with another host on one queue pair
    Share,
    /// In chunks, as tokens allow, worth less while a latency misses its target: "justitia" of the policy
    Justitia,
    /// As they come, over a queue pair and a completion queue of each connection
    Raw,
    /// As they come: whoever posts more gets more
    Unlimited,
}

/// What can be asked of a running agent.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AgentCommand {
    /// Show what each application has had of the device
    Status(AgentStatusArgs),
    /// Show what each application has beside what was decided, each second, until Ctrl-C
    Top(AgentTopArgs),
    /// Say why an application has its rate, and what twice the weight would give
    Explain(AgentExplainArgs),
}

/// Say why an application has its rate, and what twice the weight would give
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentExplainArgs {
    /// The application's name
    #[arg(value_name = "APP")]
    pub(crate) application: String,
    /// The agent's name, as in its policy
    #[arg(long, value_name = "NAME", default_value = "agent0")]
    pub(crate) agent: String,
    /// How long to look, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Write one JSON object for each process of the name
    #[arg(long)]
    pub(crate) json: bool,
}

/// The agent that is asked
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentTopArgs {
    /// The agent's name, as in its policy
    #[arg(value_name = "NAME", default_value = "agent0")]
    pub(crate) agent: String,
    /// Write JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what each application has had of the device
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentStatusArgs {
    #[command(flatten)]
    pub(crate) of: AgentTopArgs,
    /// Write the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}
