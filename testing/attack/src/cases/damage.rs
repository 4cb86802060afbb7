//! Part 1: what is not delivered is never called delivered.
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::process::{LIMIT, Process, pass, poll};
use crate::learned::RingPlace;
use crate::report::Verdict;
use crate::scene::{Scene, Setup, bystander};
use crate::wire::http;
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    quick("1.damage-shm", "Damaged frames over shm are called delivered at neither end", |h, n| {
        Damage::new(h, n, "shm", &[])?.books()
    }),
    quick(
        "1.damage-roce",
        "Damaged frames over RoCE are called delivered at neither end",
        |h, n| Damage::new(h, n, "roce", &[])?.books(),
    ),
    quick("1.damage-exit", "Both ends of lost frames end with 1, and say how many", exit),
    quick("1.damage-metrics", "Metrics, page and JSON count a damaged frame as lost", metrics),
    quick(
        "1.asked-again-shm",
        "A damaged frame that the source still has is delivered, shm",
        |h, n| Damage::new(h, n, "shm", &["--no-in-place"])?.mended(),
    ),
    quick(
        "1.asked-again-roce",
        "A damaged frame that the source still has is delivered, RoCE",
        |h, n| Damage::new(h, n, "roce", &[])?.mended(),
    ),
    quick(
        "1.sum-drop",
        "Sent = delivered + dropped + lost, per device, under a policy that drops",
        drops,
    ),
    slow(
        "1.sum-restart",
        "The sum holds over a collector that was killed and started again",
        restart,
    ),
    slow("1.sum-demo", "The demo's summary adds up, per frame that was accepted", demo),
];

/// A stream of which frames were damaged in the collector's memory, after both ends have ended.
struct Damage {
    sent: Value,
    received: Value,
    codes: (i32, i32),
    said: (String, String),
    /// Lost frames on the page and in the metrics, before the end.
    shown: [Option<f64>; 2],
}

impl Damage {
    fn new(host: &Host, name: &str, provider: &'static str, send: &[&str]) -> Result<Self> {
        let input =
            if provider == "shm" { "synthetic:160x120:rgb24" } else { "synthetic:640x480:rgb24" };
        let rate = if provider == "shm" { 100 } else { 25 };
        let setup = Setup { bystanders: 1, relay: true, input, rate, ..Setup::over(provider) };
        let mut scene = Scene::start(host, name, &setup.send(send).collect(&["--lease", "60"]))?;
        let place = RingPlace::of(&scene.relays[0])?.mapped_at(scene.collector.id())?;
        let path = format!("/proc/{}/mem", scene.collector.id());
        let memory = File::options().read(true).write(true).open(path)?;
        let damage = |back: u64| {
            place.payloads(back).try_for_each(|at| {
                let mut byte = [0];
                memory.read_exact_at(&mut byte, at)?;
                memory.write_all_at(&[byte[0] ^ 0xff], at)
            })
        };
        if provider == "shm" {
            // Frames gather in the ring while nobody takes them.
            scene.collector.signal(Signal::STOP);
            pass(Duration::from_millis(400));
            damage(1000)?;
            scene.collector.signal(Signal::CONT);
        } else {
            // A large frame lies there for a while before its last packet has come.
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(700) {
                // The ring may be gone: what is damaged is asked for again over a new one.
                if damage(800_000).and_then(|()| damage(500_000)).is_err() {
                    break;
                }
                pass(Duration::from_micros(100));
            }
        }
        pass(Duration::from_millis(700));
        let shown = [shown_by_metrics(&scene), shown_by_page(&scene)];
        let code = scene.sources[0].stop()?;
        let collector = scene.collector.stop()?;
        Ok(Self {
            sent: scene.sources[0].event("summary").unwrap_or_default(),
            received: scene.collector.event("summary").unwrap_or_default(),
            codes: (code, collector),
            said: (scene.sources[0].said(), scene.collector.said()),
            shown,
        })
    }

    fn number(value: &Value, name: &str) -> u64 {
        value[name].as_u64().unwrap_or(0)
    }

    fn lost(&self) -> u64 {
        Self::number(&self.received, "frames_lost")
    }

    fn seen(&self) -> String {
        let of = |value, name| Self::number(value, name);
        format!(
            "{} sent, {} received, {} checksum errors, {} lost, {} not delivered by the source, exit codes {} and {}",
            of(&self.sent, "frames_sent"),
            of(&self.received, "frames_received"),
            of(&self.received, "checksum_errors"),
            self.lost(),
            of(&self.sent, "frames_undelivered"),
            self.codes.0,
            self.codes.1
        )
    }

    /// The same count at both ends, and exit codes that say whether it is 0.
    fn books(&self) -> Result<Verdict> {
        let of = |value, name| Self::number(value, name);
        let code = i32::from(self.lost() > 0);
        let held = of(&self.received, "checksum_errors") > 0
            && of(&self.sent, "frames_sent") == of(&self.received, "frames_received") + self.lost()
            && of(&self.sent, "frames_undelivered") == self.lost()
            && self.codes == (code, code);
        Ok(Verdict::new(held, self.seen()))
    }

    /// Everything was delivered after all.
    fn mended(&self) -> Result<Verdict> {
        let of = |value, name| Self::number(value, name);
        let held = of(&self.received, "checksum_errors") > 0
            && of(&self.sent, "frames_sent") == of(&self.received, "frames_received")
            && self.lost() == 0
            && self.codes == (0, 0);
        Ok(Verdict::new(held, self.seen()))
    }
}

