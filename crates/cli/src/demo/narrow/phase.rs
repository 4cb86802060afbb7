//! The cameras for a while, with a controller or without.
use super::super::child::{Event, Process, Role};
use super::super::folder::Folder;
use super::frames::{Frames, measure};
use super::{CAPACITY_BPS, QUEUE_KIB, place};
use crate::args::DemoArgs;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::events::{CollectEvent, CollectSummary, SendEvent, SendSummary};
use anyhow::{Context as _, Result, anyhow, ensure};
use catchment_netns::SharedLink;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How old frames may be when they are there.
const URGENT_MS: f64 = 100.0;
const TOLERANT_MS: f64 = 1000.0;
/// 4.6 ms of the link, ten times a second.
const URGENT_INPUT: &str = "synthetic:160x120:rgb24";
const URGENT_RATE: f64 = 10.0;
/// 18 ms of the link.
const INPUT: &str = "synthetic:320x240:rgb24";
const FRAME_BITS: f64 = 320.0 * 240.0 * 3.0 * 8.0;
/// What all but the urgent one send, as a part of the link.
const LOAD: f64 = 0.85;
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);
const CONTROL_PORT: u16 = 7118;

/// A time in which the cameras send.
pub(super) struct Phase<'a> {
    pub(super) args: &'a DemoArgs,
    pub(super) link: &'a SharedLink,
    pub(super) cameras: u8,
    pub(super) with_controller: bool,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    pub(super) frames_sent: u64,
    pub(super) frames_lost: u64,
    /// At the bottleneck.
    pub(super) packets_dropped: u64,
    pub(super) deadlines_missed: u64,
    pub(super) urgent: Frames,
    pub(super) others: Frames,
    /// What `explain stream` said of one that waited.
    pub(super) waiting: Option<String>,
}

