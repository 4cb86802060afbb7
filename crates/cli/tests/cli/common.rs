//! The real command, its processes and what they write.
use catchment_netns::wait_until;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

/// Longer than anything takes on a machine that does other work too.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn catchment() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_catchment"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

#[derive(Debug)]
pub(super) struct Finished {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Finished {
    #[track_caller]
    pub(super) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The lines of stdout, which must be JSON.
    #[track_caller]
    pub(super) fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last line of stdout, which must be JSON.
    #[track_caller]
    pub(super) fn last_json(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

pub(super) fn run<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Finished {
    finish(catchment().args(words))
}

pub(super) const INPUT: &str = "synthetic:64x48:rgb24";

/// `send` of one input as this device to this collector, with these words more.
pub(super) fn send(input: &str, device: &str, collector: &str, words: &[&str]) -> Command {
    let mut command = catchment();
    command.args(["send", "--input", input, "--device", device]);
    command.args(words).arg(collector);
    command
}

/// Runs a command to its end. One that takes too long is killed.
pub(super) fn finish(command: &mut Command) -> Finished {
    Running::start(command).finish()
}

/// A process that is killed when this is dropped.
pub(super) struct Kept(pub(super) Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process whose output is collected. Dropping it kills it.
pub(super) struct Running {
    child: Kept,
    texts: [Text; 2],
}

/// What a process writes, collected on a thread.
struct Text {
    so_far: Arc<Mutex<Vec<u8>>>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = collect_text(child.stdout.take().unwrap());
        let stderr = collect_text(child.stderr.take().unwrap());
        Self { child: Kept(child), texts: [stdout, stderr] }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.0.id()
    }

    pub(super) fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.0.stdin.take()
    }

    /// What it has written to stderr so far.
    pub(super) fn said(&self) -> String {
        read_so_far(&self.texts[1].so_far)
    }

    /// Waits until it, a controller, grants; returns where.
    pub(super) fn granting_at(&self) -> String {
        wait_until("it grants", || self.said().contains("; sources"));
        let said = self.said();
        said.split("granting at ").nth(1).unwrap().split(';').next().unwrap().to_owned()
    }

    /// What it has written to stdout so far.
    pub(super) fn printed(&self) -> String {
        read_so_far(&self.texts[0].so_far)
    }

    /// As an out-of-memory killer would.
    pub(super) fn kill(self) {}

    #[track_caller]
    pub(super) fn finish(mut self) -> Finished {
        let code = wait(&mut self.child.0).code();
        let [stdout, stderr] = self.texts.map(|text| {
            text.thread.join().unwrap();
            read_so_far(&text.so_far)
        });
        Finished { code, stdout, stderr }
    }
}

fn collect_text(mut from: impl std::io::Read + Send + 'static) -> Text {
    let so_far = Arc::<Mutex<Vec<u8>>>::default();
    let into = so_far.clone();
    let thread = thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut part) {
            into.lock().unwrap().extend_from_slice(&part[..count]);
        }
    });
    Text { so_far, thread }
}

fn read_so_far(text: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&text.lock().unwrap()).into_owned()
}

#[track_caller]
fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("a process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

pub(super) fn signal(id: u32, signal: rustix::process::Signal) {
    let id = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
    rustix::process::kill_process(id, signal).unwrap();
}

/// A process that writes JSON lines, the first of which says where it listens. Dropping it kills it.
pub(super) struct Service {
    child: Kept,
    pub(super) listening: Value,
    pub(super) address: String,
    lines: Receiver<Value>,
}

pub(super) type Collector = Service;

impl Service {
    pub(super) fn start_command(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = tell.send(serde_json::from_str(&line).expect("--json writes JSON lines"));
            }
        });
        let child = Kept(child);
        let mut service = Self { child, listening: Value::Null, address: String::new(), lines };
        service.listening = service.next_event("listening");
        service.address = service.listening["address"].as_str().unwrap().to_owned();
        service
    }

    /// A `catchment collect --json` that works.
    pub(super) fn start(out: &Path) -> Self {
        Self::start_with("127.0.0.1:0", &["--out", out.to_str().unwrap()])
    }

    pub(super) fn start_with(listen: &str, words: &[&str]) -> Self {
        let collect = ["collect", "--json", "--no-dashboard", "--listen", listen];
        Self::start_command(catchment().args(collect).args(words))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// The next event.
    #[track_caller]
    pub(super) fn next(&self) -> Value {
        self.lines.recv_timeout(LIMIT).expect("an event")
    }

    /// The next event, which must be of this kind.
    #[track_caller]
    pub(super) fn next_event(&self, kind: &str) -> Value {
        let line = self.lines.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no event {kind}"));
        assert_eq!(line["event"], kind, "{line}");
        line
    }

    /// Kills it, as an out-of-memory killer would.
    pub(super) fn kill(self) {}

    /// Asks it to end; its summary.
    #[track_caller]
    pub(super) fn end(self) -> Value {
        self.end_with(0)
    }

    /// Asks it to end, which it must do with this exit code; its summary.
    #[track_caller]
    pub(super) fn end_with(mut self, code: i32) -> Value {
        signal(self.id(), rustix::process::Signal::TERM);
        let summary = loop {
            let line = self.lines.recv_timeout(LIMIT).expect("a summary");
            if line["event"] == "summary" {
                break line;
            }
        };
        assert_eq!(wait(&mut self.child.0).code(), Some(code));
        summary
    }
}