fn shown_by_metrics(scene: &Scene<'_>) -> Option<f64> {
    let (_, text) = http::get(scene.page?, "/metrics").ok()?;
    http::metric(&text, &["catchment_frames_lost_total{"])
}

fn shown_by_page(scene: &Scene<'_>) -> Option<f64> {
    let (_, text) = http::get(scene.page?, "/api/status").ok()?;
    let status: Value = serde_json::from_str(text.get(text.find('{')?..=text.rfind('}')?)?).ok()?;
    status.pointer("/totals/frames_lost")?.as_f64()
}

fn exit(host: &Host, name: &str) -> Result<Verdict> {
    let damage = Damage::new(host, name, "shm", &[])?;
    let count = damage.lost().to_string();
    let told = damage.said.0.contains(&count) && damage.said.1.contains(&count);
    let held = damage.lost() > 0 && damage.codes == (1, 1) && told;
    Ok(Verdict::new(held, damage.seen()))
}

fn metrics(host: &Host, name: &str) -> Result<Verdict> {
    let damage = Damage::new(host, name, "shm", &[])?;
    let lost = damage.lost() as f64;
    let held = lost > 0.0 && damage.shown == [Some(lost); 2];
    let detail = format!("metrics and page said {:?}; {}", damage.shown, damage.seen());
    Ok(Verdict::new(held, detail))
}

/// One device's numbers at both ends of a stream that has ended.
fn sum(source: &Process, collector: &Process) -> Result<(bool, String)> {
    let sent = source.event("summary").context("the source wrote no summary")?;
    let got = collector.event("summary").context("the collector wrote no summary")?;
    let got = &got["devices"][0];
    let (device, of) = (&sent["devices"][0], Damage::number);
    let accepted = of(device, "frames_sent") + of(device, "frames_dropped");
    let ended = of(got, "frames_received") + of(got, "frames_skipped") + of(got, "frames_lost");
    let text = format!(
        "{} sent, {} dropped; {} received, {} skipped, {} lost",
        device["frames_sent"],
        device["frames_dropped"],
        got["frames_received"],
        got["frames_skipped"],
        got["frames_lost"]
    );
    Ok((accepted == ended && of(device, "frames_dropped") == of(got, "frames_skipped"), text))
}

fn drops(host: &Host, name: &str) -> Result<Verdict> {
    let setup = Setup { bystanders: 1, ..Setup::over("shm") };
    let setup = setup.send(&["--policy", "drop-oldest"]).collect(&["--ring-bytes", "1MiB"]);
    let mut scene = Scene::start(host, name, &setup)?;
    for _ in 0..2 {
        scene.collector.signal(Signal::STOP);
        pass(Duration::from_millis(900));
        scene.collector.signal(Signal::CONT);
        pass(Duration::from_millis(200));
    }
    let code = scene.sources[0].stop()?;
    let collector = scene.collector.stop()?;
    let (held, text) = sum(&scene.sources[0], &scene.collector)?;
    let dropped = !text.contains(" 0 dropped");
    let held = held && dropped && (code, collector) == (0, 0);
    Ok(Verdict::new(held, format!("{text}; exit codes {code} and {collector}")))
}

fn restart(host: &Host, name: &str) -> Result<Verdict> {
    let setup = Setup { bystanders: 1, ..Setup::over("shm") }.collect(&["no--keep-frames"]);
    let mut scene = Scene::start(host, name, &setup)?;
    scene.collector.signal(Signal::KILL);
    scene.collector.finish()?;
    let mut command = crate::scene::collect_command(host, &setup, &scene.folder);
    let address = scene.address.to_string();
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = host.catchment();
    let words = words
        .into_iter()
        .map(|word| if word == "127.0.0.1:0" { address.clone().into() } else { word });
    command.args(words).current_dir(&scene.folder.path);
    scene.collector = Process::start(&mut command, &scene.folder.path, "collect")?;
    scene.collector.wait_event("session")?;
    pass(Duration::from_millis(500));
    let code = scene.sources[0].stop()?;
    scene.collector.stop()?;
    let stored = crate::scene::names(&scene.out().join(bystander(0)));
    let files = stored.iter().filter(|name| name.parse::<u64>().is_ok()).count() as u64;
    let sent = scene.sources[0].event("summary").unwrap_or_default();
    let accepted = Damage::number(&sent, "frames_sent");
    let text = format!("{accepted} sent, {files} stored over both runs, exit code {code}");
    Ok(Verdict::new(accepted == files && code == 0, text))
}

fn demo(host: &Host, name: &str) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let mut command = host.catchment();
    command.args(["demo", "--json", "--seconds", "2"]).env("TMPDIR", &folder.path);
    let mut demo = Process::start(command.current_dir(&folder.path), &folder.path, "demo")?;
    let code = demo.finish()?;
    let last = poll(LIMIT, || demo.stdout().lines().last().map(str::to_owned)).unwrap_or_default();
    let summary: Value = serde_json::from_str(&last).context("the demo wrote no summary")?;
    let of = |field| Damage::number(&summary, field);
    let ended = of("frames_received") + of("frames_lost");
    let held = code == 0 && of("frames_sent") > 0 && of("frames_sent") == ended;
    let text = format!(
        "{} sent, {} received, {} lost, {} dropped, exit code {code}",
        of("frames_sent"),
        of("frames_received"),
        of("frames_lost"),
        of("frames_dropped")
    );
    Ok(Verdict::new(held, text))
}
