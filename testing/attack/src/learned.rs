//! What the command says when a session goes well: models for messages by hand, whatever the version.
use crate::host::Host;
use crate::host::process::{LIMIT, Process, poll, wait_until};
use crate::scene::{Check, Scene, Setup};
use crate::wire::relay::Relay;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages of a session of one device.
pub(crate) struct Learned {
    pub(crate) hello: Value,
    pub(crate) connect: Value,
}

/// Holds one session over a provider, and notes what its source says.
pub(crate) fn learn(host: &Host, provider: &'static str) -> Result<Learned> {
    let setup = Setup { bystanders: 0, ..Setup::over(provider) };
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("learned-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut scene = Scene::start(host, &name, &setup)?;
    let relay = Relay::start(Ipv4Addr::LOCALHOST, scene.address)?;
    let mut command = scene.source_command("model", relay.address);
    command.args(["--frames", "3", "--wait", "30"]);
    let mut source = scene.start_source(&mut command, "model")?;
    ensure!(source.finish()? == 0, "no session to learn from: {}", source.last_line());
    scene.collector.stop()?;
    let said = |kind| relay.message(kind).with_context(|| format!("no {kind} was said"));
    Ok(Learned { hello: said("hello")?, connect: said("connect")? })
}

/// A session that the attacker holds itself, with the command: what it was told.
pub(crate) struct Own {
    pub(crate) source: Process,
    pub(crate) relay: Relay,
}

/// Opens a session as this device, as any process of the same user can.
pub(crate) fn own_session(scene: &Scene<'_>, device: &str, words: &[&str]) -> Result<Own> {
    let relay = Relay::start(Ipv4Addr::LOCALHOST, scene.address)?;
    let mut command = scene.source_command(device, relay.address);
    let mut source = scene.start_source(command.args(words), device)?;
    source.wait_event("session")?;
    Ok(Own { source, relay })
}

/// Checks that sessions take at most four descriptors each of a collector, and work.
pub(crate) fn few_descriptors(scene: &mut Scene<'_>) -> Result<Check> {
    let before = scene.collector.usage().fds;
    let start = |number| own_session(scene, &format!("own{number}"), &["--rate", "1"]);
    let own = (0..8).map(start).collect::<Result<Vec<_>>>()?;
    // What a session takes for the first frame is given back a moment later.
    let most = before + 4 * own.len();
    let few = poll(LIMIT, || (scene.collector.usage().fds <= most).then_some(()));
    let now = scene.collector.usage().fds.saturating_sub(before);
    let held = few.is_some() && own.iter().all(|own| own.source.event("session").is_some());
    Ok((held, format!("{now} descriptors for {} sessions", own.len())))
}

/// Opens a session whose source is never told that it is ready: its queue pair is for others to connect.
pub(crate) fn half_session(scene: &Scene<'_>, device: &str) -> Result<Own> {
    let hold = |_, message: Value| (message["type"] != "ready").then_some(message);
    let relay = Relay::with(Ipv4Addr::LOCALHOST, scene.address, hold)?;
    let mut command = scene.source_command(device, relay.address);
    let source = scene.start_source(&mut command, device)?;
    wait_until("the collector is ready", || relay.message("ready").is_some())?;
    Ok(Own { source, relay })
}

impl Own {
    pub(crate) fn told(&self, kind: &str, pointer: &str) -> Result<Value> {
        told(&self.relay, kind, pointer)
    }
}

/// What was said in a session: a member of the first message of this type.
pub(crate) fn told(relay: &Relay, kind: &str, pointer: &str) -> Result<Value> {
    let message = relay.message(kind).with_context(|| format!("no {kind} was said"))?;
    let member = message.pointer(pointer).cloned();
    member.with_context(|| format!("{kind} has no {pointer}"))
}

/// Where the ring of a relayed session lies at the collector, and its slots.
pub(crate) struct RingPlace {
    pub(crate) addr: u64,
    blocks: u64,
    block_bytes: u64,
}

impl RingPlace {
    pub(crate) fn of(relay: &Relay) -> Result<Self> {
        let number = |pointer| -> Result<u64> {
            told(relay, "welcome", pointer)?.as_u64().context("not a number")
        };
        let addr = told(relay, "welcome", "/ring/addr")?;
        Ok(Self {
            addr: u64::from_str_radix(addr.as_str().unwrap_or_default(), 16)?,
            blocks: number("/ring/blocks")?,
            block_bytes: number("/ring/block_bytes")?,
        })
    }

    /// Finds it among the mappings of the collector: an address of RDMA need not be one of memory.
    pub(crate) fn mapped_at(mut self, process: u32) -> Result<Self> {
        let bytes = 2 * self.blocks.next_multiple_of(64);
        let bytes = bytes.next_multiple_of(4096) + self.blocks * self.block_bytes;
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
        let shared =
            maps.lines().filter(|line| line.contains(" rw-s ") && line.contains("catchment"));
        let ranges = shared.filter_map(|line| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
        });
        let mut fitting =
            ranges.filter(|(from, to)| to - from >= bytes && to - from < bytes + 4096);
        let (from, _) =
            fitting.next().with_context(|| format!("no ring of {bytes} bytes is mapped"))?;
        self.addr = from;
        Ok(self)
    }

    /// A byte of the payload of each slot, `back` bytes before the header.
    pub(crate) fn payloads(&self, back: u64) -> impl Iterator<Item = u64> {
        let status = 2 * self.blocks.next_multiple_of(64);
        let first = self.addr + status.next_multiple_of(4096);
        let ends = (1..=self.blocks).map(move |slot| first + slot * self.block_bytes);
        ends.map(move |end| end - 64 - back)
    }
}

/// An address without anybody behind it.
pub(crate) fn nobody() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
