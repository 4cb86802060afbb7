//! Frames between hosts, by the `catchment` command: all arrive, with the bytes that ffmpeg decodes.
use super::clip::FRAMES as CLIP_FRAMES;
use super::command::{LIMIT, summary};
use super::faults::SITES;
use crate::lab::{Case, Lab, Site};
use crate::loss::{Impairment, PORTS};
use crate::vm::network::IpVersion;
use anyhow::{Result, ensure};
use catchment_conformance::pattern;
use serde_json::{Value, json};

const DEMO_FRAMES: u64 = 3000;
const DEVICE_FRAMES: &str = "250";
const DEMO_REQUESTS: &str = "2";
const LONG_FORMAT: &str = "2048x2048:rgb24";
const LONG_FRAME_BYTES: usize = 12 << 20;
const LONG_FRAMES: usize = 3;

pub(crate) fn add(cases: &mut Vec<Case>) {
    let name = format!("transfers/demo/{DEMO_FRAMES} frames over one queue pair, least queues");
    cases.push(Case::new(name, demo));
    for (from, to) in SITES {
        for version in [IpVersion::V4, IpVersion::V6] {
            let name = format!("transfers/{from} to {to}/a clip arrives byte for byte/{version}");
            cases.push(Case::new(name, move |lab| clip(lab, from, to, version)));
        }
        let name = format!("transfers/{from} to {to}/frames of 12 MiB");
        cases.push(Case::new(name, move |lab| long_frames(lab, from, to)));
        let name = format!("transfers/{from} to {to}/a clip over a link that loses 1 %");
        cases.push(Case::new(name, move |lab| lossy(lab, from, to)));
    }
}

/// Runs source and collector in one guest, over its RDMA device, with the queues of Figures 16 and 17:
/// two requests and one completion at the source, no receives at either end.
fn demo(lab: &mut Lab) -> Result<()> {
    let site = Site::Left;
    // The demo ends at its last frame, before that time.
    let words = format!(
        "demo --json --no-dashboard --provider {} --rate max --format 64x48:rgb24 --seconds 200 \
         --frames {DEVICE_FRAMES} --send-queue {DEMO_REQUESTS}",
        site.provider()
    );
    let words: Vec<_> = words.split(' ').collect();
    let mut process = lab.catchment(site, &words)?;
    let demo = summary(process.wait(2 * LIMIT)?)?;
    check_demo(&demo, site)
}

/// Fails unless the summary of a demo has all frames verified, over one queue pair with minimal queues.
fn check_demo(demo: &Value, site: Site) -> Result<()> {
    let queues = |send| json!({ "send": send, "receive": 0, "completions": 1 });
    let exact = [
        ("queue_pairs", Value::from(1)),
        ("provider", Value::from(site.provider())),
        ("source_provider", Value::from(site.provider())),
        ("frames_sent", Value::from(DEMO_FRAMES)),
        ("frames_received", Value::from(DEMO_FRAMES)),
        ("frames_verified", Value::from(DEMO_FRAMES)),
        ("frames_lost", Value::from(0)),
        ("queues_source", queues(2)),
        // Verbs require a send queue; nothing is posted to it.
        ("queues_collector", queues(1)),
    ];
    for (key, expected) in exact {
        ensure!(demo[key] == expected, "{key} is not {expected}: {demo}");
    }
    Ok(())
}

fn clip(lab: &mut Lab, from: Site, to: Site, version: IpVersion) -> Result<()> {
    let collector = lab.collect(to, version, &["--provider", to.provider()])?;
    let words = ["--rate", "max", "--provider", from.provider()];
    let sent = lab.send(from, &words, &collector)?.wait(LIMIT)?;
    summary(sent)?;
    lab.check_clip(&collector, &[CLIP_FRAMES])?;
    let collected = collector.end()?;
    for (key, expected) in [("provider", Value::from(to.provider())), ("frames_lost", 0.into())] {
        ensure!(collected[key] == expected, "{key} is not {expected}: {collected}");
    }
    Ok(())
}

/// Each frame is one block, longer than the 8 MiB that a message of the kernel's device may have.
fn long_frames(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    let input = lab.write("long.raw", &pattern(1, LONG_FRAMES * LONG_FRAME_BYTES))?;
    let collector = lab.collect(to, IpVersion::V4, &["--provider", to.provider()])?;
    let words = ["--format", LONG_FORMAT, "--provider", from.provider()];
    let mut source = lab.send_input(from, &input, &words, &collector)?;
    summary(source.wait(LIMIT)?)?;
    lab.check_frames(&collector, LONG_FRAMES, &input)?;
    collector.end().map(drop)
}

/// The switch of the first guest, which every packet passes, loses packets of both directions.
fn lossy(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    for port in PORTS {
        let impair = ["tc", "qdisc", "add", "dev", port, "root", "netem", "loss", "1%"];
        lab.run(Site::Left, &impair, LIMIT)?;
    }
    let outcome = clip(lab, from, to, IpVersion::V4);
    let lost = Impairment::end(lab.guest(0)?)?;
    outcome?;
    ensure!(lost.by_chance > 0, "no packet was lost");
    Ok(())
}
