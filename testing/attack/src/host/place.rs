//! Where attack programs run: as another user, in another PID namespace, on a third host.
use crate::host::VICTIM;
use anyhow::Result;
use catchment_netns::Namespace;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Who an attack program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Somebody else.
    Other,
    /// Somebody else who may send raw packets, as the owner of a third host may.
    Router,
    /// The user of the victim, as in another container of its pod.
    Same,
}

const NOBODY: u32 = 65_534;

/// Returns the command of an attack program, in a PID namespace of its own.
pub(crate) fn command(user: User, program: &Path) -> Command {
    let id = if user == User::Same { VICTIM } else { NOBODY }.to_string();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
    if user == User::Router {
        command.args(["--inh-caps=+net_raw", "--ambient-caps=+net_raw"]);
    }
    command.arg(program);
    command
}

/// Three hosts at a switch: what two of them say to each other the third does not see.
pub(crate) struct Lan {
    pub(crate) collector: Namespace,
    pub(crate) source: Namespace,
    pub(crate) stranger: Namespace,
    _switch: Namespace,
}

pub(crate) const COLLECTOR: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
pub(crate) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
pub(crate) const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 3);

impl Lan {
    pub(crate) fn new() -> Result<Self> {
        let switch = Namespace::new()?;
        switch.ip(&["link", "add", "switch0", "type", "bridge"])?;
        switch.ip(&["link", "set", "switch0", "up"])?;
        let host = |number: &str, address: Ipv4Addr| -> Result<Namespace> {
            let host = Namespace::new()?;
            let port = format!("port{number}");
            let (path, address) = (host.path(), format!("{address}/24"));
            switch.ip(&[
                "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &path,
            ])?;
            switch.ip(&["link", "set", &port, "master", "switch0", "up"])?;
            host.ip(&["address", "add", &address, "dev", "eth0"])?;
            host.ip(&["link", "set", "eth0", "up"])?;
            Ok(host)
        };
        let (collector, source) = (host("1", COLLECTOR)?, host("2", SOURCE)?);
        let stranger = host("3", STRANGER)?;
        let lan = Self { collector, source, stranger, _switch: switch };
        for host in [&lan.source, &lan.stranger] {
            lan.wait_for_packets(host)?;
        }
        Ok(lan)
    }

    /// The switch learns where its ports lead before the first packet of a case.
    fn wait_for_packets(&self, from: &Namespace) -> Result<()> {
        let to = self.collector.run(|| UdpSocket::bind((COLLECTOR, 0)))??;
        to.set_read_timeout(Some(Duration::from_millis(20)))?;
        let address = to.local_addr()?;
        let from = from.run(|| UdpSocket::bind(("0.0.0.0", 0)))??;
        for _ in 0..500 {
            // There may be no carrier yet.
            let _ = from.send_to(&[0], address);
            if to.recv_from(&mut [0; 8]).is_ok() {
                return Ok(());
            }
        }
        anyhow::bail!("no packet crosses the switch")
    }
}
