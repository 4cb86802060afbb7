//! The processes of a round. Only this file has command lines of `catchment`.
use super::plan::{Plan, Role};
use crate::proc::{self, Footprint};
use crate::run::{self, KillOnDrop};
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Every process of a round has this variable, which identifies its orphans.
const MARK: &str = "CATCHMENT_SOAK_ROUND";

const INPUT: &str = "synthetic:64x48:rgb24";
pub(crate) const FRAME_BYTES: u64 = 64 * 48 * 3;
const GOODBYE_LIMIT: Duration = Duration::from_secs(15);

pub(crate) struct Setting {
    binary: PathBuf,
    folder: PathBuf,
    provider: String,
    address: String,
    devices: usize,
    rate_fps: u32,
}

impl Setting {
    pub(crate) fn new(binary: &Path, provider: &str, plan: &Plan) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("catchment-soak-{}-{number}", std::process::id());
        let setting = Self {
            binary: binary.to_path_buf(),
            folder: std::env::temp_dir().join(name),
            provider: provider.to_owned(),
            address: TcpListener::bind("127.0.0.1:0")
                .context("no free port")?
                .local_addr()?
                .to_string(),
            devices: plan.devices,
            rate_fps: plan.rate_fps,
        };
        for folder in [setting.out(), setting.scratch()] {
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        Ok(setting)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// The folder for temporary files of the processes; empty at the end.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// The file with what all processes of a role wrote, one after the other.
    pub(crate) fn log(&self, role: Role) -> PathBuf {
        self.folder.join(format!("{role}.log"))
    }

    pub(crate) fn devices(&self) -> Vec<String> {
        (0..self.devices).map(|number| format!("cam{number}")).collect()
    }

    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        proc::with_environment(MARK, &self.mark())
    }

    fn mark(&self) -> String {
        self.folder.display().to_string()
    }

    fn command(&self, role: Role) -> Command {
        match role {
            Role::Source => self.source(),
            Role::Collector => self.collector(),
        }
    }

    fn collector(&self) -> Command {
        let mut command = self.catchment();
        command
            .args(["collect", "--json", "--listen", &self.address, "--out"])
            .arg(self.out())
            .args(self.rules());
        command
    }

    fn source(&self) -> Command {
        let mut command = self.catchment();
        command.args(["send", "--json", "--rate", &self.rate_fps.to_string()]);
        command.args(self.rules());
        for device in self.devices() {
            command.args(["--input", INPUT, "--device", &device]);
        }
        command.arg(&self.address);
        command
    }

    fn rules(&self) -> [&str; 2] {
        ["--provider", &self.provider]
    }

    fn catchment(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env(MARK, self.mark()).current_dir(&self.folder);
        command.env("TMPDIR", self.scratch()).env("XDG_RUNTIME_DIR", self.scratch());
        command.stdin(Stdio::null());
        command
    }

    /// Returns the CRC-32C of each of the first `count` frames that device number `device` sends.
    pub(crate) fn checksums(&self, device: usize, count: u64) -> Result<Vec<u32>> {
        let mut command = self.catchment();
        command.args(["checksums", "--input", INPUT, "--device-index", &device.to_string()]);
        command.args(["--frames", &count.to_string()]);
        let finished = run::finish(&mut command, GOODBYE_LIMIT, run::Show::Nothing)?;
        run::demand_success(&command, finished.status)?;
        let numbers = finished.stdout.lines().map(|line| u32::from_str_radix(line, 16));
        let numbers: Vec<u32> = numbers.collect::<Result<_, _>>().context(run::shown(&command))?;
        let printed = numbers.len();
        ensure!(printed as u64 == count, "`{}` printed {printed} lines", run::shown(&command));
        Ok(numbers)
    }
}

/// A running source or collector. Dropping it kills it.
pub(crate) struct Agent {
    role: Role,
    child: KillOnDrop,
    log: PathBuf,
    out: PathBuf,
}

impl Agent {
    pub(crate) fn start(setting: &Setting, role: Role) -> Result<Self> {
        let log = setting.log(role);
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = setting.command(role);
        command.stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start the {role}"))?;
        Ok(Self { role, child: KillOnDrop(child), log, out: setting.out() })
    }

    pub(crate) fn footprint(&self) -> Footprint {
        Footprint::of(self.child.0.id(), &self.out)
    }

    pub(crate) fn demand_running(&mut self) -> Result<()> {
        let Some(status) = self.child.0.try_wait()? else { return Ok(()) };
        bail!("the {} ended by itself ({status}); {}", self.role, self.log_tail())
    }

    pub(crate) fn kill(mut self) -> Result<()> {
        self.demand_running()
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.demand_running()?;
        proc::signal(self.child.0.id(), "TERM")?;
        let status = run::wait(&mut self.child.0, GOODBYE_LIMIT)
            .with_context(|| format!("the {} was asked to end; {}", self.role, self.log_tail()))?;
        ensure!(status.success(), "the {} ended with {status}; {}", self.role, self.log_tail());
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(10)..];
        format!("its last lines:\n{}", last.join("\n"))
    }
}
