//! A collector with streams that nobody may disturb, and the judgement of what an attack did to them.
use crate::host::place::{self, Lan, User};
use crate::host::process::{LIMIT, Process, Usage, pass, poll, wait_until};
use crate::host::{Folder, Host};
use crate::report::Verdict;
use crate::wire::relay::Relay;
use anyhow::{Context as _, Result, bail};
use catchment_netns::Namespace;
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What is set up before an attack.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) provider: &'static str,
    /// Three hosts at a switch instead of loopback.
    pub(crate) lan: bool,
    pub(crate) bystanders: usize,
    pub(crate) input: &'static str,
    pub(crate) rate: u32,
    /// Words more for the collector and for sources.
    pub(crate) collect: Vec<String>,
    pub(crate) send: Vec<String>,
    /// The control connections of the bystanders go through a relay that notes what is said.
    pub(crate) relay: bool,
    /// Whether new directories of devices may stay.
    pub(crate) leaves_devices: bool,
}

impl Setup {
    pub(crate) fn over(provider: &'static str) -> Self {
        Self {
            provider,
            lan: false,
            bystanders: 2,
            input: "synthetic:160x120:rgb24",
            rate: 100,
            collect: Vec::new(),
            send: Vec::new(),
            relay: false,
            leaves_devices: true,
        }
    }

    pub(crate) fn lan() -> Self {
        Self { lan: true, bystanders: 1, relay: true, ..Self::over("roce") }
    }

    pub(crate) fn collect(mut self, words: &[&str]) -> Self {
        self.collect.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    pub(crate) fn send(mut self, words: &[&str]) -> Self {
        self.send.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }
}

/// A collector and its bystanders.
pub(crate) struct Scene<'h> {
    pub(crate) host: &'h Host,
    pub(crate) folder: Folder,
    pub(crate) lan: Option<Lan>,
    pub(crate) collector: Process,
    pub(crate) sources: Vec<Process>,
    pub(crate) relays: Vec<Relay>,
    pub(crate) address: SocketAddr,
    pub(crate) page: Option<SocketAddr>,
    pub(crate) setup: Setup,
    pub(crate) before: Usage,
    /// Processor time of attack programs so far.
    attack_cpu_s: f64,
}

impl<'h> Scene<'h> {
    pub(crate) fn start(host: &'h Host, name: &str, setup: &Setup) -> Result<Self> {
        let folder = host.folder(name)?;
        let lan = setup.lan.then(Lan::new).transpose()?;
        let mut command = collect_command(host, setup, &folder);
        let spawn = || Process::start(&mut command, &folder.path, "collect");
        let mut collector = inside(lan.as_ref().map(|lan| &lan.collector), spawn)?;
        let listening = collector.wait_event("listening")?;
        let address = listening["address"].as_str().and_then(|text| text.parse().ok());
        let page = listening["dashboard"].as_str().and_then(page_address);
        let mut scene = Self {
            host,
            folder,
            lan,
            collector,
            sources: Vec::new(),
            relays: Vec::new(),
            address: address.context("no address to connect to")?,
            page,
            setup: setup.clone(),
            before: Usage::default(),
            attack_cpu_s: 0.0,
        };
        for number in 0..setup.bystanders {
            scene.add_bystander(number)?;
        }
        scene.wait_for_frames()?;
        scene.before = scene.collector.usage();
        Ok(scene)
    }

    fn add_bystander(&mut self, number: usize) -> Result<()> {
        let mut address = self.address;
        if self.setup.relay {
            let ip = if self.lan.is_some() { place::SOURCE } else { Ipv4Addr::LOCALHOST };
            let start = || Relay::start(ip, self.address);
            let relay = inside(self.lan.as_ref().map(|lan| &lan.source), start)?;
            address = relay.address;
            self.relays.push(relay);
        }
        let mut command = self.source_command(&bystander(number), address);
        let source = self.start_source(&mut command, &bystander(number))?;
        self.sources.push(source);
        Ok(())
    }

