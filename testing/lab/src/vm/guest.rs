//! A running guest.
use super::kernel::Kernel;
use super::network::{CONTROL_MTU, MTU, Seat};
use super::{initramfs, shell};
use crate::remote::process::{Finished, Output, Process};
use crate::remote::{self, Start};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Emulated, a boot takes 10 to 20 s on a quiet machine.
const BOOT_LIMIT: Duration = Duration::from_secs(150);

const POLL: Duration = Duration::from_millis(100);

/// Time in which a working guest accepts a connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

const LINES_SHOWN: usize = 20;

/// Beginnings of complaints of the kernel, and of our init process: `LAB:`.
const COMPLAINTS: &[&str] = &["LAB:", "BUG:", "Oops:", "Kernel panic"];

/// Two processors, so that both ends of a queue pair in the guest can run at once. `erms` and `fsrm`
/// are off because emulated `rep movsb`, with which kernel and libc would copy, moves one byte a
/// step; `pclmulqdq` is off because its emulation takes twice as long as the tables that `crc32fast`
/// uses otherwise.
const QEMU: &str = "-accel tcg,thread=multi -cpu max,erms=off,fsrm=off,pclmulqdq=off -smp 2 \
-display none -monitor none -serial stdio -no-reboot -virtfs \
local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap";

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) seat: Seat,
    /// Memory in MiB, which also holds the files that the guest writes.
    pub(crate) memory_mib: u32,
    pub(crate) cache: PathBuf,
    /// The folder of the host that the guest mounts as `/run/results`, writable; it must exist.
    pub(crate) results: PathBuf,
}

impl Machine {
    pub(crate) fn usual(cache: &Path, seat: Seat) -> Result<Self> {
        let results = cache.join("results");
        fs::create_dir_all(&results).with_context(|| results.display().to_string())?;
        Ok(Self { seat, memory_mib: 1024, cache: cache.to_owned(), results })
    }

    fn file(&self, name: &str) -> PathBuf {
        match self.seat.number {
            0 => self.cache.join(name),
            number => self.cache.join(format!("{name}.{number}")),
        }
    }
}

/// A running virtual machine; dropping it ends it.
pub(crate) struct Guest {
    qemu: Child,
    /// The pidfd of qemu: readable once that has ended.
    descriptor: Arc<OwnedFd>,
    seat: Seat,
    log: PathBuf,
    pub(crate) boot: Duration,
}

impl Guest {
    /// Boots a guest and waits until its server accepts connections. The network must be set up; the
    /// guest ends with the calling thread.
    pub(crate) fn boot(kernel: &Kernel, machine: &Machine) -> Result<Self> {
        let initramfs = machine.file("initramfs");
        initramfs::write(kernel, &initramfs)
            .with_context(|| format!("cannot write {}", initramfs.display()))?;
        let log = machine.file("guest.log");
        let start = Instant::now();
        let qemu = spawn(&kernel.image, &initramfs, &log, machine)?;
        let descriptor = pidfd_open(Pid::from_child(&qemu), PidfdFlags::empty())
            .context("cannot open a pidfd of qemu")?;
        let mut guest = Self {
            qemu,
            descriptor: Arc::new(descriptor),
            seat: machine.seat,
            log,
            boot: Duration::ZERO,
        };
        let server = guest.server();
        guest.wait_for(start + BOOT_LIMIT, || listens(server))?;
        guest.boot = start.elapsed();
        Ok(guest)
    }

    pub(crate) fn start(&self, start: &Start, output: Output) -> Result<Process> {
        Process::start(self.server(), Arc::clone(&self.descriptor), start, output)
    }

