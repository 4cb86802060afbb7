//! A running guest.

use super::initramfs;
use super::kernel::Kernel;
use super::network::{GUEST, MTU, TAP};
use crate::agent::Agent;
use anyhow::{Context as _, Result, bail};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Port of the agent, as in `guest/agent.py`.
const AGENT_PORT: u16 = 5555;

/// Emulated, a boot takes 10 to 20 s on a quiet machine.
const BOOT_LIMIT: Duration = Duration::from_secs(150);

/// How often a booting guest is asked whether its agent listens.
const POLL: Duration = Duration::from_millis(200);

/// Lines of the guest's console that an error shows.
const LINES_SHOWN: usize = 20;

/// Two processors, so that both ends of a queue pair in the guest can work at once.
const QEMU: &[&str] = &[
    "-accel",
    "tcg,thread=multi",
    "-cpu",
    "max",
    "-smp",
    "2",
    "-m",
    "1024",
    "-display",
    "none",
    "-monitor",
    "none",
    "-serial",
    "stdio",
    "-no-reboot",
    "-virtfs",
    "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap",
];

/// A virtual machine that runs; dropping it ends it.
pub struct Guest {
    qemu: Child,
    log: PathBuf,
    /// How long the boot took, until the agent listened.
    pub boot: Duration,
}

impl Guest {
    /// Boots a guest and waits until its agent listens. The network must be set up; the calling
    /// thread must live as long as the guest, which ends with it.
    ///
    /// # Errors
    /// When the guest does not come up; the message holds the end of what its console shows.
    pub fn boot(kernel: &Kernel, cache: &Path) -> Result<Self> {
        let initramfs = cache.join("initramfs");
        fs::write(&initramfs, initramfs::build(kernel)?)
            .with_context(|| format!("cannot write {}", initramfs.display()))?;
        let log = cache.join("guest.log");
        let start = Instant::now();
        let qemu = spawn(&kernel.image, &initramfs, &log)?;
        let mut guest = Self {
            qemu,
            log,
            boot: Duration::ZERO,
        };
        guest.wait_for_agent(start)?;
        guest.boot = start.elapsed();
        Ok(guest)
    }

    /// A connection to the guest's agent. It serves one at a time.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn agent(&self) -> Result<Agent> {
        Agent::connect(agent_address()).context("the guest's agent does not answer")
    }

    fn wait_for_agent(&mut self, start: Instant) -> Result<()> {
        while Agent::connect(agent_address()).is_err() {
            if let Some(status) = self.qemu.try_wait()? {
                bail!("the guest ended ({status}):\n{}", self.console());
            }
            if start.elapsed() > BOOT_LIMIT {
                let seconds = BOOT_LIMIT.as_secs();
                bail!(
                    "the guest did not come up in {seconds} s:\n{}",
                    self.console()
                );
            }
            // Nothing tells the host that a port of the guest has begun to listen.
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// The last lines of the guest's console.
    #[must_use]
    pub fn console(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn agent_address() -> SocketAddr {
    (GUEST.ipv4, AGENT_PORT).into()
}

fn spawn(image: &Path, initramfs: &Path, log: &Path) -> Result<Child> {
    let console = File::create(log).with_context(|| log.display().to_string())?;
    let errors = console.try_clone()?;
    let [ipv4, ipv6] = GUEST.with_prefixes();
    let words = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off \
         lab.mtu={MTU} lab.ipv4={ipv4} lab.ipv6={ipv6}"
    );
    let mut command = Command::new("nice");
    command
        // Emulation takes all it gets; the other side of a case must get its share.
        .args(["-n", "5", "setpriv", "--pdeathsig", "KILL"])
        .arg("qemu-system-x86_64")
        .args(QEMU)
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", &words, "-netdev"])
        .arg(format!(
            "tap,id=net0,ifname={TAP},script=no,downscript=no,vhost=off"
        ))
        .arg("-device")
        .arg(format!(
            "virtio-net-pci,netdev=net0,host_mtu={MTU},romfile="
        ))
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors);
    command.spawn().context("cannot start qemu")
}
