//! Part 5: both sides of a refusal, and pages that must hold as written.
use super::pauses::refused_by;
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::place::User;
use crate::host::process::{Process, pass};
use crate::report::Verdict;
use crate::scene::{Scene, Setup};
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick(
        "4.version-source",
        "A source that no collector speaks with says both versions and what to update",
        |h, n| {
            let reason = "the source speaks versions 2 to 2, this collector 98 to 99";
            let (code, said) = refused_by(h, n, refusal("protocol_version", reason))?;
            let held =
                code == Some(3) && said.contains("98") && said.to_lowercase().contains("update");
            Ok(Verdict::new(held, format!("ended with {code:?}: {said}")))
        },
    ),
    quick("4.superseded-retry", "send that is told superseded tries on", |h, n| {
        let (code, said) =
            refused_by(h, n, refusal("superseded", "a newer session of the same source"))?;
        Ok(Verdict::new(code.is_none(), format!("ended with {code:?}: {said}")))
    }),
    quick("4.shm-version", "The handshake of shared memory carries a version", |h, n| {
        let mut scene = Scene::start(h, n, &Setup::over("shm"))?;
        let found = scene.attack(User::Same, "shm_versions", &json!({}))?;
        let faults = scene.finish()?;
        let answers = found["answers"].as_array().cloned().unwrap_or_default();
        let held = !answers.is_empty()
            && answers.iter().all(|version| (1..99).contains(&version.as_u64().unwrap_or(0)));
        Ok(Verdict::new(
            held && faults.is_empty(),
            format!("connections of another version: {}", found["answers"]),
        ))
    }),
    slow(
        "5.drops-agree",
        "Dropped frames are the same number at both ends, as send.md says",
        drops,
    ),
    quick("5.root-accepted", "What SECURITY.md says of root holds", root),
    quick("5.loopback6", "A collector at [::1] is reached over ::1 by RoCE too", loopback6),
    quick(
        "5.port-taken",
        "A taken UDP port is said without -v, as two-machines.md has it",
        port_taken,
    ),
];

fn refusal(code: &str, reason: &str) -> Value {
    // As this page has it; before that, one that was superseded never came back.
    let retry = (code == "superseded").then_some(1000);
    json!({ "type": "refused", "code": code, "reason": reason, "remedy": "update the source", "retry_after_ms": retry })
}

fn drops(host: &Host, name: &str) -> Result<Verdict> {
    let setup =
        Setup { bystanders: 1, rate: 2000, input: "synthetic:64x48:rgb24", ..Setup::over("shm") };
    let setup = setup.send(&["--policy", "drop-newest"]).collect(&["--ring-bytes", "256KiB"]);
    let mut scene = Scene::start(host, name, &setup)?;
    for _ in 0..5 {
        scene.collector.signal(Signal::STOP);
        pass(Duration::from_millis(300));
        scene.collector.signal(Signal::CONT);
        pass(Duration::from_millis(200));
    }
    // The end comes while frames are being dropped.
    scene.collector.signal(Signal::STOP);
    pass(Duration::from_millis(300));
    scene.sources[0].signal(Signal::TERM);
    pass(Duration::from_millis(100));
    scene.collector.signal(Signal::CONT);
    scene.sources[0].finish()?;
    scene.collector.stop()?;
    let sent = scene.sources[0].event("summary").context("no summary of the source")?;
    let got = scene.collector.event("summary").context("no summary of the collector")?;
    let here = sent["devices"][0]["frames_dropped"].as_u64();
    let causes = ["oldest", "newest", "reconnect"].map(|cause| format!("frames_dropped_{cause}"));
    let told: Vec<u64> = causes.iter().filter_map(|field| got[field].as_u64()).collect();
    // A build that tells no causes has what the blocks themselves said.
    let there =
        if told.is_empty() { got["frames_skipped"].as_u64() } else { Some(told.iter().sum()) };
    let held = here == there && here > Some(0);
    Ok(Verdict::new(held, format!("{here:?} dropped by the source, {there:?} at the collector")))
}

fn root(host: &Host, name: &str) -> Result<Verdict> {
    let mut scene = Scene::start(host, name, &Setup { bystanders: 0, ..Setup::over("shm") })?;
    let mut command = std::process::Command::new(&host.binary);
    command.args([
        "send", "--json", "--input", "synthetic:16x16:gray", "--frames", "3", "--wait", "3",
    ]);
    command.args(["--require", "shm"]).arg(scene.address.to_string());
    let mut source = Process::start(&mut command, &scene.folder.path, "root")?;
    let code = source.finish()?;
    scene.finish()?;
    let page = std::fs::read_to_string(host.docs.join("SECURITY.md"))?;
    let promised = page.contains("root is accepted");
    let text = format!(
        "root's source ended with {code}, SECURITY.md says that root is accepted: {promised}"
    );
    Ok(Verdict::new((code == 0) == promised, text))
}

fn loopback6(host: &Host, name: &str) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let mut command = host.catchment();
    command.args(["collect", "--json", "--no-dashboard", "--listen", "[::1]:0", "--sink", "null"]);
    let mut collector = Process::start(&mut command, &folder.path, "collect")?;
    let listening = collector.wait_event("listening")?;
    let mut command = host.catchment();
    command.args([
        "send", "--json", "--provider", "roce", "--input", "synthetic:16x16:gray", "--frames", "3",
    ]);
    command.args(["--wait", "5"]).arg(listening["address"].as_str().context("no address")?);
    let mut source = Process::start(&mut command, &folder.path, "send")?;
    let code = source.finish()?;
    let session = source.event("session").unwrap_or_default();
    let address = session["collector_address"].as_str().unwrap_or_default().to_owned();
    let page = std::fs::read_to_string(host.docs.join("docs/guide/two-machines.md"))?;
    // What the page says of it is as good.
    let held = code == 0 && (address.contains("::1") || page.contains("`[::1]` too"));
    Ok(Verdict::new(held, format!("ended with {code}, over {address}: {}", source.last_line())))
}

fn port_taken(host: &Host, name: &str) -> Result<Verdict> {
    let page = std::fs::read_to_string(host.docs.join("docs/guide/two-machines.md"))?;
    let promised = page.contains("the log says so") && !page.contains("with `-v`");
    let _taken = std::net::UdpSocket::bind("127.0.0.1:4791");
    let mut scene = Scene::start(host, name, &Setup { bystanders: 1, ..Setup::over("roce") })?;
    scene.finish()?;
    let said = scene.collector.stderr() + &scene.sources[0].stderr();
    let told = said.contains("4791");
    Ok(Verdict::new(told || !promised, format!("said without -v: {told}, promised: {promised}")))
}
