//! A second process of a test: the test binary, started again, which exchanges lines with the first.
use crate::load::scaled;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The variable with the role of a second process.
const ROLE: &str = "CATCHMENT_TEST_ROLE";
/// Precedes each line it sends: the test harness prints lines of its own, also directly before ours.
pub const MARK: &str = "@@ ";

/// Returns the role of this process, if [`Child::start`] started it.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Sends a line to the first process.
pub fn say(line: &str) {
    println!("\n{MARK}{line}");
    std::io::stdout().flush().expect("stdout is open");
}

/// Returns a short line for the first process, with a line's end before and behind it, to be sent by one
/// write. Does not allocate: a process that forbade itself system calls could not, for the allocator may make
/// some.
///
/// # Panics
/// If the line has more than 27 bytes.
pub fn line_to_say(line: &str) -> [u8; 32] {
    let mut bytes = [b'\n'; 32];
    let (start, rest) = bytes[1..31].split_at_mut(MARK.len());
    start.copy_from_slice(MARK.as_bytes());
    rest[..line.len()].copy_from_slice(line.as_bytes());
    bytes
}

/// Waits for a line from the first process.
pub fn hear() -> String {
    let line = std::io::stdin().lines().next().expect("the first process sends a line");
    line.expect("stdin is readable")
}

/// A second process. Killed when dropped.
pub struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Child {
    /// Starts the one test of this binary with `test` in its name, which gets its role from [`role`].
    pub fn start(test: &str, role: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a process has a program"))
            .args([test, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts again");
        let output = process.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(at) = line.find(MARK) {
                    // Fails once the child has been dropped.
                    let _ = sender.send(line[at + MARK.len()..].to_owned());
                }
            }
        });
        Self { input: process.stdin.take(), process, lines }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its next line; `None` if it ended.
    ///
    /// # Panics
    /// If no line comes for far too long.
    pub fn listen(&mut self) -> Option<String> {
        match self.lines.recv_timeout(Duration::from_secs(scaled(300).max(300))) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line came from the second process"),
        }
    }

    /// Waits for its next line.
    ///
    /// # Panics
    /// If it ends instead.
    pub fn hear(&mut self) -> String {
        self.listen().expect("the second process failed (see above)")
    }

    /// Waits for its next line, which must begin with `start`, and returns the rest of it.
    ///
    /// # Panics
    /// If the line begins otherwise.
    pub fn says(&mut self, start: &str) -> String {
        let line = self.hear();
        let rest = line.strip_prefix(start);
        rest.unwrap_or_else(|| panic!("expected {start:?}, got {line:?}")).to_owned()
    }

    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open until its end");
        writeln!(input, "{line}").expect("the second process reads its input");
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Sends SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// # Panics
    /// If it ended by itself.
    pub fn demand_running(&mut self) {
        let ended = self.process.try_wait().expect("it is our child");
        assert!(ended.is_none(), "the second process ended by itself: {ended:?}");
    }

    /// Closes its standard input, at which it ends, and waits for it.
    ///
    /// # Panics
    /// If it failed.
    pub fn end(&mut self) {
        self.input = None;
        let status = self.process.wait().expect("it is our child");
        assert!(status.success(), "the second process failed: {status}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
