//! The services at the other end: Redis as packaged, and clients that write to it all the time.
use crate::hop::Hop;
use anyhow::{Context as _, Result};
use catchment_netns::wait_until;
use catchment_perf::ChildProcess;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};

/// A service that clients use, in the right namespace.
pub(super) struct Service {
    process: ChildProcess,
    /// What tunnels and agents call it.
    pub(super) name: &'static str,
    pub(super) port: u16,
}

impl Service {
    /// Starts a redis-server and waits until it listens.
    pub(super) fn start(hop: Hop<'_>, name: &'static str, port: u16) -> Result<Self> {
        let (right, address) = hop.right;
        let process = right.run(|| {
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--save", "", "--protected-mode", "no"]);
            command.args(["--loglevel", "warning", "--dir", "/tmp"]).stdin(Stdio::null());
            ChildProcess::start("redis-server", &mut command)
        })??;
        let address = SocketAddr::new(address, port);
        let listens = || TcpStream::connect(address).is_ok();
        hop.left.0.run(|| wait_until("redis-server listens", listens))?;
        Ok(Self { process, name, port })
    }

    /// Where it is in the right namespace.
    pub(super) fn local(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns how many bytes it has taken in since it was started, by its own account.
    pub(super) fn bytes_in(&self, hop: Hop<'_>) -> Result<u64> {
        const NAME: &str = "total_net_input_bytes:";
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.local())?;
            stream.write_all(b"INFO stats\r\nQUIT\r\n")?;
            let mut said = String::new();
            stream.read_to_string(&mut said)?;
            Ok(said)
        };
        let said = hop.right.0.run(ask)??;
        let value = said.lines().find_map(|line| line.strip_prefix(NAME));
        let value = value.with_context(|| format!("no {NAME} in {said:?}"))?;
        Ok(value.trim().parse()?)
    }
}

/// A client that sets long values, one after the other, until it is dropped.
pub(super) struct Writer {
    _process: ChildProcess,
}

impl Writer {
    /// Starts it in the left namespace, with values of so many bytes, and waits until the service has one.
    pub(super) fn start(
        hop: Hop<'_>,
        to: SocketAddr,
        service: &Service,
        value_bytes: u32,
    ) -> Result<Self> {
        let before = service.bytes_in(hop)?;
        let (host, port) = (to.ip().to_string(), to.port().to_string());
        let bytes = value_bytes.to_string();
        let words = ["-h", &host, "-p", &port, "-t", "SET", "-c", "1", "-d", &bytes, "-l", "--csv"];
        let process = hop.left.0.run(|| {
            let mut command = Command::new("redis-benchmark");
            ChildProcess::start("the writer", command.args(words).stdin(Stdio::null()))
        })??;
        let writes = || {
            let taken = service.bytes_in(hop).map(|bytes| bytes - before);
            taken.is_ok_and(|bytes| bytes > u64::from(value_bytes))
        };
        wait_until("the writer has written a value", writes);
        Ok(Self { _process: process })
    }
}
