//! The server that a measurement on one machine starts for itself.
use super::{Program, ServerEvent};
use crate::args::{ProviderArgs, own_server};
use crate::failure::{Code, Failure, OrFail as _};
use anyhow::{Context as _, bail};
use catchment::perf::ChildProcess;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// A process of this program. It ends with this, also when this process is killed: then its stdin
/// closes.
pub(super) struct OwnServer {
    _process: ChildProcess,
    pub(super) address: SocketAddr,
}

impl OwnServer {
    pub(super) fn start(providers: &ProviderArgs, of: &Program) -> Result<Self, Failure> {
        Self::try_start(providers, of)
            .context("cannot start a server on this machine")
            .or_fail(Code::Failed)
    }

    fn try_start(providers: &ProviderArgs, of: &Program) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(of.command).args(own_server(providers)).stdin(Stdio::piped());
        let mut process = ChildProcess::start("the server", &mut command)?;
        let line = process.wait_for(|_| true)?;
        match serde_json::from_str(&line) {
            Ok(ServerEvent::Listening { address }) => Ok(Self { _process: process, address }),
            _ => bail!("it said {line:?} and not where it listens"),
        }
    }
}
