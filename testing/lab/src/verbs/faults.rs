//! Failures in mid-stream: of processes, the link, the device. The other side continues, and nothing
//! is missing after the recovery.
use super::clip::FRAMES as CLIP_FRAMES;
use super::command::{Collector, LIMIT, complaint, summary};
use crate::lab::{Case, Lab, Site};
use crate::remote::Ended;
use crate::remote::process::Process;
use crate::vm::network::IpVersion;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const SITES: [(Site, Site); 3] =
    [(Site::Host, Site::Left), (Site::Left, Site::Host), (Site::Right, Site::Left)];

const SIGKILL: i32 = 9;

/// The frame, of the clip's 50, after which something fails.
const MIDDLE: u64 = 10;

/// Slow enough that 8 s remain, in which a busy machine must remove a device.
const RATE: [&str; 2] = ["--rate", "5"];

const DEVICE: &str = "rxe0";
const INTERFACE: &str = "roce0";

/// Longer than queue pairs retry with the default attributes.
const LONG_OUTAGE: Duration = Duration::from_secs(6);

const SHORT_OUTAGE: Duration = Duration::from_millis(100);

/// Exit status of a source that its collector refuses, or that finds none.
const REFUSED: i32 = 3;

type Run = fn(&mut Lab, Site, Site) -> Result<()>;

