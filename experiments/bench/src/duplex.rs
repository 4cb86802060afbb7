//! The beam-diagnostics paper's client and server beside TCP: messages to and fro, then one way, through
//! three threads a side that sleep until something happens (E3.5 to E3.7).
//!
//! Two processes, each on a core of its own. The stream of a message says what the server does with it.
use crate::job::{Network, NetworkEnd, Role};
use crate::link::device::{Device, kernel_interface, patient};
use crate::mechanism::{Mechanism, Provider};
use crate::stats::percentile;
use crate::{host, output, sys};
use anyhow::{Context as _, Result, bail, ensure};
use catchment_channel::{ChannelShape, EndError, Message, Tag};
use catchment_duplex::{
    Control, Link, LinkOptions, Listener, Server, ServerOptions, TcpLink, TcpMessage, TcpShape,
};
use catchment_netns::Namespace;
use catchment_perf::ChildProcess;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Who waits longer than this waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages of the twin run whose every byte is compared, at both ends.
const VERIFIED: u64 = 32;
/// A stream sends at most so many bytes.
const STREAM_BYTES: u64 = 2_000_000_000;
const READY: &str = "ready ";
/// The one client.
const BACKLOG: i32 = 1;

/// The server compares every byte, and answers with other bytes.
const VERIFY: u32 = 1;
/// The server answers.
const TRIAL: u32 = 2;
/// The server takes it.
const STREAM: u32 = 3;
/// The server notes what it has used, and answers.
const MARK: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    fn role(self) -> Role {
        match self {
            Self::Client => Role::Source,
            Self::Server => Role::Collector,
        }
    }
}

/// One measurement of one mechanism by a fresh pair of processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) what: Mechanism,
    pub(crate) provider: Provider,
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
    pub(crate) trials: u64,
    /// Client and server; on loopback without.
    pub(crate) network: Option<[NetworkEnd; 2]>,
}

/// Processor time by role: the threads of the three queues, the program, and the provider's own.
pub(crate) type Used = BTreeMap<String, u64>;

/// A timed part: so many messages one way or both ways.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) messages: u64,
    pub(crate) wall_ns: u64,
    /// Of client and server.
    pub(crate) used_ns: [Used; 2],
    /// Of the whole machine.
    pub(crate) softirq_ns: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Halves of round trips.
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) trials: Span,
    pub(crate) stream: Span,
    pub(crate) verified_messages: u64,
    pub(crate) network: Option<Network>,
}

/// What the server noted.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Noted {
    used_ns: Vec<Used>,
    verified_messages: u64,
    network: Option<Network>,
}

impl Job {
    /// Runs client and server.
    pub(crate) fn run(&self) -> Result<Found> {
        let mut server = self.start(Side::Server, None)?;
        let line = server.wait_for(|line| line.starts_with(READY))?;
        let port = line.trim_start_matches(READY).trim().to_owned();
        let client = self.start(Side::Client, Some(port))?.finish()?;
        let noted: Noted = serde_json::from_str(server.finish()?.trim()).context("the server")?;
        let mut found: Found = serde_json::from_str(client.trim()).context("the client")?;
        ensure!(noted.used_ns.len() == 4, "the server noted {} moments", noted.used_ns.len());
        found.trials.used_ns[1] = less(&noted.used_ns[1], &noted.used_ns[0]);
        found.stream.used_ns[1] = less(&noted.used_ns[3], &noted.used_ns[2]);
        ensure!(noted.verified_messages == VERIFIED, "the server verified other messages");
        found.verified_messages += noted.verified_messages;
        found.network = found.network.zip(noted.network).map(|(ours, theirs)| ours + theirs);
        Ok(found)
    }

    fn start(&self, side: Side, port: Option<String>) -> Result<ChildProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["duplex-role", &serde_json::to_string(&side)?]);
        command.arg(serde_json::to_string(self)?).args(port).stdin(Stdio::null());
        let name = match side {
            Side::Client => "the client",
            Side::Server => "the server",
        };
        Ok(ChildProcess::start(name, &mut command)?)
    }

    fn address(&self, side: Side) -> Result<IpAddr> {
        if self.provider == Provider::Rxe {
            return Ok(self.device(side)?.context.gid().ip());
        }
        let ends = self.network.as_ref();
        Ok(ends.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |ends| ends[side as usize].address))
    }

    /// Returns a TCP socket of a side, at its end of the cable where there is one.
    fn socket(&self, side: Side, port: u16) -> Result<Socket> {
        let address = SocketAddr::new(self.address(side)?, port);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if self.provider == Provider::Rxe {
            // Both ends are in one kernel, which would not send what is for itself over a cable.
            socket.bind_device(Some(kernel_interface(side.role())?.as_bytes()))?;
        }
        socket.bind(&address.into())?;
        Ok(socket)
    }

    fn device(&self, side: Side) -> Result<Device> {
        match self.provider {
            Provider::Roce => {}
            Provider::Rxe => return Device::kernel_roce(side.role()),
            Provider::Shm | Provider::Sim => return Device::without_network(self.provider),
        }
        // The engine's thread sleeps as the others do: all share a core.
        let options = catchment_provider_roce::RoceOptions {
            spin: Duration::ZERO,
            ..catchment_provider_roce::RoceOptions::default()
        };
        Device::roce(options, &self.address(side)?.to_string())
    }

    fn options(&self) -> LinkOptions {
        let shape = ChannelShape::new(self.blocks as u32, self.bytes as u32);
        LinkOptions { rts: patient(), patience: PATIENCE, ..LinkOptions::new(shape) }
    }

    fn tcp_shape(&self) -> TcpShape {
        TcpShape { blocks: self.blocks as u32, payload_bytes: self.bytes as u32 }
    }
}

