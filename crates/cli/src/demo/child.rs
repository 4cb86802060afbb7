//! A process of this program, started by this process, that reports its progress as JSON lines.
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::events::{CollectEvent, SendEvent};
use anyhow::Context as _;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Collector,
    Source,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Collector => "collector",
            Self::Source => "source",
        }
    }
}

#[derive(Debug)]
pub(super) enum Event {
    Collector(CollectEvent),
    Source(SendEvent),
    /// The process writes no more: it ends.
    Silent(Role),
    AskedToEnd,
}

/// The process. It ends when this is dropped, and also when this process is killed: then its stdin
/// closes.
pub(super) struct Process {
    pub(super) role: Role,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Process {
    pub(super) fn start(
        role: Role,
        arguments: Vec<OsString>,
        sender: Sender<Event>,
    ) -> Result<Self, Failure> {
        let started = Self::start_with(role, arguments, Stdio::inherit(), sender);
        started
            .with_context(|| format!("cannot start the {} process", role.name()))
            .or_fail(Code::Failed)
    }

    /// Starts it where the calling thread is, with its errors going elsewhere.
    pub(super) fn start_with(
        role: Role,
        arguments: Vec<OsString>,
        errors: Stdio,
        sender: Sender<Event>,
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .args(["--json", "--until-stdin-closes"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            // Ctrl-C in the terminal is for this process, which ends the others in order.
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let process = Self { role, child, stdin };
        let stdout = stdout.context("it has no stdout")?;
        thread::Builder::new()
            .name(role.name().to_owned())
            .spawn(move || listen(role, stdout, &sender))?;
        Ok(process)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn ask_to_end(&mut self) {
        self.stdin = None;
    }

    /// Waits until it has ended; its exit code, 1 if a signal killed it.
    pub(super) fn wait(&mut self) -> Result<u8, Failure> {
        let status = self
            .child
            .wait()
            .with_context(|| format!("cannot wait for the {} process", self.role.name()))
            .or_fail(Code::Failed)?;
        Ok(status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(role: Role, stdout: ChildStdout, sender: &Sender<Event>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let event = match role {
            Role::Collector => parse(&line, Event::Collector),
            Role::Source => parse(&line, Event::Source),
        };
        if let Some(event) = event {
            let _ = sender.send(event);
        }
    }
    let _ = sender.send(Event::Silent(role));
}

fn parse<E: DeserializeOwned>(line: &str, wrap: impl Fn(E) -> Event) -> Option<Event> {
    match serde_json::from_str(line) {
        Ok(event) => Some(wrap(event)),
        Err(error) => {
            tracing::warn!(%error, line, "cannot parse a line that a demo process wrote");
            None
        }
    }
}
