//! A child process with a piped output and the end of its stderr.
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

/// Bytes of stderr that are kept: its end, where the reason is.
const STDERR_BYTES_MAX: usize = 4096;
/// Requested size of the pipe, so that ffmpeg and the reader switch less often.
const PIPE_BYTES: usize = 1 << 20;
const THREAD_STACK_BYTES: usize = 128 << 10;

/// Killed and reaped when dropped.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    stdout: Option<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
}

impl Child {
    pub(super) fn spawn(program: &Path, args: &[OsString], stdin: Stdio) -> io::Result<Self> {
        let mut process = Command::new(program)
            .args(args)
            .env("AV_LOG_FORCE_NOCOLOR", "1")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal is for the source, which then ends its streams in order.
            .process_group(0)
            .spawn()?;
        let stdout = process.stdout.take();
        let stderr = process.stderr.take();
        let mut child = Self { process, stdout, stderr: None };
        if let Some(pipe) = &child.stdout {
            // The system may limit pipes to less.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
        }
        if let Some(pipe) = stderr {
            child.stderr = Some(
                thread::Builder::new()
                    .name("stderr".to_owned())
                    .stack_size(THREAD_STACK_BYTES)
                    .spawn(move || read_tail(pipe))?,
            );
        }
        Ok(child)
    }

    pub(super) fn stdout(&self) -> Option<&ChildStdout> {
        self.stdout.as_ref()
    }

    /// Takes the output, to make it another child's input.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// Reads all of the output, at most `bytes_max` bytes.
    pub(super) fn read_stdout(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut output = Vec::new();
        if let Some(stdout) = self.stdout.take() {
            stdout.take(bytes_max).read_to_end(&mut output)?;
        }
        Ok(output)
    }

    /// Waits until it ends; returns its exit status and the end of its stderr.
    pub(super) fn wait(&mut self) -> io::Result<(ExitStatus, String)> {
        self.stdout = None;
        let status = self.process.wait()?;
        Ok((status, self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default()))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only for a process that was already waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(thread) = self.stderr.take() {
            let _ = thread.join();
        }
    }
}

/// Reads to the end and keeps the last part. A full pipe would stop the child.
fn read_tail(mut pipe: ChildStderr) -> String {
    let mut tail = VecDeque::new();
    let mut chunk = [0; STDERR_BYTES_MAX];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => break,
            Ok(got) => tail.extend(&chunk[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        tail.drain(..tail.len().saturating_sub(STDERR_BYTES_MAX));
    }
    printable(&Vec::from(tail))
}

/// Makes text safe for a terminal: file names and metadata of a clip are untrusted.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let clean: String =
        text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect();
    clean.trim_end().to_owned()
}
