//! The host's side: a program in the guest, its output as it arrives, its end.
use super::frame::Frame;
use super::{Ended, Start};
use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Time limit for the rest of a frame that has begun to arrive.
const FRAME_LIMIT: Duration = Duration::from_secs(30);

const KILL_LIMIT: Duration = Duration::from_secs(10);

/// What happens to output as it arrives; all of it is also kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Kept,
    Passed,
}

/// A program in the guest. Dropping it kills the program and waits until it is gone.
pub(crate) struct Process {
    name: String,
    stream: TcpStream,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) ended: Ended,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[derive(Default)]
struct State {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// How it ended, or why that is unknown.
    end: Option<Result<Ended, String>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    condition: Condvar,
}

impl Process {
    /// Starts a program through the server at `server`. `guest` is a pidfd of the process that runs the
    /// guest: when that ends, so do all its programs, without a packet.
    pub(crate) fn start(
        server: SocketAddr,
        guest: Arc<OwnedFd>,
        start: &Start,
        output: Output,
    ) -> Result<Self> {
        let mut stream = TcpStream::connect_timeout(&server, CONNECT_LIMIT)
            .context("cannot connect to the guest")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(FRAME_LIMIT))?;
        Frame::Start(start.clone()).write(&mut stream)?;
        let shared = Arc::new(Shared::default());
        let from_guest = BufReader::new(stream.try_clone()?);
        let mut reader = Reader { stream: from_guest, guest, shared: Arc::clone(&shared), output };
        thread::spawn(move || reader.run());
        Ok(Self { name: start.words.join(" "), stream, shared })
    }

    /// Sends a signal to the program and all that it started.
    pub(crate) fn signal(&mut self, number: i32) -> Result<()> {
        self.send(&Frame::Signal(number))
    }

    pub(crate) fn send_line(&mut self, line: &str) -> Result<()> {
        self.send(&Frame::Input(format!("{line}\n")))
    }

    fn send(&mut self, frame: &Frame) -> Result<()> {
        let sent = frame.write(&mut self.stream);
        sent.with_context(|| format!("cannot reach the guest of `{}`", self.name))
    }

    /// Waits for the end. A program that runs longer than `limit` is killed.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Finished> {
        if let Some(finished) = self.finished_within(limit)? {
            return Ok(finished);
        }
        // The limit is the error to report, whether or not the signal arrives.
        let _ = self.signal(9);
        let shown = self.shared.lock().shown();
        let seconds = limit.as_secs_f64();
        bail!("`{}` still ran after {seconds:.0} s{shown}", self.name)
    }

    pub(crate) fn output_so_far(&self) -> String {
        format!("output of `{}`:{}", self.name, self.shared.lock().shown())
    }

    pub(crate) fn finished_within(&self, limit: Duration) -> Result<Option<Finished>> {
        let state = self.until(limit, |state| state.end.is_some());
        match state.end.clone() {
            Some(Ok(ended)) => Ok(Some(Finished {
                ended,
                stdout: text(&state.stdout),
                stderr: text(&state.stderr),
            })),
            Some(Err(why)) => bail!("`{}`: {why}{}", self.name, state.shown()),
            None => Ok(None),
        }
    }

    pub(crate) fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        found: impl Fn(&str, &str) -> Option<T>,
    ) -> Result<T> {
        self.find(what, limit, |state| found(&text(&state.stdout), &text(&state.stderr)))
    }

    pub(crate) fn line(&self, what: &str, limit: Duration) -> Result<String> {
        self.find(what, limit, |state| {
            let end = state.stdout.iter().position(|byte| *byte == b'\n')?;
            let line: Vec<_> = state.stdout.drain(..=end).collect();
            Some(text(&line[..end]))
        })
    }

    /// Waits until something is found in its output; fails if it ends first.
    fn find<T>(
        &self,
        what: &str,
        limit: Duration,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        let mut result = None;
        let state = self.until(limit, |state| {
            result = found(state);
            result.is_some() || state.end.is_some()
        });
        result.ok_or_else(|| self.missed(what, limit, &state))
    }

    fn missed(&self, what: &str, limit: Duration, state: &State) -> Error {
        let (name, shown) = (&self.name, state.shown());
        match &state.end {
            Some(Ok(ended)) => anyhow!("`{name}` ended ({ended}) before {what}{shown}"),
            Some(Err(why)) => anyhow!("`{name}`: {why} before {what}{shown}"),
            None => anyhow!("`{name}`: no {what} in {limit:?}{shown}"),
        }
    }

    fn until(
        &self,
        limit: Duration,
        mut enough: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'_, State> {
        let Shared { condition, .. } = &*self.shared;
        let waited =
            condition.wait_timeout_while(self.shared.lock(), limit, |state| !enough(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The server then kills the program and reports its end, when its ports are free.
        let _ = self.stream.shutdown(Shutdown::Write);
        drop(self.until(KILL_LIMIT, |state| state.end.is_some()));
        // The reader has a handle of the connection, so closing ours is not enough.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Finished {
    pub(crate) fn success(self) -> Result<Self> {
        let shown = shown(&self.stdout, &self.stderr);
        ensure!(self.ended == Ended::Status(0), "{}{shown}", self.ended);
        Ok(self)
    }
}

impl State {
    fn shown(&self) -> String {
        shown(&text(&self.stdout), &text(&self.stderr))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.condition.notify_all();
    }
}

struct Reader {
    stream: BufReader<TcpStream>,
    guest: Arc<OwnedFd>,
    shared: Arc<Shared>,
    output: Output,
}

impl Reader {
    fn run(&mut self) {
        let end = loop {
            match self.next() {
                Ok(Some(end)) => break Ok(end),
                Ok(None) => {}
                Err(error) => break Err(format!("{error:#}")),
            }
        };
        self.shared.change(|state| state.end = Some(end));
    }

    fn next(&mut self) -> Result<Option<Ended>> {
        self.wait()?;
        match Frame::read(&mut self.stream).context("the guest is gone")? {
            Some(Frame::Stdout(bytes)) => {
                if self.output == Output::Passed {
                    std::io::stdout().write_all(&bytes)?;
                    std::io::stdout().flush()?;
                }
                self.shared.change(|state| state.stdout.extend(bytes));
            }
            Some(Frame::Stderr(bytes)) => {
                if self.output == Output::Passed {
                    std::io::stderr().write_all(&bytes)?;
                }
                self.shared.change(|state| state.stderr.extend(bytes));
            }
            Some(Frame::Ended(ended)) => return Ok(Some(ended)),
            Some(Frame::Start(_) | Frame::Signal(_) | Frame::Input(_)) => {
                bail!("the guest sent a message that only hosts send")
            }
            None => bail!("the guest's server closed the connection"),
        }
        Ok(None)
    }

    /// Waits until a frame arrives or the guest ends, which no packet reports.
    fn wait(&self) -> Result<()> {
        if !self.stream.buffer().is_empty() {
            return Ok(());
        }
        let stream = PollFd::new(self.stream.get_ref(), PollFlags::IN);
        let mut sources = [stream, PollFd::new(&*self.guest, PollFlags::IN)];
        poll(&mut sources, None)?;
        ensure!(!sources[0].revents().is_empty(), "the guest has ended");
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(stdout: &str, stderr: &str) -> String {
    const LINES: usize = 12;
    let mut shown = String::new();
    for (name, text) in [("stdout", stdout), ("stderr", stderr)] {
        let lines: Vec<_> = text.lines().collect();
        if !lines.is_empty() {
            let last = lines[lines.len().saturating_sub(LINES)..].join("\n    ");
            shown.push_str(&format!("\n  {name}:\n    {last}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::server;
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::net::TcpListener;
    use std::process::Command;

    const LONG: Duration = Duration::from_secs(60);

    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || server::serve(&listener));
        address
    }

    fn this_process() -> Arc<OwnedFd> {
        let pid = rustix::process::getpid();
        Arc::new(pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    fn shell(script: &str) -> Process {
        let start = Start::like_here(["sh", "-c", script]);
        Process::start(server(), this_process(), &start, Output::Kept).unwrap()
    }

    fn printed_process(process: &Process) -> OwnedFd {
        let pid = process.line("a number", LONG).unwrap().parse().unwrap();
        pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap()
    }

    /// A test that hangs here has found a mistake.
    fn wait_for_end(process: &OwnedFd) {
        poll(&mut [PollFd::new(process, PollFlags::IN)], None).unwrap();
    }

    #[test]
    fn output_and_status_come_back() {
        let finished = shell("echo one; echo two >&2; exit 3").wait(LONG).unwrap();
        assert_eq!(finished.stdout, "one\n");
        assert_eq!(finished.stderr, "two\n");
        assert_eq!(finished.ended, Ended::Status(3));
        let error = finished.success().unwrap_err().to_string();
        assert_eq!(error, "exit status 3\n  stdout:\n    one\n  stderr:\n    two");
    }

    #[test]
    fn a_program_reads_the_input_it_is_sent() {
        let start = Start::like_here(["sh", "-c", "read line; echo $line $LAB"]);
        let start = start.with("LAB", "first").with("LAB", "heard").with_input();
        let mut process = Process::start(server(), this_process(), &start, Output::Kept).unwrap();
        process.send_line("words are").unwrap();
        assert_eq!(process.wait(LONG).unwrap().stdout, "words are heard\n");
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let start = Start::like_here(["no-such-program"]);
        let mut process = Process::start(server(), this_process(), &start, Output::Kept).unwrap();
        let ended = process.wait(LONG).unwrap().ended.to_string();
        assert!(ended.contains("no-such-program"), "{ended}");
    }

    #[test]
    fn a_hanging_program_is_killed_with_what_it_started() {
        let mut process = shell("sleep 4711 & echo $!; wait");
        let below = printed_process(&process);
        let error = process.wait(Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("still ran"), "{error}");
        assert_eq!(process.wait(LONG).unwrap().ended, Ended::Signal(9));
        wait_for_end(&below);
    }

    #[test]
    fn dropping_a_process_kills_it() {
        let process = shell("echo $$; sleep 4712");
        let printed = printed_process(&process);
        drop(process);
        wait_for_end(&printed);
    }

    #[test]
    fn a_guest_that_ends_ends_its_programs() {
        let mut guest = Command::new("sleep").arg("4713").spawn().unwrap();
        let descriptor = pidfd_open(Pid::from_child(&guest), PidfdFlags::empty()).unwrap();
        let start = Start::like_here(["sleep", "4714"]);
        let mut process =
            Process::start(server(), Arc::new(descriptor), &start, Output::Kept).unwrap();
        guest.kill().unwrap();
        let error = process.wait(LONG).unwrap_err().to_string();
        guest.wait().unwrap();
        assert_eq!(error, "`sleep 4714`: the guest has ended");
    }

    #[test]
    fn waiting_for_what_never_comes_says_what_came() {
        let process = shell("echo one");
        let never = |_: &str, _: &str| None::<()>;
        let error = process.wait_for("a two", LONG, never).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`sh -c echo one` ended (exit status 0) before a two\n  stdout:\n    one"
        );
    }
}
