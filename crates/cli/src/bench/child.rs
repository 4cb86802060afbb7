//! The server that a measurement on one machine starts for itself.

use super::ServerEvent;
use crate::args::{ProviderArgs, own_server};
use crate::failure::{Code, Failure, OrFail as _};
use anyhow::{Context as _, bail};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A process of this program. It ends with this, also when this process is killed: then its stdin
/// closes.
pub(super) struct OwnServer {
    child: Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
}

impl OwnServer {
    /// Starts it, and waits until it listens.
    pub(super) fn start(providers: &ProviderArgs) -> Result<OwnServer, Failure> {
        OwnServer::try_start(providers)
            .context("cannot start a server on this machine")
            .or_fail(Code::Failed)
    }

    fn try_start(providers: &ProviderArgs) -> anyhow::Result<OwnServer> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(own_server(providers))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("it has no stdout")?;
        let mut server = OwnServer {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(ServerEvent::Listening { address }) => server.address = address,
            _ => bail!("it said {line:?} and not where it listens"),
        }
        Ok(server)
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // It may have ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
