//! Part 5: logs, signals, descriptors, and what idling costs.
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::place::User;
use crate::host::process::{LIMIT, Process, pass, poll};
use crate::learned::few_descriptors;
use crate::report::Verdict;
use crate::scene::{Check, Scene, Setup, attacked, bystander, newest_frame};
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::process::Command;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick("5.log-connections", "Bad connections do not write a line each", |h, n| {
        attacked(h, n, &Setup::over("shm"), log_of_connections)
    }),
    slow("5.log-disk", "A cause that repeats is one line with a count", log_of_disk),
    quick("5.two-signals", "Two signals within a second are one", two_signals),
    quick(
        "5.descriptor-limit",
        "The soft limit of descriptors is raised to the hard one",
        soft_limit,
    ),
    quick("5.descriptors-shm", "A session over shm takes at most four descriptors", |h, n| {
        attacked(h, n, &Setup::over("shm"), few_descriptors)
    }),
    slow(
        "5.descriptors-out",
        "Exhausted descriptors are named, harm no session, and newcomers wait",
        exhausted,
    ),
    slow("5.idle", "Idle sources cost a collector little: processor, threads, descriptors", idle),
];

fn log_of_connections(scene: &mut Scene<'_>) -> Result<Check> {
    let lines = |scene: &Scene<'_>| scene.collector.stderr().lines().count();
    let before = lines(scene);
    let args = json!({ "address": scene.address, "count": 8 });
    let found = scene.attack(User::Other, "garbage", &args)?;
    let strangers = scene.attack(User::Other, "strangers", &json!({}))?;
    pass(Duration::from_millis(300));
    let more = lines(scene) - before;
    let text = format!(
        "{more} lines for {} bad connections of 7 kinds, and strangers at {} sockets of shared memory",
        found["sent"], strangers["contexts"]
    );
    Ok((more <= 9, text))
}

fn log_of_disk(host: &Host, name: &str) -> Result<Verdict> {
    let mut folder = host.folder(name)?;
    let disk = folder.small_disk("disk", "20m")?;
    let mut command = host.catchment();
    command.args(["collect", "--json", "--no-dashboard", "--listen", "127.0.0.1:0", "--out"]);
    let mut collector = Process::start(command.arg(disk.join("out")), &folder.path, "collect")?;
    let listening = collector.wait_event("listening")?;
    let address = listening["address"].as_str().context("no address")?.to_owned();
    fs::write(disk.join("other"), vec![1; 19 << 20])?;
    let start = |number: usize| {
        let mut command = host.catchment();
        command.args(["send", "--input", "synthetic:160x120:rgb24", "--rate", "50", "--device"]);
        command.args([&bystander(number), &address]);
        Process::start(&mut command, &folder.path, "send")
    };
    let _sources: Vec<Process> = (0..3).map(start).collect::<Result<_>>()?;
    pass(Duration::from_secs(6));
    let lines = collector.stderr().lines().filter(|line| line.contains("WARN")).count();
    Ok(Verdict::new(lines <= 6, format!("{lines} warnings in 6 s for 3 devices without disk")))
}

fn two_signals(host: &Host, name: &str) -> Result<Verdict> {
    let mut codes = Vec::new();
    for round in 0..6_u64 {
        let mut scene = Scene::start(host, name, &Setup { bystanders: 1, ..Setup::over("shm") })?;
        let Scene { sources, collector, .. } = &mut scene;
        for process in [&mut sources[0], collector] {
            process.signal(Signal::TERM);
            pass(Duration::from_millis(round * 7));
            process.signal(Signal::TERM);
            codes.extend(process.end_within(LIMIT));
        }
    }
    let held = codes.iter().all(|code| *code == 0) && codes.len() == 12;
    Ok(Verdict::new(held, format!("exit codes {codes:?}")))
}

/// A collector with these limits of descriptors.
fn limited(host: &Host, folder: &crate::host::Folder, limits: &str) -> Result<Process> {
    let mut command = crate::host::as_victim("/usr/bin/prlimit".as_ref());
    command.arg(format!("--nofile={limits}")).arg(&host.binary);
    command.args(["collect", "--json", "--no-dashboard", "--listen", "127.0.0.1:0", "--out"]);
    command.arg(folder.join("out")).args(["--ring-bytes", "1MiB"]);
    Process::start(command.current_dir(&folder.path), &folder.path, "collect")
}