/// Runs one of the two processes.
pub(crate) fn role(side: Side, job: &Job, port: Option<u16>) -> Result<()> {
    sys::settle(match side {
        Side::Client => host::SOURCE_CORE,
        Side::Server => host::collector_core(),
    })?;
    if let Some(ends) = &job.network {
        Namespace::open(&ends[side as usize].netns)?.enter()?;
    }
    match side {
        Side::Server => output::json(&serve(job)?),
        Side::Client => {
            let port = port.context("the client needs the server's port")?;
            output::json(&visit(job, SocketAddr::new(job.address(Side::Server)?, port))?)
        }
    }
}

fn serve(job: &Job) -> Result<Noted> {
    let socket = job.socket(Side::Server, 0)?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    let port = listener.local_addr()?.port();
    let (say, heard) = mpsc::channel();
    if job.what == Mechanism::DuplexTcp {
        println!("{READY}{port}");
        let (stream, _) = listener.accept()?;
        let (job, shape) = (job.clone(), job.tcp_shape());
        // A thread for each client, as the other server has.
        let service = move || -> Result<Noted> {
            let mut link = TcpLink::start(stream, shape, "duplex-0")?;
            let noted = answer(&mut link, &job);
            link.close();
            noted
        };
        let thread = thread::Builder::new().name("duplex-0".to_owned()).spawn(service)?;
        return thread.join().unwrap_or_else(|_| bail!("the service panicked"));
    }
    let device = job.device(Side::Server)?;
    let service = {
        let job = job.clone();
        move |_, link: &mut Link| {
            let noted = answer(link, &job);
            say.send(noted).map_err(|_| EndError::Closed)
        }
    };
    let options = ServerOptions::new(job.options());
    // Only the other process reaches a namespace of ours.
    let listener = Listener::tcp_insecure(listener)?;
    let server = Server::start(listener, device.context.clone(), options, service)?;
    println!("{READY}{port}");
    let noted = heard.recv_timeout(10 * PATIENCE).context("no client came")??;
    server.stop();
    Ok(Noted { network: device.network(), ..noted })
}

