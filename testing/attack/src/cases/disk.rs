//! Part 5: disks that are full, and directories that others remove or use.
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::process::{LIMIT, Process, pass, poll, wait_until};
use crate::report::Verdict;
use crate::scene::{Scene, Setup, attacked, bystander, collect_command, names, newest_frame};
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick("5.small-disk", "--keep-frames stores on a disk smaller than the reserve", |h, n| {
        let small = Small::start(h, n, &["--keep-frames", "5"])?;
        let stored = small.flows(20);
        Ok(Verdict::new(stored, format!("{} frames came: {}", small.frames(), small.said())))
    }),
    quick(
        "5.disk-hint",
        "The hint of a full disk does not recommend the option that is set",
        |h, n| {
            let mut small = Small::start(h, n, &["--keep-frames", "5"])?;
            small.fill()?;
            pass(Duration::from_secs(2));
            small.collector.signal(Signal::TERM);
            small.collector.end_within(Duration::from_secs(20));
            let held = !small.said().contains("--keep-frames");
            Ok(Verdict::new(held, small.said()))
        },
    ),
    slow(
        "5.disk-filled",
        "A stream makes room by its own oldest frames when another program fills the disk",
        |h, n| {
            let small = Small::start(h, n, &["--keep-frames", "20"])?;
            let before = small.flows(30);
            small.fill()?;
            let now = small.frames();
            let after = small.flows(now + 30);
            Ok(Verdict::new(
                before && after,
                format!("before: {before}, after: {after}: {}", small.said()),
            ))
        },
    ),
    quick("5.cannot-store-said", "A source whose collector cannot store says so", |h, n| {
        let small = Small::start(h, n, &[])?;
        small.fill()?;
        let said = || small.source.said().to_lowercase();
        let told = |text: &str| {
            ["disk", "bytes are free", "cannot store", "not stored"]
                .iter()
                .any(|word| text.contains(word))
        };
        let held = poll(Duration::from_secs(8), || told(&said()).then_some(())).is_some();
        Ok(Verdict::new(held, said()))
    }),
    quick(
        "5.ctrl-c-waits",
        "Ctrl-C while the sink refuses says at once what is waited for",
        |h, n| {
            let mut small = Small::start(h, n, &[])?;
            small.fill()?;
            pass(Duration::from_millis(800));
            let before = small.said().len();
            small.collector.signal(Signal::INT);
            let heard =
                poll(Duration::from_secs(2), || (small.said().len() > before).then_some(()));
            let code = small.collector.end_within(LIMIT);
            let line = small.said().get(before..).unwrap_or_default().to_owned();
            let held = heard.is_some() && code == Some(1);
            Ok(Verdict::new(held, format!("ended with {code:?}, said {line:?}")))
        },
    ),
    quick("5.ctrl-c-counts", "Frames given up at Ctrl-C are counted", |h, n| {
        let mut small = Small::start(h, n, &[])?;
        small.fill()?;
        pass(Duration::from_millis(800));
        small.collector.signal(Signal::INT);
        let code = small.collector.end_within(LIMIT);
        let summary = small.collector.event("summary").unwrap_or_default();
        let lost = ["frames_lost", "frames_given_up"]
            .iter()
            .filter_map(|name| summary[*name].as_u64())
            .sum::<u64>();
        Ok(Verdict::new(code == Some(1) && lost > 0, format!("ended with {code:?}, {lost} lost")))
    }),
    quick("5.out-removed", "A device's directory removed in mid-stream is made again", |h, n| {
        attacked(h, n, &Setup::over("shm"), |scene| {
            let folder = scene.out().join(bystander(0));
            fs::remove_dir_all(&folder).or_else(|_| fs::remove_dir_all(&folder))?;
            let again = poll(Duration::from_secs(8), || (names(&folder).len() > 20).then_some(()));
            Ok((again.is_some(), format!("frames are stored again: {}", again.is_some())))
        })
    }),
    quick("5.two-collectors", "A second collector of one --out is refused by name", two),
    quick(
        "5.format-change",
        "A device that changes its format starts a new description",
        format_change,
    ),
];

/// A collector that stores on a disk of 20 MB.
struct Small {
    disk: std::path::PathBuf,
    collector: Process,
    source: Process,
    _folder: crate::host::Folder,
}

impl Small {
    fn start(host: &Host, name: &str, words: &[&str]) -> Result<Self> {
        let mut folder = host.folder(name)?;
        let disk = folder.small_disk("disk", "20m")?;
        let mut command = host.catchment();
        command.args(["collect", "--json", "--no-dashboard", "--listen", "127.0.0.1:0", "--out"]);
        command.arg(disk.join("out")).args(words);
        let mut collector = Process::start(&mut command, &folder.path, "collect")?;
        let listening = collector.wait_event("listening")?;
        let mut command = host.catchment();
        command.args([
            "send",
            "--input",
            "synthetic:160x120:rgb24",
            "--rate",
            "50",
            "--device",
            "cam",
        ]);
        command.arg(listening["address"].as_str().context("no address")?);
        let source = Process::start(&mut command, &folder.path, "send")?;
        pass(Duration::from_millis(500));
        Ok(Self { disk, collector, source, _folder: folder })
    }

    fn frames(&self) -> u64 {
        newest_frame(&self.disk.join("out/cam"))
    }

    fn flows(&self, least: u64) -> bool {
        poll(Duration::from_secs(6), || (self.frames() >= least).then_some(())).is_some()
    }

    /// Another program takes what is left of the disk.
    fn fill(&self) -> Result<()> {
        let mut file = File::create(self.disk.join("other"))?;
        while file.write_all(&[1; 4096]).is_ok() {}
        Ok(())
    }

    fn said(&self) -> String {
        self.collector.stderr()
    }
}

fn two(host: &Host, name: &str) -> Result<Verdict> {
    let mut scene = Scene::start(host, name, &Setup::over("shm"))?;
    let mut command = collect_command(host, &scene.setup, &scene.folder);
    let mut second = Process::start(&mut command, &scene.folder.path, "second")?;
    let code = second.end_within(Duration::from_secs(3));
    let said = second.stderr();
    drop(second);
    let faults = scene.finish()?;
    let named = said.contains(&scene.collector.id().to_string());
    let held = code.is_some_and(|code| code != 0) && named && faults.is_empty();
    Ok(Verdict::new(held, format!("the second ended with {code:?}: {}", said.trim())))
}

fn format_change(host: &Host, name: &str) -> Result<Verdict> {
    let setup = Setup { bystanders: 0, ..Setup::over("shm") };
    let mut scene = Scene::start(host, name, &setup)?;
    for input in ["synthetic:64x48:rgb24", "synthetic:32x24:gray"] {
        let mut command: Command = host.catchment();
        command.args(["send", "--input", input, "--device", "cam", "--frames", "3"]);
        let mut source = scene.start_source(command.arg(scene.address.to_string()), "send")?;
        source.finish()?;
    }
    wait_until("the frames are stored", || newest_frame(&scene.out().join("cam")) >= 6)?;
    scene.collector.stop()?;
    let formats = descriptions(&scene.out());
    let held =
        ["64x48:rgb24", "32x24:gray"].iter().all(|f| formats.iter().any(|text| text.contains(f)));
    Ok(Verdict::new(
        held && formats.len() >= 2,
        format!("{} descriptions beside the files", formats.len()),
    ))
}

/// Texts of small files below a directory that are no frames.
fn descriptions(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(descriptions(&path));
        } else if entry.file_name().to_string_lossy().parse::<u64>().is_err() {
            found.extend(fs::read_to_string(path));
        }
    }
    found
}
