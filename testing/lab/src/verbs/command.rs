//! The `catchment` command, run at any site.
use crate::lab::{Lab, Site};
use crate::remote::process::{Finished, Process};
use crate::remote::{Ended, Start};
use crate::vm::network::IpVersion;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any wait of a case takes on an emulated machine beside others.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

const PORT: u16 = 7117;
const SIGTERM: i32 = 15;
pub(crate) const DEVICE: &str = "cam0";

pub(crate) struct Collector {
    site: Site,
    pub(crate) process: Process,
    pub(crate) address: String,
    pub(crate) out: PathBuf,
}

impl Lab {
    pub(crate) fn catchment(&mut self, site: Site, words: &[&str]) -> Result<Process> {
        let program = self.programs.catchment.display().to_string();
        let words = std::iter::once(program.as_str()).chain(words.iter().copied());
        self.start(site, &Start::like_here(words))
    }

    pub(crate) fn collect(
        &mut self,
        site: Site,
        version: IpVersion,
        words: &[&str],
    ) -> Result<Collector> {
        let out = self.folder(site);
        self.collect_into(site, version, out, words)
    }

    pub(crate) fn collect_into(
        &mut self,
        site: Site,
        version: IpVersion,
        out: PathBuf,
        words: &[&str],
    ) -> Result<Collector> {
        let address = SocketAddr::new(site.address(version), PORT).to_string();
        let out_text = out.display().to_string();
        let usual = format!("collect --json --insecure --no-dashboard --listen {address} --out");
        let usual: Vec<_> = usual.split(' ').chain([out_text.as_str()]).collect();
        let process = self.catchment(site, &[&usual[..], words].concat())?;
        event(&process, "listening", |_| true)?;
        Ok(Collector { site, process, address, out })
    }

    pub(crate) fn send(&mut self, site: Site, words: &[&str], to: &Collector) -> Result<Process> {
        let clip = self.clip()?.path.clone();
        self.send_input(site, &clip, words, to)
    }

    pub(crate) fn send_input(
        &mut self,
        site: Site,
        input: &Path,
        words: &[&str],
        to: &Collector,
    ) -> Result<Process> {
        let input = input.display().to_string();
        let usual = ["send", "--json", "--insecure", "--device", DEVICE];
        let words = [words, &["--input", &input]].concat();
        let words = [&usual[..], &words, &[&to.address]].concat();
        self.catchment(site, &words)
    }

    pub(crate) fn count_frames(&mut self, collector: &Collector) -> Result<usize> {
        let count = format!("ls {} | wc -l", collector.frames().display());
        let said = self.shell(collector.site, &count)?;
        said.parse().with_context(|| format!("{count}: {said}"))
    }

    /// Fails unless a collector has exactly the first `parts[0]` frames of the clip, followed by its
    /// first `parts[1]`, and so on.
    pub(crate) fn check_clip(&mut self, collector: &Collector, parts: &[usize]) -> Result<()> {
        let frames = self.count_frames(collector)?;
        let expected: usize = parts.iter().sum();
        ensure!(frames == expected, "{frames} frames arrived, not {expected}");
        let sum = format!("cat {}/* | sha256sum", collector.frames().display());
        let seen = self.shell(collector.site, &sum)?;
        let expected = self.clip()?.sum(parts)?;
        ensure!(seen.starts_with(&expected), "the bytes differ: {seen}, expected {expected}");
        Ok(())
    }

    pub(crate) fn check_frames(
        &mut self,
        collector: &Collector,
        frames: usize,
        file: &Path,
    ) -> Result<()> {
        let seen = self.count_frames(collector)?;
        ensure!(seen == frames, "{seen} frames arrived, not {frames}");
        let compare = format!("cat {}/* | cmp - {}", collector.frames().display(), file.display());
        self.shell(collector.site, &compare).map(drop)
    }

    fn shell(&mut self, site: Site, script: &str) -> Result<String> {
        let finished = self.run(site, &["sh", "-c", script], LIMIT)?;
        Ok(finished.stdout.trim().to_owned())
    }
}

impl Collector {
    fn frames(&self) -> PathBuf {
        self.out.join(DEVICE)
    }

    pub(crate) fn wait_for_frames(&self, least: u64) -> Result<()> {
        let enough = |line: &Value| line["frames_received"].as_u64() >= Some(least);
        event(&self.process, "progress", enough).map(drop)
    }

    pub(crate) fn end(mut self) -> Result<Value> {
        self.process.signal(SIGTERM)?;
        summary(self.process.wait(LIMIT)?)
    }
}

pub(crate) fn event(
    process: &Process,
    kind: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    process.wait_for(kind, LIMIT, |stdout, _| {
        let lines = stdout.lines().filter_map(|line| serde_json::from_str(line).ok());
        let mut lines = lines.filter(|line: &Value| line["event"] == kind);
        lines.find(&wanted)
    })
}

pub(crate) fn summary(finished: Finished) -> Result<Value> {
    let finished = finished.success()?;
    let line = finished.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("no summary: {line:?}"))
}

pub(crate) fn complaint(finished: Finished, status: i32) -> Result<String> {
    let expected = Ended::Status(status);
    ensure!(
        finished.ended == expected,
        "{} instead of {expected}: {}",
        finished.ended,
        finished.stderr
    );
    Ok(finished.stderr)
}
