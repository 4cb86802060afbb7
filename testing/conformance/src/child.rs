//! A second process: the test binary, started again, and what the two say to each other.
use crate::PATIENCE;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Tells a second process what it is there for.
pub(crate) const ROLE: &str = "CATCHMENT_CONFORMANCE_ROLE";
/// Marks what a child says: the test harness prints lines of its own.
const MARK: &str = "@@ ";
/// How long a child may take for a whole case.
const LONG: Duration = Duration::from_secs(300);

pub fn say(line: &str) {
    println!("\n{MARK}{line}");
    std::io::stdout().flush().unwrap();
}

/// A second process. Killed when dropped.
pub struct Child {
    process: std::process::Child,
    input: std::process::ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Child {
    pub fn start(role: &str) -> Child {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["conformance_child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = process.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(at) = line.find(MARK)
                    && sender.send(line[at + MARK.len()..].to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Child { input: process.stdin.take().unwrap(), process, lines }
    }

    pub fn hear(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("the second process says nothing, or failed (see above)")
    }

    pub fn wait_for(self, word: &str) {
        let said = self.lines.recv_timeout(LONG).expect("the second process failed (see above)");
        assert_eq!(said, word);
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