fn soft_limit(host: &Host, name: &str) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let mut collector = limited(host, &folder, "256:4096")?;
    collector.wait_event("listening")?;
    let limits = fs::read_to_string(format!("/proc/{}/limits", collector.id()))?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    Ok(Verdict::new(words.get(3) == Some(&"4096"), line))
}

fn exhausted(host: &Host, name: &str) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let mut collector = limited(host, &folder, "80:80")?;
    let listening = collector.wait_event("listening")?;
    let address = listening["address"].as_str().context("no address")?.to_owned();
    let start = |number: usize| {
        let mut command = host.catchment();
        command.args([
            "send", "--json", "--input", "synthetic:64x48:rgb24", "--rate", "20", "--device",
        ]);
        command.args([&bystander(number), &address]).current_dir(&folder.path);
        Process::start(&mut command, &folder.path, "send")
    };
    let frames = |number| newest_frame(&folder.join("out").join(bystander(number)));
    let mut sources: Vec<Process> = vec![start(0)?];
    poll(LIMIT, || (frames(0) > 5).then_some(()));
    for number in 1..20 {
        sources.push(start(number)?);
    }
    pass(Duration::from_secs(5));
    let then = frames(0);
    let flows = poll(Duration::from_secs(5), || (frames(0) > then + 20).then_some(())).is_some();
    let waiting: Vec<usize> = (1..20).filter(|n| frames(*n) == 0).collect();
    let ended = sources.iter_mut().filter_map(Process::code).count();
    let said: String = sources.iter().map(Process::said).chain([collector.said()]).collect();
    let named = said.contains("descriptor") && !said.contains("same version");
    // Others leave; who waits is served.
    for number in (1..20).filter(|n| !waiting.contains(n)) {
        sources[number].signal(Signal::TERM);
    }
    let some_came = || waiting.iter().any(|n| frames(*n) > 0).then_some(());
    let served = poll(Duration::from_secs(30), some_came).is_some();
    let text = format!(
        "{} of 20 wait, {ended} ended, the first stream flows: {flows}, descriptors named: {named}, served later: {served}",
        waiting.len()
    );
    Ok(Verdict::new(flows && named && served && ended == 0 && !waiting.is_empty(), text))
}

/// What an idle source may cost: a tenth of what 300 of them cost once, scaled, and four descriptors.
const SOURCES: usize = 40;

fn idle(host: &Host, name: &str) -> Result<Verdict> {
    let setup = Setup { bystanders: 0, ..Setup::over("shm") }
        .collect(&["--ring-bytes", "1MiB", "--lease", "10"]);
    let scene = Scene::start(host, name, &setup)?;
    let before = scene.collector.usage();
    let start = |number: usize| {
        let mut command: Command = host.catchment();
        command.args(["send", "--input", "synthetic:16x16:gray", "--rate", "1/60", "--device"]);
        command.args([&bystander(number), &scene.address.to_string()]);
        Process::start(&mut command, &scene.folder.path, "idle")
    };
    let _sources: Vec<Process> = (0..SOURCES).map(start).collect::<Result<_>>()?;
    let all = || (0..SOURCES).all(|n| newest_frame(&scene.out().join(bystander(n))) > 0);
    let came = poll(LIMIT, || all().then_some(())).is_some();
    pass(Duration::from_secs(2));
    let (then, seconds) = (scene.collector.usage(), 10.0);
    pass(Duration::from_secs_f64(seconds));
    let now = scene.collector.usage();
    let percent = (now.cpu_s - then.cpu_s) / seconds * 100.0;
    let (threads, fds) = (now.threads - before.threads, now.fds - before.fds);
    let held = came && percent <= 1.0 && threads <= 8 && fds <= 4 * SOURCES + 8;
    let text = format!(
        "{SOURCES} idle sources: {percent:.1} % of a core, {threads} threads, {fds} descriptors"
    );
    Ok(Verdict::new(held, text))
}
