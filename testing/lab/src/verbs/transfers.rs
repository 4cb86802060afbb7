//! Frames between hosts, by the command that users have: all of them, and bytes as ffmpeg has them.

use super::command::{LIMIT, summary};
use super::{Case, Lab, Site};
use crate::vm::network::IpVersion;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// From where, and where to.
const WAYS: [(Site, Site); 3] = [
    (Site::Host, Site::Left),
    (Site::Left, Site::Host),
    (Site::Right, Site::Left),
];

/// The ports of the first guest's switch: towards its device, and towards the host.
const PORTS: [&str; 2] = ["port0", "eth0"];

/// Frames of the demo.
const DEMO_FRAMES: u64 = 3000;

/// Adds the cases.
pub fn add(cases: &mut Vec<Case>) {
    let name = format!("transfers/demo/{DEMO_FRAMES} frames over one queue pair");
    cases.push(Case::new(name, demo));
    for (from, to) in WAYS {
        for version in [IpVersion::V4, IpVersion::V6] {
            let name = format!("transfers/{from} to {to}/a clip arrives byte for byte/{version}");
            cases.push(Case::new(name, move |lab| clip(lab, from, to, version)));
        }
        let name = format!("transfers/{from} to {to}/a clip over a link that loses 1 %");
        cases.push(Case::new(name, move |lab| lossy(lab, from, to)));
    }
}

/// Source and collector in one guest, both over its RDMA device. An emulated machine may need
/// longer than the usual ten seconds for so many frames.
fn demo(lab: &mut Lab) -> Result<()> {
    let mut best = 0;
    for seconds in ["15", "60", "120"] {
        let site = Site::Left;
        let words = [
            "demo",
            "--json",
            "--no-dashboard",
            "--provider",
            site.provider(),
            "--rate",
            "max",
            "--format",
            "64x48:rgb24",
            "--seconds",
            seconds,
        ];
        let mut process = lab.catchment(site, &words)?;
        let demo = summary(process.wait(2 * LIMIT)?)?;
        best = verified(&demo, site)?;
        if best >= DEMO_FRAMES {
            return Ok(());
        }
    }
    anyhow::bail!("{best} frames in two minutes, expected {DEMO_FRAMES}")
}

/// How many frames a demo has verified: all that it sent.
fn verified(demo: &Value, site: Site) -> Result<u64> {
    let sent = demo["frames_sent"].as_u64().context("frames_sent")?;
    let exact = [
        ("queue_pairs", Value::from(1)),
        ("provider", Value::from(site.provider())),
        ("frames_received", Value::from(sent)),
        ("frames_verified", Value::from(sent)),
        ("frames_lost", Value::from(0)),
    ];
    for (key, expected) in exact {
        ensure!(demo[key] == expected, "{key} is not {expected}: {demo}");
    }
    Ok(sent)
}

fn clip(lab: &mut Lab, from: Site, to: Site, version: IpVersion) -> Result<()> {
    let collector = lab.collect(to, version, &["--provider", to.provider()])?;
    let words = ["--rate", "max", "--provider", from.provider()];
    let sent = lab.send(from, &words, &collector)?.wait(LIMIT)?;
    summary(sent)?;
    lab.check_clip(&collector, &[lab.clip_frames()])?;
    let collected = collector.end()?;
    for (key, expected) in [
        ("provider", Value::from(to.provider())),
        ("frames_lost", 0.into()),
    ] {
        ensure!(
            collected[key] == expected,
            "{key} is not {expected}: {collected}"
        );
    }
    Ok(())
}

/// The switch of the first guest, which is on every way, loses packets of both directions.
fn lossy(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    for port in PORTS {
        let impair = [
            "tc", "qdisc", "add", "dev", port, "root", "netem", "loss", "1%",
        ];
        lab.run(Site::Left, &impair, LIMIT)?;
    }
    let outcome = clip(lab, from, to, IpVersion::V4);
    let mut dropped = 0;
    for port in PORTS {
        dropped += drops(lab, port)?;
        let end = ["tc", "qdisc", "del", "dev", port, "root"];
        lab.run(Site::Left, &end, LIMIT)?;
    }
    outcome?;
    ensure!(dropped > 0, "no packet was lost");
    Ok(())
}

/// Packets that a port of the switch has dropped.
fn drops(lab: &mut Lab, port: &str) -> Result<u64> {
    let words = ["tc", "-s", "-j", "qdisc", "show", "dev", port];
    let queues: Value = serde_json::from_str(&lab.run(Site::Left, &words, LIMIT)?.stdout)?;
    queues[0]["drops"].as_u64().context("tc counts no drops")
}
