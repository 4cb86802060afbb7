//! Child processes that end with this one, at the latest by a limit of time.
use anyhow::{Context, Result, bail};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A child, killed when the value goes. Its output is a pipe.
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    name: &'static str,
}

impl Running {
    /// Starts it; its errors go where ours go.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Running> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let output = child.stdout.take().context("the output is a pipe")?;
        Ok(Running {
            child,
            output: BufReader::new(output),
            name,
        })
    }

    /// Waits for a line of its output that holds `text`.
    pub(crate) fn wait_for(&mut self, text: &str) -> Result<()> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if line.contains(text) {
                return Ok(());
            }
            line.clear();
        }
        bail!("{} ended before it was ready", self.name)
    }

    /// Waits for its end and gives the rest of its output.
    pub(crate) fn finish(mut self) -> Result<String> {
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(text);
        }
        bail!("{} failed with {status}: {text}", self.name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