    /// The command of a source like the bystanders, as this device.
    pub(crate) fn source_command(&self, device: &str, address: SocketAddr) -> Command {
        let mut command = self.host.catchment();
        command.args(["send", "--json", "--provider", self.setup.provider, "--device", device]);
        command.args(["--input", self.setup.input, "--rate", &self.setup.rate.to_string()]);
        if self.lan.is_some() && !self.setup.send.iter().any(|word| word == "--cert") {
            command.arg("--insecure");
        }
        command.args(&self.setup.send).arg(address.to_string());
        command.env("TMPDIR", &self.folder.path).current_dir(&self.folder.path);
        command
    }

    /// Starts a command on the host of the sources.
    pub(crate) fn start_source(&self, command: &mut Command, name: &str) -> Result<Process> {
        let start = || Process::start(command, &self.folder.path, name);
        inside(self.lan.as_ref().map(|lan| &lan.source), start)
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// Frames that each bystander has in its directory or had there.
    fn counts(&self) -> Vec<u64> {
        let newest = |number| newest_frame(&self.out().join(bystander(number)));
        (0..self.sources.len()).map(newest).collect()
    }

    fn wait_for_frames(&mut self) -> Result<()> {
        let flows = poll(LIMIT, || self.counts().iter().all(|count| *count > 10).then_some(()));
        if flows.is_none() {
            let said: Vec<_> = self.sources.iter().map(Process::last_line).collect();
            bail!("no frames flow: {said:?}, {}", self.collector.last_line());
        }
        Ok(())
    }

    /// Starts an attack program on the third host, or on the only one.
    pub(crate) fn start_attack(&self, user: User, program: &str, args: &Value) -> Result<Process> {
        let mut command = place::command(user, &self.host.own);
        command.args(["play", program, &args.to_string()]);
        let start = || Process::start(&mut command, &self.folder.path, program);
        inside(self.lan.as_ref().map(|lan| &lan.stranger), start)
    }

    /// Plays an attack program to its end; returns what it found.
    pub(crate) fn attack(&mut self, user: User, program: &str, args: &Value) -> Result<Value> {
        let mut attack = self.start_attack(user, program, args)?;
        self.end_attack(&mut attack)
    }

    pub(crate) fn end_attack(&mut self, attack: &mut Process) -> Result<Value> {
        let code = attack.finish()?;
        let found = attack.event("attack").with_context(|| {
            format!("the attack program ended with {code}: {}", attack.last_line())
        })?;
        self.attack_cpu_s += found["cpu_s"].as_f64().unwrap_or(0.0);
        Ok(found)
    }

    /// Does `work` while an attack program goes on, which is ended then.
    pub(crate) fn beside<T>(
        &mut self,
        (user, program, args): (User, &str, &Value),
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let attack = self.start_attack(user, program, args)?;
        pass(Duration::from_secs(1));
        let done = work(self);
        self.attack_cpu_s += Usage::of_tree(attack.id()).cpu_s;
        done
    }

    /// Returns the least rate of the bystanders during `work`, and at least a second of it.
    fn rate_during<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, f64)> {
        let (start, counts) = (Instant::now(), self.counts());
        let done = work(self)?;
        pass(Duration::from_millis(1000).saturating_sub(start.elapsed()));
        let seconds = start.elapsed().as_secs_f64();
        let now = self.counts();
        let frames = now.iter().zip(&counts).map(|(now, then)| now.saturating_sub(*then)).min();
        Ok((done, frames.map_or(f64::INFINITY, |frames| frames as f64 / seconds)))
    }

    /// What is not back a while after an attack.
    fn leftovers(&mut self, devices: &[String]) -> Vec<String> {
        let (fds, kib) = (self.before.fds + 2, self.before.rss_kib + 32 * 1024);
        let limit = Duration::from_secs(15);
        let back = poll(limit, || {
            let now = self.collector.usage();
            (now.fds <= fds && now.rss_kib <= kib && now.threads <= self.before.threads + 2)
                .then_some(())
        });
        let mut faults = Vec::new();
        if back.is_none() {
            let (was, now) = (self.before, self.collector.usage());
            faults.push(format!(
                "not back after {} s: {} descriptors then, {} now; {} MiB then, {} now; {} threads then, {} now",
                limit.as_secs(), was.fds, now.fds, was.rss_kib >> 10, now.rss_kib >> 10, was.threads, now.threads
            ));
        }
        if !self.setup.leaves_devices {
            let new =
                directories(&self.out()).into_iter().filter(|name| !devices.contains(name)).count();
            if new > 0 {
                faults.push(format!("{new} directories of devices were left"));
            }
        }
        faults
    }