pub(crate) fn add(cases: &mut Vec<Case>) {
    let all: [(&str, Run); 6] = [
        ("source killed", source_killed),
        ("collector killed", collector_killed),
        ("link down for a moment", |lab, from, to| outage(lab, from, to, SHORT_OUTAGE)),
        ("link down until everybody gave up", |lab, from, to| outage(lab, from, to, LONG_OUTAGE)),
        ("device removed", removed),
        ("device removed, others allowed", replaced),
    ];
    for (from, to) in SITES {
        for (name, run) in all {
            let name = format!("faults/{from} to {to}/{name}");
            cases.push(Case::new(name, move |lab: &mut Lab| run(lab, from, to)));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// At either end, only the provider of its site.
    OnlyOwn,
    /// Any provider, as the source chooses.
    Any,
}

impl Rules {
    fn words(self, site: Site) -> Vec<&'static str> {
        match self {
            Self::OnlyOwn => vec!["--provider", site.provider()],
            Self::Any => Vec::new(),
        }
    }
}

struct Stream {
    collector: Collector,
    source: Process,
}

impl Stream {
    fn begin(lab: &mut Lab, from: Site, to: Site, rules: Rules) -> Result<Self> {
        let collector = lab.collect(to, IpVersion::V4, &rules.words(to))?;
        let words = [&RATE[..], &rules.words(from)].concat();
        let source = lab.send(from, &words, &collector)?;
        collector.wait_for_frames(MIDDLE)?;
        Ok(Self { collector, source })
    }

    fn arrive(&mut self, lab: &mut Lab) -> Result<Value> {
        let sent = summary(self.source.wait(LIMIT).context("the source")?)?;
        lab.check_clip(&self.collector, &[CLIP_FRAMES])?;
        Ok(sent)
    }

    /// Waits for its end and fails unless the clip arrived exactly once. Returns both summaries.
    fn end(mut self, lab: &mut Lab) -> Result<(Value, Value)> {
        let arrived = self.arrive(lab);
        let sent = arrived.with_context(|| self.collector.process.output_so_far())?;
        let collected = self.collector.end().context("the collector")?;
        Ok((sent, collected))
    }
}

/// Runs another source to its end, then ends the collector, which must have the first frames of one
/// source and all of the next.
fn send_again(lab: &mut Lab, from: Site, collector: Collector) -> Result<()> {
    let words = ["--rate", "max", "--provider", from.provider()];
    let mut second = lab.send(from, &words, &collector)?;
    summary(second.wait(LIMIT).context("the second source")?)?;
    let whole = CLIP_FRAMES;
    let all = lab.count_frames(&collector)?;
    let first = all.checked_sub(whole);
    let first = first.context("frames of the second source are missing")?;
    lab.check_clip(&collector, &[first, whole])?;
    collector.end()?;
    Ok(())
}

/// The frames of the next source of the same device follow those of the first.
fn source_killed(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    let mut stream = Stream::begin(lab, from, to, Rules::OnlyOwn)?;
    stream.source.signal(SIGKILL)?;
    let ended = stream.source.wait(LIMIT)?.ended;
    ensure!(ended == Ended::Signal(SIGKILL), "the source ended before it was killed");
    send_again(lab, from, stream.collector)
}

/// The next collector at the same address receives the rest.
fn collector_killed(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    let mut stream = Stream::begin(lab, from, to, Rules::OnlyOwn)?;
    stream.collector.process.signal(SIGKILL)?;
    stream.collector.process.wait(LIMIT)?;
    let out = stream.collector.out.clone();
    let rules = ["--provider", to.provider()];
    stream.collector = lab.collect_into(to, IpVersion::V4, out, &rules)?;
    let (sent, _) = stream.end(lab)?;
    check_reconnects(&sent)
}

fn check_reconnects(sent: &Value) -> Result<()> {
    let reconnects = sent["reconnects"].as_u64();
    ensure!(reconnects >= Some(1), "{reconnects:?} reconnects");
    Ok(())
}

fn outage(lab: &mut Lab, from: Site, to: Site, length: Duration) -> Result<()> {
    let stream = Stream::begin(lab, from, to, Rules::OnlyOwn)?;
    let down = Instant::now();
    lab.run(Site::Left, &["ip", "link", "set", "port0", "down"], LIMIT)?;
    // Timers of the stacks expire in this time, or do not.
    thread::sleep(length);
    lab.run(Site::Left, &["ip", "link", "set", "port0", "up"], LIMIT)?;
    let down = down.elapsed().as_secs_f64();
    let ended = stream.end(lab);
    // On a busy machine the commands may take longer than a short outage.
    ended.with_context(|| format!("the link was down for {down:.1} s instead of {length:?}"))?;
    Ok(())
}

/// The first guest loses its device while no other provider is allowed: the source ends with a reason.
/// The collector stays, and once the device is back, a new source delivers the rest.
fn removed(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    let mut stream = Stream::begin(lab, from, to, Rules::OnlyOwn)?;
    lab.run(Site::Left, &["rdma", "link", "delete", DEVICE], LIMIT)?;
    let ended = stream.source.wait(LIMIT);
    let add = ["rdma", "link", "add", DEVICE, "type", "rxe", "netdev", INTERFACE];
    lab.run(Site::Left, &add, LIMIT)?;
    let message = complaint(ended?, REFUSED)?;
    for word in ["ibverbs", "10.77.0.2"] {
        ensure!(message.contains(word), "{word} is not named: {message}");
    }
    // During its removal the device still has a name; afterwards the interface has no device.
    let removing = message.contains(DEVICE) && message.contains("the device is being removed");
    ensure!(removing || message.contains(INTERFACE), "the removal is not named: {message}");
    send_again(lab, from, stream.collector)
}

/// The first guest loses its device while all providers are allowed: the stream moves to user space.
fn replaced(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    let stream = Stream::begin(lab, from, to, Rules::Any)?;
    lab.run(Site::Left, &["rdma", "link", "delete", DEVICE], LIMIT)?;
    let ended = stream.end(lab);
    let add = ["rdma", "link", "add", DEVICE, "type", "rxe", "netdev", INTERFACE];
    lab.run(Site::Left, &add, LIMIT)?;
    let (sent, collected) = ended?;
    check_reconnects(&sent)?;
    let provider = if to == Site::Left { "provider" } else { "source_provider" };
    ensure!(collected[provider] == "roce", "{collected}");
    Ok(())
}
