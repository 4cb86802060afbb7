//! The `catchment` command at any site.

use super::{Lab, Site};
use crate::remote::process::{Finished, Process};
use crate::remote::{Ended, Start};
use crate::vm::network::IpVersion;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than anything takes that a case waits for, on an emulated machine that has others beside
/// it.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Where collectors listen.
const PORT: u16 = 7117;

const SIGTERM: i32 = 15;

/// The device of every stream.
pub const DEVICE: &str = "cam0";

/// A `catchment collect --json` that works.
pub struct Collector {
    site: Site,
    /// The process.
    pub process: Process,
    /// Where sources find it.
    pub address: String,
    /// The folder of its frames.
    pub out: PathBuf,
}

impl Lab {
    /// Starts `catchment` with these words.
    ///
    /// # Errors
    /// When a guest is needed and does not come up.
    pub fn catchment(&mut self, site: Site, words: &[&str]) -> Result<Process> {
        let program = self.programs.catchment.display().to_string();
        let words = std::iter::once(program.as_str()).chain(words.iter().copied());
        self.start(site, &Start::like_here(words))
    }

    /// Starts a collector that uses the provider of its site, with these words more.
    ///
    /// # Errors
    /// When it does not begin to listen.
    pub fn collect(&mut self, site: Site, version: IpVersion, words: &[&str]) -> Result<Collector> {
        let out = self.folder(site);
        self.collect_into(site, version, out, words)
    }

    /// The same with the folder of an earlier one.
    ///
    /// # Errors
    /// When it does not begin to listen.
    pub fn collect_into(
        &mut self,
        site: Site,
        version: IpVersion,
        out: PathBuf,
        words: &[&str],
    ) -> Result<Collector> {
        let address = SocketAddr::new(site.address(version), PORT).to_string();
        let out_text = out.display().to_string();
        let usual = [
            "collect",
            "--json",
            "--insecure",
            "--no-dashboard",
            "--listen",
            &address,
            "--out",
            &out_text,
        ];
        let process = self.catchment(site, &[&usual[..], words].concat())?;
        event(&process, "listening", |_| true)?;
        Ok(Collector {
            site,
            process,
            address,
            out,
        })
    }

    /// Starts a source that sends the clip to this collector, with these words more.
    ///
    /// # Errors
    /// When a guest is needed and does not come up.
    pub fn send(&mut self, site: Site, words: &[&str], to: &Collector) -> Result<Process> {
        let clip = self.clip.path.clone();
        self.send_input(site, &clip, words, to)
    }

    /// The same with another input.
    ///
    /// # Errors
    /// When a guest is needed and does not come up.
    pub fn send_input(
        &mut self,
        site: Site,
        input: &Path,
        words: &[&str],
        to: &Collector,
    ) -> Result<Process> {
        let input = input.display().to_string();
        let usual = [
            "send",
            "--json",
            "--insecure",
            "--input",
            &input,
            "--device",
            DEVICE,
        ];
        let words = [&usual[..], words, &[&to.address]].concat();
        self.catchment(site, &words)
    }

    /// Frames of the clip.
    #[must_use]
    pub fn clip_frames(&self) -> usize {
        self.clip.frames
    }

    /// Frames that a collector has stored.
    ///
    /// # Errors
    /// When its site does not answer.
    pub fn count_frames(&mut self, collector: &Collector) -> Result<usize> {
        let count = format!("ls {} | wc -l", collector.frames().display());
        let said = self.shell(collector.site, &count)?;
        said.parse().with_context(|| format!("{count}: {said}"))
    }

    /// Fails unless a collector has exactly the first frames of the clip, so many, then again the
    /// first ones, and so on.
    ///
    /// # Errors
    /// With what it has.
    pub fn check_clip(&mut self, collector: &Collector, parts: &[usize]) -> Result<()> {
        let frames = self.count_frames(collector)?;
        let expected: usize = parts.iter().sum();
        ensure!(
            frames == expected,
            "{frames} frames arrived, not {expected}"
        );
        let sum = format!("cat {}/* | sha256sum", collector.frames().display());
        let seen = self.shell(collector.site, &sum)?;
        let expected = self.clip.sum(parts)?;
        ensure!(
            seen.starts_with(&expected),
            "the bytes differ: {seen}, expected {expected}"
        );
        Ok(())
    }

    /// Fails unless a collector has so many frames, which are together this file.
    ///
    /// # Errors
    /// With what it has.
    pub fn check_frames(
        &mut self,
        collector: &Collector,
        frames: usize,
        file: &Path,
    ) -> Result<()> {
        let seen = self.count_frames(collector)?;
        ensure!(seen == frames, "{seen} frames arrived, not {frames}");
        let compare = format!(
            "cat {}/* | cmp - {}",
            collector.frames().display(),
            file.display()
        );
        self.shell(collector.site, &compare).map(drop)
    }

    /// What a script writes.
    fn shell(&mut self, site: Site, script: &str) -> Result<String> {
        let finished = self.run(site, &["sh", "-c", script], LIMIT)?;
        Ok(finished.stdout.trim().to_owned())
    }
}

impl Collector {
    fn frames(&self) -> PathBuf {
        self.out.join(DEVICE)
    }

    /// Waits until it has at least so many frames.
    ///
    /// # Errors
    /// When they do not come.
    pub fn wait_for_frames(&self, least: u64) -> Result<()> {
        let enough = |line: &Value| line["frames_received"].as_u64() >= Some(least);
        event(&self.process, "progress", enough).map(drop)
    }

    /// Asks it to end; its summary.
    ///
    /// # Errors
    /// When it does not end, or not as it should.
    pub fn end(mut self) -> Result<Value> {
        self.process.signal(SIGTERM)?;
        summary(self.process.wait(LIMIT)?)
    }
}

/// Waits until a command writes an event of this kind that is as wanted.
///
/// # Errors
/// When it does not come.
pub fn event(process: &Process, kind: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    process.wait_for(kind, LIMIT, |stdout, _| {
        let lines = stdout
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut lines = lines.filter(|line: &Value| line["event"] == kind);
        lines.find(&wanted)
    })
}

/// What a command that succeeded wrote last.
///
/// # Errors
/// When it did not succeed, or that is no JSON.
pub fn summary(finished: Finished) -> Result<Value> {
    let finished = finished.success()?;
    let line = finished.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("no summary: {line:?}"))
}

/// What a command that fails with this exit status says.
///
/// # Errors
/// When it ends in another way.
pub fn complaint(finished: Finished, status: i32) -> Result<String> {
    let expected = Ended::Status(status);
    ensure!(
        finished.ended == expected,
        "{} instead of {expected}: {}",
        finished.ended,
        finished.stderr
    );
    Ok(finished.stderr)
}