    pub(crate) fn run(&self, words: &[&str], limit: Duration) -> Result<Finished> {
        let start = Start::like_here(words.iter().copied());
        let finished = self.start(&start, Output::Kept)?.wait(limit)?;
        finished.success().with_context(|| format!("`{}` in the guest", words.join(" ")))
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut source = [PollFd::new(&*self.descriptor, PollFlags::IN)];
        poll(&mut source, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn server(&self) -> SocketAddr {
        (self.seat.control, remote::PORT).into()
    }

    fn wait_for(&mut self, end: Instant, mut is_up: impl FnMut() -> bool) -> Result<()> {
        while !is_up() {
            if let Some(status) = self.qemu.try_wait()? {
                bail!("the guest ended ({status}):\n{}", self.console());
            }
            ensure!(Instant::now() <= end, "the guest did not come up:\n{}", self.console());
            // The host gets no event when a port of the guest begins to listen.
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Returns an excerpt of the guest's console: from the first complaint on, or the last lines.
    pub(crate) fn console(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        excerpt(&String::from_utf8_lossy(&bytes))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn excerpt(console: &str) -> String {
    let lines: Vec<_> = console.lines().collect();
    let complains = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
    let last = lines.len().saturating_sub(LINES_SHOWN);
    // A panic often follows a complaint with more detail.
    let start = lines.iter().position(complains).unwrap_or(last);
    let end = lines.len().min(start + LINES_SHOWN);
    lines[start..end].join("\n")
}

fn listens(server: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&server, ANSWER_LIMIT).is_ok()
}

fn spawn(image: &Path, initramfs: &Path, log: &Path, machine: &Machine) -> Result<Child> {
    let console = File::create(log).with_context(|| log.display().to_string())?;
    let errors = console.try_clone()?;
    let results = machine.results.canonicalize()?;
    let mut command = Command::new("nice");
    command
        // Emulation uses all the time it gets; the other side of a case needs its share.
        .args(["-n", "5", "setpriv", "--pdeathsig", "KILL"])
        .arg("qemu-system-x86_64")
        .args(QEMU.split(' '))
        .args(["-m", &machine.memory_mib.to_string()])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", &kernel_words(&machine.seat)?])
        .arg("-virtfs")
        .arg(format!("local,path={},mount_tag=results,security_model=none", results.display()))
        // The guest calls them eth0 and eth1, in this order.
        .args(network_device(&machine.seat, 0, MTU))
        .args(network_device(&machine.seat, 1, CONTROL_MTU))
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors);
    command.spawn().context("cannot start qemu")
}

/// Returns the kernel command line, which the init process reads too. The guest ends when its kernel
/// finds an error of its own, so that the case fails instead of waiting. The check of the timer is off:
/// on a busy host its interrupts arrive too late. The TSC is the host's and therefore reliable; reading
/// the other clock, the HPET, leaves emulation and takes longer than a system call.
fn kernel_words(seat: &Seat) -> Result<String> {
    let [ipv4, ipv6] = seat.addresses.with_prefixes();
    let program = shell::this_program()?;
    let program = program.display();
    Ok(format!(
        "console=ttyS0 quiet no_timer_check tsc=reliable panic=-1 oops=panic mitigations=off \
         lab.mtu={MTU} lab.ipv4={ipv4} lab.ipv6={ipv6} lab.control={}/24 \
         lab.program={program}",
        seat.control
    ))
}

fn network_device(seat: &Seat, at: u8, mtu: usize) -> [String; 4] {
    let tap = [seat.tap, seat.control_tap][usize::from(at)];
    // One for each device: by default, qemu gives all guests the same.
    let mac = format!("52:54:00:77:{:02x}:{at:02x}", seat.number);
    [
        "-netdev".to_owned(),
        format!("tap,id=net{at},ifname={tap},script=no,downscript=no,vhost=off"),
        "-device".to_owned(),
        format!("virtio-net-pci,netdev=net{at},mac={mac},host_mtu={mtu},romfile="),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excerpt_of_a_console_has_the_complaint_or_else_the_end() {
        let mut console: String = (0..50).map(|line| format!("line {line}\n")).collect();
        assert!(excerpt(&console).starts_with("line 30\n"));
        assert!(excerpt(&console).ends_with("line 49"));
        console.insert_str(0, "up\nBUG: kernel NULL pointer\n");
        assert!(excerpt(&console).starts_with("BUG: kernel NULL pointer\nline 0\n"));
    }
}
