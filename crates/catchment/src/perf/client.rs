//! The side that measures.

use super::blocks::{self, BlockPlan, Side};
use super::control::{Control, PATIENCE};
use super::end::End;
use super::message::{FromClient, FromServer, Hello, VERSION, Welcome};
use super::plan::{Bandwidth, Figure, Latency, Operation, Plan, Row};
use super::server::cpu_s;
use super::{PerfError, Setup, bandwidth::Flow, latency};
use crate::session::host::Host;
use crate::session::message::SessionPath;
use crate::session::providers::Ends;
use catchment_verbs::Context;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server that failed says so in this time.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The way that is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTaken {
    /// Provider of the client.
    pub client: String,
    /// Provider of the server.
    pub server: String,
    /// Payload of a full packet in bytes; `None` where there are no packets.
    pub path_mtu: Option<u32>,
    /// Why this way.
    pub reason: String,
}

/// A connected client.
pub struct Client {
    control: Control,
    context: Arc<dyn Context>,
    path: SessionPath,
    reason: String,
}

impl Client {
    /// Connects to the server at `host` and `port`, and agrees on the way.
    ///
    /// # Errors
    /// [`PerfError::Unreachable`], [`PerfError::Refused`] with the server's reason, and what the
    /// control connection and devices say.
    pub fn connect((host, port): (&str, u16), setup: &Setup) -> Result<Client, PerfError> {
        let stream = reach(host, port)?;
        let ip = |address: std::io::Result<std::net::SocketAddr>| {
            address.ok().map(|at| at.ip().to_canonical())
        };
        let ends = Ends {
            local: ip(stream.local_addr()),
            peer: ip(stream.peer_addr()),
        };
        let providers = setup.providers();
        let offers = providers.for_source(ends);
        let mut control = Control::new(stream)?;
        control.send(&FromClient::Hello(Hello {
            version: VERSION,
            host: Host::read()?,
            offers: offers.list(),
            missing: offers.missing.clone(),
        }))?;
        let said: FromServer = control.recv("welcome", PATIENCE)?;
        let FromServer::Welcome(Welcome { path, reason }) = said else {
            return Err(said.unexpected("welcome"));
        };
        let context = offers.context(&path).cloned();
        let context = context.ok_or_else(|| PerfError::Protocol {
            seen: format!("a path from {}", path.source),
            expected: "one from a provider that was offered".to_owned(),
        })?;
        Ok(Client {
            control,
            context,
            path,
            reason,
        })
    }

    /// The way that is measured.
    pub fn path(&self) -> PathTaken {
        PathTaken {
            client: self.path.source.clone(),
            server: self.path.collector.clone(),
            path_mtu: self.path.path_mtu,
            reason: self.reason.clone(),
        }
    }

    /// Carries out one plan. Blocks.
    ///
    /// # Errors
    /// [`PerfError`]; after anything but [`PerfError::Plan`] and [`PerfError::Refused`] the
    /// connection is of no use any more.
    pub fn measure(&mut self, plan: Plan) -> Result<Row, PerfError> {
        plan.check()?;
        let mut end = End::open(&self.context, plan)?;
        let place = end.place();
        self.control.send(&FromClient::Run { plan, place })?;
        let said: FromServer = self.control.recv("ready", PATIENCE)?;
        let FromServer::Ready { place } = said else {
            return Err(said.unexpected("ready"));
        };
        end.connect(&place, &self.path)?;
        let (before, start) = (cpu_s(), Instant::now());
        let ran = run(&mut end);
        let (requests, mut row) = ran.map_err(|error| self.cause(error))?;
        let (time, used) = (start.elapsed().as_secs_f64(), cpu_s() - before);
        self.control.send(&FromClient::Over { requests })?;
        let server = self.used()?;
        row.used(used / time * 100.0, server / time * 100.0);
        Ok(row)
    }

    /// Carries out one plan for blocks. Blocks.
    ///
    /// # Errors
    /// As [`Client::measure`].
    pub fn measure_blocks(&mut self, plan: BlockPlan) -> Result<Row, PerfError> {
        plan.check()?;
        let (before, start) = (cpu_s(), Instant::now());
        let side = Side {
            plan,
            context: &self.context,
            path: &self.path,
            control: &mut self.control,
        };
        let ran = blocks::measure(side);
        let (mut row, server) = match ran {
            Err(error @ PerfError::Plan(_)) => return Err(error),
            ran => ran.map_err(|error| self.cause(error))?,
        };
        let (time, used) = (start.elapsed().as_secs_f64(), cpu_s() - before);
        row.used(used / time * 100.0, server / time * 100.0);
        Ok(row)
    }

    /// What the server says of the end of a measurement, which may be why this side failed.
    fn cause(&mut self, error: PerfError) -> PerfError {
        let said = self.control.recv("why it failed", LAST_WORD);
        match said {
            Ok(said @ FromServer::Failed { .. }) => said.unexpected("used"),
            _ => error,
        }
    }

    /// The processor time of the server, when it has taken all.
    fn used(&mut self) -> Result<f64, PerfError> {
        let said: FromServer = self.control.recv("used", PATIENCE)?;
        let FromServer::Used { cpu_s } = said else {
            return Err(said.unexpected("used"));
        };
        Ok(cpu_s)
    }
}

/// How many requests there were, and what came out.
fn run(end: &mut End) -> Result<(u64, Row), PerfError> {
    let Plan {
        bytes,
        depth,
        amount,
        test,
        ..
    } = end.plan;
    if test.figure == Figure::Latency {
        if test.operation == Operation::Send {
            latency::prepare(end)?;
        }
        let times = latency::ask(end)?;
        return Ok((times.len() as u64, Row::Latency(Latency::of(bytes, times))));
    }
    let mut flow = Flow::new(end);
    // Pages are touched, neighbours are found.
    flow.run(Duration::MAX, depth.into())?;
    let (limit, most) = amount.limits();
    let sent = flow.run(limit, most)?;
    let per_s = sent.requests as f64 / sent.time.as_secs_f64();
    let row = Bandwidth {
        bytes,
        iterations: sent.requests,
        peak_bytes_per_s: Some(sent.peak_bytes_per_s),
        average_bytes_per_s: per_s * bytes as f64,
        messages_per_s: per_s,
        client_cpu_percent: 0.0,
        server_cpu_percent: 0.0,
    };
    Ok((flow.requests(), Row::Bandwidth(row)))
}

impl Row {
    fn used(&mut self, client: f64, server: f64) {
        let (of_client, of_server) = match self {
            Row::Bandwidth(row) => (&mut row.client_cpu_percent, &mut row.server_cpu_percent),
            Row::Latency(row) => (&mut row.client_cpu_percent, &mut row.server_cpu_percent),
        };
        (*of_client, *of_server) = (client, server);
    }
}

fn reach(host: &str, port: u16) -> Result<TcpStream, PerfError> {
    let unreachable = |source| PerfError::Unreachable {
        to: format!("{host}:{port}"),
        source,
    };
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address");
    for address in (host, port).to_socket_addrs().map_err(unreachable)? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}