    /// Ends all; every bystander must have lost nothing, at both ends.
    pub(crate) fn finish(&mut self) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut sent = Vec::new();
        for source in &self.sources {
            source.signal(rustix::process::Signal::TERM);
        }
        for (number, source) in self.sources.iter_mut().enumerate() {
            // What hangs shows at the first; the others need not be waited for as long.
            let limit = if faults.is_empty() { LIMIT } else { LIMIT / 20 };
            let code = source.end_within(limit);
            let summary = source.event("summary").unwrap_or_default();
            let undelivered = summary["frames_undelivered"].as_u64();
            if code != Some(0) || undelivered != Some(0) {
                let code = code.map_or("nothing".to_owned(), |code| code.to_string());
                faults.push(format!(
                    "{} ended with {code}, {} frames not delivered: {}",
                    bystander(number),
                    undelivered.map_or("unknown".to_owned(), |n| n.to_string()),
                    source.last_line()
                ));
            }
            sent.push(summary["frames_sent"].as_u64().unwrap_or(0));
        }
        if let Some(code) = self.collector.code() {
            faults.push(format!("the collector ended with {code}: {}", self.collector.last_line()));
            return Ok(faults);
        }
        self.collector.signal(rustix::process::Signal::TERM);
        let limit = if faults.is_empty() { LIMIT } else { LIMIT / 4 };
        if self.collector.end_within(limit).is_none() {
            faults.push("the collector does not end".to_owned());
        }
        let summary = self.collector.event("summary").unwrap_or_default();
        for (number, sent) in sent.iter().enumerate() {
            faults.extend(lost_of(&summary, &bystander(number), *sent));
        }
        Ok(faults)
    }
}

impl Scene<'_> {
    /// Says which bystanders had to connect again: nothing was lost, but their sessions were ended.
    fn broken(&self) -> Vec<String> {
        let again = |source: &Process| source.event("summary")?["reconnects"].as_u64();
        let counts = self.sources.iter().map(|source| again(source).unwrap_or(0)).enumerate();
        let broken = counts.filter(|(_, count)| *count > 0);
        broken
            .map(|(number, count)| format!("{} connected {count} times again", bystander(number)))
            .collect()
    }
}

/// Says if the collector has fewer frames of a device than were sent.
fn lost_of(summary: &Value, device: &str, sent: u64) -> Option<String> {
    let devices = summary["devices"].as_array().cloned().unwrap_or_default();
    let found = devices.iter().find(|entry| entry["name"] == device)?;
    let (received, lost) = (found["frames_received"].as_u64()?, found["frames_lost"].as_u64()?);
    let whole = found["frames_verified"].as_u64()?;
    (lost > 0 || whole < sent || received < sent)
        .then(|| format!("{device}: {sent} sent, {received} received, {lost} lost"))
}

pub(crate) fn bystander(number: usize) -> String {
    format!("by{number}")
}

/// Runs `work` inside of a namespace, if there is one.
pub(crate) fn inside<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match namespace {
        Some(namespace) => namespace.run(work)?,
        None => work(),
    }
}

