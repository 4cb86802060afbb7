//! The controller in a process of its own, so that what it costs is told apart from what asks it.
use crate::{output, sys};
use anyhow::{Context as _, Result, anyhow};
use catchment_controller::Service;
use catchment_controller::config::Settings;
use catchment_perf::ChildProcess;
use catchment_session::io::{Address, ServerSecurity};
use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

/// The process: says where it listens, and ends with its input.
pub(crate) fn role(host: IpAddr, capacity_bps: u64, queue_bytes: Option<u64>) -> Result<()> {
    let any: Address = format!("{host}:0").parse().map_err(|error| anyhow!("{error}"))?;
    let settings = Settings::bottleneck(any, capacity_bps, queue_bytes);
    let security = ServerSecurity { insecure: !host.is_loopback(), ..ServerSecurity::default() };
    let service = Service::start(settings, &security)?;
    output::line(&service.local().to_string())?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Holds the process.
pub(super) struct Controller {
    child: ChildProcess,
    pub(super) address: Address,
}

impl Controller {
    pub(super) fn start(capacity_bps: u64) -> Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), capacity_bps, None)
    }

    pub(super) fn start_at(
        host: IpAddr,
        capacity_bps: u64,
        queue_bytes: Option<u64>,
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["control-role", &host.to_string(), &capacity_bps.to_string()]);
        command.args(queue_bytes.map(|bytes| bytes.to_string()));
        command.stdin(Stdio::piped());
        let mut child = ChildProcess::start("the controller", &mut command)?;
        let at = child.wait_for(|_| true)?;
        let address = at.trim().parse().map_err(|error| anyhow!("address {at:?}: {error}"))?;
        Ok(Self { child, address })
    }

    /// Returns the processor time of all its threads.
    pub(super) fn cpu_ns(&self) -> Result<u64> {
        sys::cpu_ns_of(self.child.id())
    }

    /// Returns its resident memory.
    pub(super) fn rss_bytes(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("VmRSS")? * 1024)
    }
}
