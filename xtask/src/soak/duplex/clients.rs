//! The clients: processes that are killed at any moment, or let end.
use crate::run::{self, Kept};
use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const GOODBYE_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    pub(super) killed: u64,
    pub(super) well: u64,
}

/// The running clients. Dropping them kills them.
pub(super) struct Clients {
    binary: PathBuf,
    provider: String,
    address: String,
    running: Vec<Client>,
    started: u32,
    ended: Ended,
}

/// One of them. It ends when its standard input does.
struct Client {
    number: u32,
    child: Kept,
}

impl Clients {
    pub(super) fn new(binary: &Path, provider: &str, address: &str) -> Self {
        Self {
            binary: binary.to_owned(),
            provider: provider.to_owned(),
            address: address.to_owned(),
            running: Vec::new(),
            started: 0,
            ended: Ended::default(),
        }
    }

    pub(super) fn start(&mut self) -> Result<()> {
        self.started += 1;
        let child = Command::new(&self.binary)
            .args(["client", &self.provider, &self.address])
            .arg(self.started.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a client")?;
        self.running.push(Client { number: self.started, child: Kept(child) });
        Ok(())
    }

    /// Kills a client or lets it end, and starts another one.
    pub(super) fn strike(&mut self, random: &mut Rng, kills: f64) -> Result<()> {
        for client in &mut self.running {
            if let Some(status) = client.child.0.try_wait()? {
                bail!("client {} ended by itself: {status}", client.number);
            }
        }
        let client = self.running.swap_remove(random.usize(..self.running.len()));
        if random.f64() < kills {
            drop(client);
            self.ended.killed += 1;
        } else {
            client.end()?;
            self.ended.well += 1;
        }
        self.start()
    }

    pub(super) fn end(mut self) -> Result<Ended> {
        for client in self.running.drain(..) {
            client.end()?;
            self.ended.well += 1;
        }
        Ok(self.ended)
    }
}

impl Client {
    fn end(mut self) -> Result<()> {
        drop(self.child.0.stdin.take());
        let status = run::wait(&mut self.child.0, GOODBYE_LIMIT)
            .with_context(|| format!("client {} was asked to end", self.number))?;
        ensure!(status.success(), "client {} ended with {status}", self.number);
        Ok(())
    }
}