fn visit(job: &Job, server: SocketAddr) -> Result<Found> {
    let socket = job.socket(Side::Client, 0)?;
    socket.connect_timeout(&server.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    if job.what == Mechanism::DuplexTcp {
        let mut link = TcpLink::start(stream, job.tcp_shape(), "duplex")?;
        let found = ask(&mut link, job)?;
        link.close();
        return Ok(found);
    }
    let device = job.device(Side::Client)?;
    let mut link = Link::connect(Control::tcp(stream)?, device.context.clone(), &job.options())?;
    let found = ask(&mut link, job)?;
    link.finish(PATIENCE)?;
    Ok(Found { network: device.network(), ..found })
}

/// An end of either mechanism.
trait Talk {
    type Message: Came;

    fn send(&mut self, stream: u32, packet: u64, payload: &[u8]) -> Result<()>;

    /// Waits for the next message; nothing when the peer has left.
    fn receive(&mut self) -> Result<Option<Self::Message>>;
}

trait Came {
    fn tag(&self) -> Tag;
    fn bytes(&self) -> usize;
    fn equals(&self, wanted: &[u8]) -> bool;
}

impl Talk for Link {
    type Message = Message;

    fn send(&mut self, stream: u32, packet: u64, payload: &[u8]) -> Result<()> {
        Ok(Self::send(self, Tag { stream, packet }, payload, PATIENCE)?)
    }

    fn receive(&mut self) -> Result<Option<Message>> {
        match Self::receive(self, PATIENCE) {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => bail!("nothing came"),
            Err(EndError::PeerGone) if self.said_goodbye() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Talk for TcpLink {
    type Message = TcpMessage;

    fn send(&mut self, stream: u32, packet: u64, payload: &[u8]) -> Result<()> {
        Ok(Self::send(self, Tag { stream, packet }, payload, PATIENCE)?)
    }

    fn receive(&mut self) -> Result<Option<TcpMessage>> {
        match Self::receive(self, PATIENCE) {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => bail!("nothing came"),
            Err(EndError::PeerGone) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Came for Message {
    fn tag(&self) -> Tag {
        Self::tag(self)
    }

    fn bytes(&self) -> usize {
        self.payload().bytes()
    }

    fn equals(&self, wanted: &[u8]) -> bool {
        self.payload().to_vec() == wanted
    }
}

impl Came for TcpMessage {
    fn tag(&self) -> Tag {
        Self::tag(self)
    }

    fn bytes(&self) -> usize {
        self.payload().len()
    }

    fn equals(&self, wanted: &[u8]) -> bool {
        self.payload() == wanted
    }
}

/// Fills in what a message of the twin run holds.
fn pattern(packet: u64, side: Side, into: &mut [u8]) {
    let start = packet as usize * 131 + side as usize * 77;
    into.iter_mut().enumerate().for_each(|(at, byte)| *byte = ((start + at * 7) % 251) as u8);
}

/// What the server does for its client.
fn answer(link: &mut impl Talk, job: &Job) -> Result<Noted> {
    let mut noted = Noted::default();
    let (payload, mut compared) = (vec![7; job.bytes], vec![0; job.bytes]);
    while let Some(message) = link.receive()? {
        let Tag { stream, packet } = message.tag();
        ensure!(message.bytes() == job.bytes, "a message of {} bytes came", message.bytes());
        if stream == VERIFY {
            pattern(packet, Side::Client, &mut compared);
            ensure!(message.equals(&compared), "message {packet} is another one");
            noted.verified_messages += 1;
            pattern(packet, Side::Server, &mut compared);
        }
        drop(message);
        match stream {
            VERIFY => link.send(stream, packet, &compared)?,
            TRIAL => link.send(stream, packet, &payload)?,
            STREAM => {}
            MARK => {
                noted.used_ns.push(used()?);
                link.send(stream, packet, &payload)?;
            }
            other => bail!("a message of stream {other} came"),
        }
    }
    Ok(noted)
}

/// What the client does: compares, warms up, and measures.
fn ask<L: Talk>(link: &mut L, job: &Job) -> Result<Found> {
    let mut found = Found::default();
    let mut payload = vec![0; job.bytes];
    for packet in 0..VERIFIED {
        pattern(packet, Side::Client, &mut payload);
        link.send(VERIFY, packet, &payload)?;
        let answer = link.receive()?.context("the server left")?;
        pattern(packet, Side::Server, &mut payload);
        ensure!(answer.equals(&payload), "answer {packet} is another one");
        found.verified_messages += 1;
    }
    let round_trip = |link: &mut L, stream, packet| -> Result<()> {
        link.send(stream, packet, &payload)?;
        let answer = link.receive()?.context("the server left")?;
        ensure!(answer.tag() == Tag { stream, packet }, "another answer came");
        Ok(())
    };
    // A tenth and a thousand do not count (H4).
    for packet in 0..(job.trials / 10).max(1000) {
        round_trip(link, TRIAL, packet)?;
    }
    let mut times = Vec::with_capacity(job.trials as usize);
    found.trials = span(
        link,
        job.trials,
        |link| round_trip(link, MARK, 0),
        |link| {
            for packet in 0..job.trials {
                let begin_ns = sys::monotonic_ns();
                round_trip(link, TRIAL, packet)?;
                times.push((sys::monotonic_ns() - begin_ns) as f64 / 2.0);
            }
            Ok(())
        },
    )?;
    found.mean_ns = times.iter().sum::<f64>() / times.len() as f64;
    (found.p50_ns, found.p99_ns) = (percentile(&times, 0.5), percentile(&times, 0.99));
    let count = job.trials.min(STREAM_BYTES / job.bytes as u64).max(job.blocks as u64);
    let stream = |link: &mut L, count| -> Result<()> {
        (0..count).try_for_each(|packet| link.send(STREAM, packet, &payload))?;
        // The answer says that all before it have come.
        round_trip(link, TRIAL, count)
    };
    stream(link, count / 10)?;
    found.stream = span(link, count, |link| round_trip(link, MARK, 0), |link| stream(link, count))?;
    Ok(found)
}

/// Measures a part; the server notes what it has used before and after.
fn span<L>(
    link: &mut L,
    messages: u64,
    mark: impl Fn(&mut L) -> Result<()>,
    part: impl FnOnce(&mut L) -> Result<()>,
) -> Result<Span> {
    mark(link)?;
    let (before, softirq_ns, begin_ns) = (used()?, sys::softirq_ns(), sys::monotonic_ns());
    part(link)?;
    let wall_ns = sys::monotonic_ns() - begin_ns;
    let softirq_ns = sys::softirq_ns().saturating_sub(softirq_ns);
    let used_ns = [less(&used()?, &before), Used::new()];
    mark(link)?;
    Ok(Span { messages, wall_ns, used_ns, softirq_ns })
}

/// Returns the processor time of the threads of this process so far, by their roles.
fn used() -> Result<Used> {
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let mut used = Used::new();
    for thread in sys::threads(std::process::id())? {
        let role = match thread.name.rsplit('-').next() {
            _ if thread.number == own => "program",
            Some(queue @ ("sq" | "cq" | "rq")) => queue,
            _ => "provider",
        };
        *used.entry(role.to_owned()).or_default() += thread.cpu_ns;
    }
    Ok(used)
}

fn less(after: &Used, before: &Used) -> Used {
    let spent = |(role, ns): (&String, &u64)| {
        (role.clone(), ns.saturating_sub(before.get(role).copied().unwrap_or(0)))
    };
    after.iter().map(spent).collect()
}