/// The address in the URL of a page.
pub(crate) fn page_address(url: &str) -> Option<SocketAddr> {
    url.split("://").nth(1)?.trim_end_matches('/').parse().ok()
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Names of what lies in a folder as a directory, as those of devices do.
pub(crate) fn directories(folder: &Path) -> Vec<String> {
    names(folder).into_iter().filter(|name| folder.join(name).is_dir()).collect()
}

/// Number of the newest frame in a device's directory, from 1; 0 if there is none.
pub(crate) fn newest_frame(folder: &Path) -> u64 {
    let numbers = names(folder).into_iter().filter_map(|name| name.parse::<u64>().ok());
    numbers.max().map_or(0, |newest| newest + 1)
}

pub(crate) fn collect_command(host: &Host, setup: &Setup, folder: &Folder) -> Command {
    let ip = IpAddr::V4(if setup.lan { place::COLLECTOR } else { Ipv4Addr::LOCALHOST });
    let mut command = host.catchment();
    command.args(["collect", "--json", "--listen", &SocketAddr::new(ip, 0).to_string(), "--out"]);
    command.arg(folder.join("out"));
    let given = |option: &str| setup.collect.iter().any(|word| word == option);
    for (option, value) in [("--lease", "3"), ("--ring-bytes", "16MiB"), ("--keep-frames", "200")] {
        if !given(option) && !given(&format!("no{option}")) {
            command.args([option, value]);
        }
    }
    if setup.lan && !given("--cert") {
        command.arg("--insecure");
    }
    command.args(setup.collect.iter().filter(|word| !word.starts_with("no--")));
    command.env("TMPDIR", &folder.path).current_dir(&folder.path);
    command
}

/// What the case itself looks at, beside the bystanders.
pub(crate) type Check = (bool, String);

/// Plays an attack beside bystanders. It held if `attack` says so, the bystanders lost nothing and kept
/// 0.9 of the rate that they have beside a program that burns as much, and what it took is back.
pub(crate) fn attacked(
    host: &Host,
    name: &str,
    setup: &Setup,
    attack: impl Fn(&mut Scene<'_>) -> Result<Check>,
) -> Result<Verdict> {
    let mut slow = 0;
    loop {
        let (faults, rate, seen) = once(host, name, setup, &attack)?;
        slow += usize::from(rate.is_some());
        // A rate alone may be somebody else's fault: it counts when it is too low three times in a row.
        if rate.is_none() || !faults.is_empty() || slow >= 3 {
            let all: Vec<_> = faults.into_iter().chain(rate).collect();
            return Ok(Verdict::unless(&all, seen));
        }
    }
}

type Played = (Vec<String>, Option<String>, String);

fn once(
    host: &Host,
    name: &str,
    setup: &Setup,
    attack: impl Fn(&mut Scene<'_>) -> Result<Check>,
) -> Result<Played> {
    let mut scene = Scene::start(host, name, setup)?;
    let devices = directories(&scene.out());
    let start = Instant::now();
    let ((held, seen), rate) = scene.rate_during(|scene| attack(scene))?;
    let share = scene.attack_cpu_s / start.elapsed().as_secs_f64();
    let mut faults = if held { Vec::new() } else { vec!["not held".to_owned()] };
    let mut slow = None;
    if rate < 0.9 * f64::from(setup.rate) {
        let args = json!({ "share": share, "seconds": 2.0 });
        let ((), beside) =
            scene.rate_during(|scene| scene.attack(User::Other, "burn", &args).map(drop))?;
        if rate < 0.9 * beside {
            slow = Some(format!(
                "{rate:.0} frames/s, {beside:.0} beside a program that burns as much"
            ));
        }
    }
    faults.extend(scene.leftovers(&devices));
    faults.extend(scene.finish()?);
    faults.extend(scene.broken());
    Ok((faults, slow, seen))
}

/// Waits until a source that comes now is served; says what happened otherwise.
pub(crate) fn newcomer(scene: &Scene<'_>, device: &str) -> Result<Check> {
    let mut command = scene.source_command(device, scene.address);
    command.args(["--frames", "5", "--wait", "20"]);
    let mut source = scene.start_source(&mut command, device)?;
    let code = source.finish()?;
    let said = if code == 0 { String::new() } else { source.last_line() };
    Ok((code == 0, format!("a source that came then ended with {code}: {said}")))
}

/// Waits until a bystander's stream has moved on by so many frames.
pub(crate) fn goes_on(folder: &Path, frames: u64) -> Result<()> {
    let then = newest_frame(folder);
    wait_until("frames flow on", || newest_frame(folder) >= then + frames)
}
