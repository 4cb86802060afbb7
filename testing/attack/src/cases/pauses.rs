//! Part 5: pauses, older attempts, and who may end a session.
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::place::User;
use crate::host::process::{LIMIT, Process, pass, poll};
use crate::learned::nobody;
use crate::report::Verdict;
use crate::scene::{Check, Scene, Setup, attacked, bystander, goes_on, newest_frame};
use crate::wire::relay::Relay;
use crate::wire::session::Peer;
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    slow(
        "5.pause-collector",
        "A collector that stands still for 15 s ends none of 40 sources",
        |h, n| pause(h, n, 40, Duration::from_secs(15)),
    ),
    slow(
        "5.pause-source",
        "Sources that stand still for longer than the lease go on",
        pause_source,
    ),
    quick(
        "5.replayed-hello",
        "A replayed Hello does not end a live source, nor lose frames in silence",
        |h, n| {
            attacked(h, n, &Setup { relay: true, ..Setup::over("shm") }, |scene| {
                again(scene, false)
            })
        },
    ),
    quick("5.forged-hello", "Who knows a source's number cannot take its devices over", |h, n| {
        attacked(h, n, &Setup { relay: true, ..Setup::over("shm") }, |scene| again(scene, true))
    }),
    slow(
        "4.superseded",
        "A source superseded by an older attempt of its own tries on",
        older_attempt,
    ),
    quick(
        "5.live-name",
        "A name in use by another live process is refused, and its stream goes on",
        |h, n| attacked(h, n, &Setup::over("shm"), live_name),
    ),
];

fn pause(host: &Host, name: &str, sources: usize, time: Duration) -> Result<Verdict> {
    let setup =
        Setup { bystanders: sources, input: "synthetic:16x16:gray", rate: 2, ..Setup::over("shm") };
    let setup = setup.collect(&["--ring-bytes", "1MiB", "--lease", "2"]);
    let mut scene = Scene::start(host, name, &setup)?;
    scene.collector.signal(Signal::STOP);
    pass(time);
    scene.collector.signal(Signal::CONT);
    let then: Vec<u64> =
        (0..sources).map(|n| newest_frame(&scene.out().join(bystander(n)))).collect();
    let moved = |n: &usize| newest_frame(&scene.out().join(bystander(*n))) > then[*n] + 4;
    poll(LIMIT, || (0..sources).all(|n| moved(&n)).then_some(()));
    let still = (0..sources).filter(|n| !moved(n)).count();
    let ended: Vec<String> = scene
        .sources
        .iter_mut()
        .filter_map(|source| source.code().map(|code| format!("{code}: {}", source.last_line())))
        .collect();
    let faults = scene.finish()?;
    let text = format!(
        "{} of {sources} sources ended ({:?}), {still} stand; {} faults at the end",
        ended.len(),
        ended.first(),
        faults.len()
    );
    Ok(Verdict::new(ended.is_empty() && still == 0 && faults.is_empty(), text))
}

fn pause_source(host: &Host, name: &str) -> Result<Verdict> {
    let mut scene = Scene::start(host, name, &Setup::over("shm"))?;
    scene.sources[0].signal(Signal::STOP);
    pass(Duration::from_secs(7));
    scene.sources[0].signal(Signal::CONT);
    let moved = goes_on(&scene.out().join(bystander(0)), 50).is_ok();
    let faults = scene.finish()?;
    Ok(Verdict::new(
        moved && faults.is_empty(),
        format!("moved on: {moved}; {}", faults.join("; ")),
    ))
}

/// Says a live source's Hello again: word by word, or one made with its number.
fn again(scene: &mut Scene<'_>, made: bool) -> Result<Check> {
    let mut hello = scene.relays[0].message("hello").context("no Hello was said")?;
    if made {
        // What is known of the source, in an attempt that looks newer.
        hello["software"] = json!("another process");
        if hello["attempt"].is_u64() {
            hello["attempt"] = json!(1_000_000);
        }
    }
    let args = json!({ "address": scene.address, "texts": [hello.to_string()], "seconds": 1.0 });
    let sessions = scene.relays[0].connections();
    let found = scene.attack(User::Other, "raw", &args)?;
    let answer: Value =
        serde_json::from_str(found["answers"][0].as_str().unwrap_or_default()).unwrap_or_default();
    pass(Duration::from_millis(500));
    let new = scene.relays[0].connections() - sessions;
    let ended = scene.sources[0].code();
    let text = format!(
        "answered {}; the source connected {new} times more, its end: {ended:?}",
        answer["code"].as_str().or(answer["type"].as_str()).unwrap_or("nothing")
    );
    Ok((ended.is_none() && new == 0, text))
}

/// The first attempt arrives when the source has given it up and is served on another one.
fn older_attempt(host: &Host, name: &str) -> Result<Verdict> {
    let mut scene = Scene::start(host, name, &Setup { bystanders: 0, ..Setup::over("shm") })?;
    let relay = Relay::with(Ipv4Addr::LOCALHOST, scene.address, |number, message| {
        (number > 0 || message["type"] != "hello").then_some(message)
    })?;
    let mut command = scene.source_command("late", relay.address);
    let mut source = scene.start_source(&mut command, "late")?;
    let folder = scene.out().join("late");
    goes_on(&folder, 20)?;
    let older = relay.message("hello").context("no Hello was said")?;
    let args = json!({ "address": scene.address, "texts": [older.to_string()], "seconds": 0.5 });
    scene.attack(User::Same, "raw", &args)?;
    pass(Duration::from_secs(2));
    let moved = source.code().is_none() && goes_on(&folder, 50).is_ok();
    let code = if moved { source.stop()? } else { source.code().unwrap_or(0) };
    let faults = scene.finish()?;
    let text = format!(
        "moved on: {moved}, ended with {code}: {}; {}",
        source.last_line(),
        faults.join("; ")
    );
    Ok(Verdict::new(moved && code == 0 && faults.is_empty(), text))
}

fn live_name(scene: &mut Scene<'_>) -> Result<Check> {
    let mut command = scene.source_command(&bystander(0), scene.address);
    command.args(["--frames", "5", "--wait", "3"]);
    let mut source = scene.start_source(&mut command, "second")?;
    let code = source.finish()?;
    Ok((code == 3, format!("the second source ended with {code}: {}", source.last_line())))
}

/// A collector that answers every Hello with this refusal.
pub(super) fn refusing(refusal: Value) -> Result<std::net::SocketAddr> {
    let address = nobody()?;
    let listener = std::net::TcpListener::bind(address)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut peer = Peer::over(stream);
            let _ = peer.receive().and_then(|_| peer.send(&refusal));
        }
    });
    Ok(address)
}

/// A source whose collector is this one; how it ended in 20 s.
pub(super) fn refused_by(host: &Host, name: &str, refusal: Value) -> Result<(Option<i32>, String)> {
    let folder = host.folder(name)?;
    let address = refusing(refusal)?;
    let mut command = host.catchment();
    command.args(["send", "--input", "synthetic:16x16:gray", "--device", "cam"]);
    let mut source = Process::start(command.arg(address.to_string()), &folder.path, "send")?;
    let code = source.end_within(Duration::from_secs(6));
    Ok((code, source.said()))
}
