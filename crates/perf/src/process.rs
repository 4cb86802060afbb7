//! Child processes that end with this one's interest in them.
use crate::PerfError;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A child process whose output is read, killed when the value is dropped.
pub struct ChildProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    name: &'static str,
}

impl ChildProcess {
    /// Starts it. Its errors go where ours go; its input is what `command` says.
    ///
    /// # Errors
    /// [`PerfError::Process`] if the system does not start it.
    pub fn start(name: &'static str, command: &mut Command) -> Result<Self, PerfError> {
        let failed = |what: String| PerfError::Process { name, what };
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| failed("has no output".to_owned()))?;
        Ok(Self { child, output: BufReader::new(output), name })
    }

    fn failed(&self, what: String) -> PerfError {
        PerfError::Process { name: self.name, what }
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its input, which `command` has piped.
    ///
    /// # Errors
    /// [`PerfError::Process`] if it takes no input, or no more.
    pub fn say(&mut self, line: &str) -> Result<(), PerfError> {
        let input = self.child.stdin.as_mut();
        let said = input.map(|input| writeln!(input, "{line}"));
        let said = said.ok_or_else(|| self.failed("takes no input".to_owned()))?;
        said.map_err(|error| self.failed(format!("writing to its input: {error}")))
    }

    /// Waits for a line of its output that `is_wanted`, and returns it.
    ///
    /// # Errors
    /// [`PerfError::Process`] if the output ends before.
    pub fn wait_for(
        &mut self,
        mut is_wanted: impl FnMut(&str) -> bool,
    ) -> Result<String, PerfError> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line);
            let count =
                read.map_err(|error| self.failed(format!("reading its output: {error}")))?;
            if count == 0 {
                return Err(self.failed("ended before it was ready".to_owned()));
            }
            if is_wanted(line.trim_end()) {
                return Ok(line);
            }
        }
    }

    /// Ends its input, waits until it ends, and returns the rest of its output.
    ///
    /// # Errors
    /// [`PerfError::Process`] if it did not end with success.
    pub fn finish(mut self) -> Result<String, PerfError> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        let read = self.output.read_to_string(&mut text);
        read.map_err(|error| self.failed(format!("reading its output: {error}")))?;
        let status = self.child.wait();
        match status.map_err(|error| self.failed(error.to_string()))? {
            status if status.success() => Ok(text),
            status => Err(self.failed(format!("failed with {status}: {text}"))),
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ChildProcess {
        ChildProcess::start("a shell", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn output_is_read_up_to_a_line_and_to_the_end() {
        let mut child = shell("echo one; echo ready 7; echo three");
        assert_eq!(child.wait_for(|line| line.contains("ready")).unwrap(), "ready 7\n");
        assert_eq!(child.finish().unwrap(), "three\n");
    }

    #[test]
    fn a_child_hears_what_it_is_told_until_its_input_ends() {
        let mut command = Command::new("cat");
        let mut child = ChildProcess::start("cat", command.stdin(Stdio::piped())).unwrap();
        child.say("one").unwrap();
        assert_eq!(child.wait_for(|_| true).unwrap(), "one\n");
        child.say("two").unwrap();
        assert_eq!(child.finish().unwrap(), "two\n");
        let mut command = Command::new("true");
        let mut child = ChildProcess::start("deaf", command.stdin(Stdio::null())).unwrap();
        let error = child.say("one").unwrap_err().to_string();
        assert!(error.contains("no input"), "{error}");
    }

    #[test]
    fn a_child_that_fails_or_is_never_ready_is_an_error_with_its_name() {
        let error = shell("echo why; exit 3").finish().err().unwrap().to_string();
        assert!(error.contains("a shell") && error.contains("why"), "{error}");
        let error = shell("true").wait_for(|_| true).unwrap_err().to_string();
        assert!(error.contains("ready"), "{error}");
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = shell("exec sleep 1000");
        let path = format!("/proc/{}", child.child.id());
        drop(child);
        assert!(!std::path::Path::new(&path).exists());
    }
}