/// A collector that works, and the folder that it writes to.
pub(super) fn collecting() -> (tempfile::TempDir, Collector) {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(dir.path());
    (dir, collector)
}

/// A demo whose temporary files go to this folder.
pub(super) fn demo(tmp: &Path, words: &[&str]) -> Command {
    let mut command = catchment();
    command.arg("demo").args(words).env("TMPDIR", tmp);
    command
}

/// Names of the frames in a device's directory, in order. Hidden files are no frames.
pub(super) fn frames(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// All bytes of a device, as `cat OUT/DEVICE/*` gives them.
pub(super) fn stream(out: &Path, device: &str) -> Vec<u8> {
    let dir = out.join(device);
    let read = |name: &String| fs::read(dir.join(name)).unwrap();
    frames(&dir).iter().flat_map(read).collect()
}

#[track_caller]
pub(super) fn wait_for_frames(out: &Path, device: &str, least: usize) {
    let dir = out.join(device);
    wait_until(&format!("{device} has {least} frames"), || frames(&dir).len() >= least);
}

/// Fails unless the device has exactly the frames `0..count` of its synthetic input.
#[track_caller]
pub(super) fn check_synthetic(out: &Path, device: &str, index: usize, input: &str, count: usize) {
    let dir = out.join(device);
    let names = frames(&dir);
    let expected: Vec<String> = (0..count).map(|n| format!("{n:012}")).collect();
    assert_eq!(names, expected, "the frames of {device}");
    let (index, number) = (index.to_string(), count.to_string());
    let words = ["checksums", "--input", input, "--device", device, "--frames", &number];
    let expected = run(words.iter().chain(&["--device-index", &index])).expect(0).stdout;
    for (name, checksum) in names.iter().zip(expected.lines()) {
        let bytes = fs::read(dir.join(name)).unwrap();
        let seen = format!("{:08x}", crc32c::crc32c(&bytes));
        assert_eq!(seen, checksum, "frame {name} of {device}");
    }
}

#[track_caller]
pub(super) fn ffmpeg(words: &[&str]) -> Vec<u8> {
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y"])
        .args(words)
        .output()
        .expect("the tests need ffmpeg (Debian: apt-get install ffmpeg)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ffmpeg {words:?}: {said}");
    output.stdout
}

/// A compressed clip with much detail, different for each `seed`.
pub(super) fn clip(dir: &Path, name: &str, seed: u32, frames: u32) -> PathBuf {
    let path = dir.join(name);
    let source = format!("mandelbrot=s=192x144:r=25:start_scale={}", 3 + seed);
    let noise = format!("noise=alls=20:allf=t:all_seed={seed}");
    let encoder = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p";
    let words = format!("-f lavfi -i {source} -vf {noise} -frames:v {frames} {encoder}");
    let words: Vec<&str> = words.split(' ').chain([path.to_str().unwrap()]).collect();
    ffmpeg(&words);
    path
}

pub(super) fn decoded(path: &Path) -> Vec<u8> {
    ffmpeg(&["-i", path.to_str().unwrap(), "-f", "rawvideo", "-"])
}

/// Fails with lengths and place, not with megabytes of numbers.
#[track_caller]
pub(super) fn assert_same(seen: &[u8], expected: &[u8]) {
    assert_eq!(seen.len(), expected.len(), "number of bytes");
    let differs = seen.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "first byte that differs");
}
