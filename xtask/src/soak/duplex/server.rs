//! The server, and what it says about itself.
use super::clients::Ended;
use crate::proc::Footprint;
use crate::run::{self, Kept};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Status {
    pub(super) present: u64,
    pub(super) served: u64,
    pub(super) failed: u64,
    pub(super) refused: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) wrong: u64,
    pub(super) objects: u64,
    pub(super) ended: bool,
}

impl Status {
    fn of(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |key: &str| value[key].as_u64();
        Some(Self {
            present: number("present")?,
            served: number("served")?,
            failed: number("failed")?,
            refused: number("refused")?,
            messages: number("messages")?,
            bytes: number("bytes")?,
            wrong: number("wrong")?,
            objects: number("objects")?,
            ended: value["ended"].as_bool()?,
        })
    }
}

pub(super) struct Holdings {
    footprint: Footprint,
    threads: usize,
}

/// A running server. Dropping it kills it.
pub(super) struct Server {
    child: Kept,
    address: String,
    status: Arc<Mutex<Status>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(binary: &Path, provider: &str) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["server", provider])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let stdout = child.stdout.take().context("its output is a pipe")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = lines.next().context("the server said nothing")??;
        let first: Value = serde_json::from_str(&first).with_context(|| first.clone())?;
        let address = first["address"].as_str().context("no address")?.to_owned();
        let status = Arc::new(Mutex::new(Status::default()));
        let latest = Arc::clone(&status);
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(status) = Status::of(&line) {
                    *latest.lock().unwrap_or_else(PoisonError::into_inner) = status;
                }
            }
        });
        Ok(Self { child: Kept(child), address, status, reader: Some(reader) })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn status(&self) -> Status {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn holdings(&self) -> Holdings {
        let pid = self.child.0.id();
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        Holdings {
            // It writes no files.
            footprint: Footprint::of(pid, Path::new("/nowhere")),
            threads: tasks.map_or(0, Iterator::count),
        }
    }

    /// Resident memory, shared memory included.
    pub(super) fn resident_kib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.0.id());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.context(path)?.parse().context("VmRSS")
    }

    pub(super) fn demand_right(&mut self) -> Result<()> {
        if let Some(status) = self.child.0.try_wait()? {
            bail!("the server ended by itself: {status}");
        }
        let wrong = self.status().wrong;
        ensure!(wrong == 0, "{wrong} messages with wrong bytes, as the server says");
        Ok(())
    }

    /// Waits until it holds what it held before any client came, then lets it end.
    pub(super) fn end(mut self, ended: &Ended, before: &Holdings) -> Result<Status> {
        let start = Instant::now();
        while let Some(left) = self.left(before) {
            self.demand_right()?;
            ensure!(start.elapsed() < PATIENCE, "all clients are gone, and the server has {left}");
            // It looks for who is gone ten times a second.
            thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.0.stdin.take());
        let status =
            run::wait(&mut self.child.0, PATIENCE).context("the server was asked to end")?;
        ensure!(status.success(), "the server ended with {status}");
        if let Some(reader) = self.reader.take() {
            // Its last line is among what was read.
            let _ = reader.join();
        }
        let last = self.status();
        ensure!(last.ended, "the server ended without its last line");
        ensure!(
            last.wrong == 0 && last.served == ended.well,
            "{} clients ended well, and the server says: {last:?}",
            ended.well
        );
        ensure!(
            last.failed <= ended.killed,
            "{} clients were killed, and the server says: {last:?}",
            ended.killed
        );
        ensure!(last.objects == 0, "objects left: {}", last.objects);
        Ok(last)
    }

    fn left(&self, before: &Holdings) -> Option<String> {
        let (status, now) = (self.status(), self.holdings());
        let mut left = now.footprint.beyond(&before.footprint);
        for (what, now, before) in [
            ("clients", status.present, 0),
            ("objects", status.objects, 0),
            ("threads", now.threads as u64, before.threads as u64),
        ] {
            if now > before {
                left.push(format!("{now} {what} (before: {before})"));
            }
        }
        (!left.is_empty()).then(|| left.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read_and_another_is_not() {
        let line = r#"{"present":1,"served":2,"failed":3,"refused":4,"messages":5,"bytes":6,
            "wrong":7,"objects":8,"ended":true}"#;
        let status = Status::of(line).unwrap();
        assert_eq!((status.present, status.objects, status.ended), (1, 8, true));
        assert!(Status::of(r#"{"address":"127.0.0.1:1"}"#).is_none());
        assert!(Status::of("noise").is_none());
    }
}