impl Phase<'_> {
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        let folder = Folder::new().or_fail(Code::Local)?;
        let outcome = self.try_run(folder.path());
        outcome
            .map_err(|error| {
                let said = said_by_all(folder.path());
                if said.is_empty() { error } else { error.context(said) }
            })
            .or_fail(Code::Failed)
    }

    fn try_run(&self, folder: &Path) -> Result<Outcome> {
        let out = folder.join("frames");
        let dropped = place::dropped(self.link)?;
        let controller = self.with_controller.then(|| self.start_controller(folder)).transpose()?;
        let (collector, told) = self.start_collector(folder, &out)?;
        let Event::Collector(CollectEvent::Listening(listening)) = next(&told)? else {
            return Err(anyhow!("the collector does not say where it listens"));
        };
        let sources = (0..self.cameras)
            .map(|at| self.start_source(folder, at, &listening.address, controller.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        let waiting = match &controller {
            Some(controller) => self.explain(controller.address),
            None => None,
        };
        let sent = sources.iter().map(|(_, told)| sent(told)).collect::<Result<Vec<_>>>()?;
        drop(sources);
        let collected = collected(collector, &told)?;
        let sum = |of: fn(&SendSummary) -> u64| sent.iter().map(of).sum();
        Ok(Outcome {
            frames_sent: sum(|sent| sent.fates.frames_sent),
            frames_lost: collected.received.frames_lost,
            packets_dropped: place::dropped(self.link)? - dropped,
            deadlines_missed: sum(|sent| sent.deadlines_missed),
            urgent: measure(&out, (0..1).map(name), URGENT_MS)?,
            others: measure(&out, (1..self.cameras).map(name), TOLERANT_MS)?,
            waiting,
        })
    }

    fn start_collector(&self, folder: &Path, out: &Path) -> Result<(Process, Receiver<Event>)> {
        let listen = SocketAddr::new(self.link.collector(false), 0).to_string();
        let mut words: Vec<OsString> =
            ["collect", "--insecure", "--no-dashboard", "--listen", &listen, "--out"]
                .map(Into::into)
                .into();
        words.push(out.into());
        words.extend(place::of_collector(self.link, &self.args.providers).words());
        let (sender, told) = channel();
        let log = File::create(folder.join("collector.log"))?;
        let start = || Process::start_with(Role::Collector, words, log.into(), sender);
        Ok((self.link.at_collector(start)??, told))
    }

    fn start_source(
        &self,
        folder: &Path,
        at: u8,
        collector: &str,
        controller: Option<&Controller>,
    ) -> Result<(Process, Receiver<Event>)> {
        let name = name(at);
        let others = f64::from(self.cameras - 1);
        let (input, rate, class) = match at {
            0 => (URGENT_INPUT, URGENT_RATE, "urgent"),
            _ => (INPUT, LOAD * CAPACITY_BPS as f64 / FRAME_BITS / others, "tolerant"),
        };
        let seconds = self.args.seconds.as_secs_f64().to_string();
        let rate = format!("{rate:.3}");
        let mut words: Vec<String> =
            ["send", "--insecure", "--input", input, "--device", &name].map(Into::into).into();
        words.extend(["--rate", &rate, "--seconds", &seconds, "--wait", "30"].map(Into::into));
        if let Some(controller) = controller {
            words.extend(["--controller", &controller.address.to_string()].map(Into::into));
            words.extend(["--priority".to_owned(), format!("{name}={class}")]);
        }
        words.push(collector.to_owned());
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.extend(place::of_camera(self.link, at, &self.args.providers).words());
        let (sender, told) = channel();
        let log = File::create(folder.join(format!("{name}.log")))?;
        let start = || Process::start_with(Role::Source, words, log.into(), sender);
        Ok((self.link.at_source(at, start)??, told))
    }

    fn start_controller(&self, folder: &Path) -> Result<Controller> {
        let address = self.link.controller(false, CONTROL_PORT)?;
        let config = folder.join("control.toml");
        let text = format!(
            "chunk = \"64KiB\"\n[[link]]\nname = \"narrow\"\ncapacity = \"{CAPACITY_BPS}bit\"\nguard = \"1ms\"\nqueue = \"{QUEUE_KIB}KiB\"\n"
        );
        std::fs::write(&config, text)?;
        let log = File::create(folder.join("controller.log"))?;
        let program = std::env::current_exe()?;
        let child = self.link.at_collector(|| {
            Command::new(program)
                .args(["control", "--insecure", "--until-stdin-closes", "--listen"])
                .arg(address.to_string())
                .arg("--config")
                .arg(config)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
        })??;
        let controller = Controller { child, address };
        let limit = Instant::now() + PATIENCE;
        while self.link.at_collector(|| TcpStream::connect(address))?.is_err() {
            ensure!(Instant::now() < limit, "the controller does not listen at {address}");
            // Its socket has no event.
            thread::sleep(LOOK);
        }
        Ok(controller)
    }

    /// Asks what one camera after the other waits for, until one does, for as long as they send.
    fn explain(&self, controller: SocketAddr) -> Option<String> {
        let end = Instant::now() + self.args.seconds;
        let mut cameras = (1..self.cameras).cycle();
        while Instant::now() < end {
            let name = name(cameras.next()?);
            let program = std::env::current_exe().ok()?;
            let asked = self.link.at_collector(|| {
                let mut command = Command::new(program);
                command.args(["explain", "stream", &name, "--insecure", "--controller"]);
                command.arg(controller.to_string()).output()
            });
            let said = String::from_utf8_lossy(&asked.ok()?.ok()?.stdout).trim().to_owned();
            if said.contains("waiting") {
                return Some(said);
            }
            // What waits now may not have a moment ago.
            thread::sleep(LOOK / 2);
        }
        None
    }
}

/// The controller. It ends when this is dropped, or this process is gone.
struct Controller {
    child: Child,
    address: SocketAddr,
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn name(at: u8) -> String {
    format!("cam{at:02}")
}

fn next(told: &Receiver<Event>) -> Result<Event> {
    told.recv_timeout(PATIENCE).with_context(|| format!("a process says nothing for {PATIENCE:?}"))
}

/// Waits for what a source says at its end.
fn sent(told: &Receiver<Event>) -> Result<SendSummary> {
    loop {
        match next(told)? {
            Event::Source(SendEvent::Summary(summary)) => return Ok(summary),
            Event::Silent(_) => return Err(anyhow!("a source ended early")),
            Event::Source(_) | Event::Collector(_) | Event::AskedToEnd => {}
        }
    }
}

/// Ends the collector, and returns what it says.
fn collected(mut collector: Process, told: &Receiver<Event>) -> Result<CollectSummary> {
    collector.ask_to_end();
    loop {
        match next(told)? {
            Event::Collector(CollectEvent::Summary(summary)) => return Ok(summary),
            Event::Silent(_) => return Err(anyhow!("the collector ended early")),
            Event::Collector(_) | Event::Source(_) | Event::AskedToEnd => {}
        }
    }
}

/// Returns the errors of all processes of a phase.
fn said_by_all(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "log"));
    let texts = logs.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let lines: Vec<String> =
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().filter(|line| line.contains("rror")).take(8).collect::<Vec<_>>().join("\n")
}
