//! The machine itself: kernel, processors, clock, shared memory, programs.
use super::Check;
use super::facts::Facts;
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Access, Provider as _, VerbsError};
use rustix::process::{Resource, getrlimit};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

/// The first kernel that merges UDP packets on receive; sending trains came in 4.18.
const GRO_KERNEL: (u32, u32) = (5, 0);
/// Descriptors that a collector of some hundred sources needs.
const FILES_WANTED: u64 = 4096;
/// No clock is right that says an earlier time: seconds of the year 2025.
const BEGINNING_S: u64 = 1_735_689_600;
/// Programs that keep a clock right.
const CLOCK_KEEPERS: [&str; 7] =
    ["chronyd", "ntpd", "ntpsec", "openntpd", "systemd-timesyn", "ptp4l", "phc2sys"];

pub(super) fn kernel(facts: &Facts) -> Check {
    let name = "kernel";
    let release = facts.proc("sys/kernel/osrelease");
    let release = release.unwrap_or_else(|| "unknown (no /proc)".to_owned());
    let seen = format!("Linux {release}, {}", std::env::consts::ARCH);
    match version(&release) {
        Some(version) if version < GRO_KERNEL => Check::note(
            name,
            format!("{seen}: no UDP GRO, so roce receives packets one by one"),
            "use Linux 5.0 or later where more than a few hundred MB/s are needed",
        ),
        Some(_) | None => Check::ok(name, seen),
    }
}

/// `6.1.0-18-amd64` is (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn cores(facts: &Facts) -> Check {
    let name = "cores";
    let usable = available_parallelism().map_or(1, usize::from);
    let cpuinfo = facts.proc("cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name"));
    let model = model.map_or(String::new(), |model| {
        let model = model.trim_start_matches(|c: char| c == ':' || c.is_whitespace());
        format!(" of {model}")
    });
    let seen = format!("{usable} usable{model}");
    if usable > 1 {
        return Check::ok(name, seen);
    }
    Check::note(
        name,
        seen,
        "sender, receiver and application take turns on one core: give the process two or more",
    )
}

pub(super) fn governor(facts: &Facts) -> Option<Check> {
    let name = "governor";
    let governor = facts.sys("devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    if governor != "powersave" {
        return Some(Check::ok(name, governor));
    }
    let driver = facts.sys("devices/system/cpu/cpu0/cpufreq/scaling_driver");
    if driver.is_some_and(|driver| driver.ends_with("_pstate")) {
        // Such a driver speeds up by itself under load.
        return Some(Check::ok(name, governor));
    }
    Some(Check::note(
        name,
        "powersave: the processor stays slow",
        "cpupower frequency-set -g performance (or schedutil)",
    ))
}

pub(super) fn files() -> Check {
    let name = "descriptors";
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < FILES_WANTED => Check::note(
            name,
            format!("this process may open {limit} files"),
            "a collector of hundreds of sources needs more: ulimit -n 65536, or LimitNOFILE=65536 in \
             its systemd unit",
        ),
        Some(limit) => Check::ok(name, format!("this process may open {limit} files")),
        None => Check::ok(name, "no limit"),
    }
}

pub(super) fn clock(facts: &Facts) -> Check {
    let name = "time";
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    if seconds < BEGINNING_S {
        return Check::problem(
            name,
            format!("the clock says {seconds} s after 1970: it was never set"),
            "set it (date -s, or an NTP client): certificates are not yet valid then, and latencies \
             between hosts make no sense",
        );
    }
    let source = facts.sys("devices/system/clocksource/clocksource0/current_clocksource");
    let source = source.map_or(String::new(), |source| format!(", clock source {source}"));
    let running = facts.processes();
    let keeper = CLOCK_KEEPERS.iter().find(|keeper| running.iter().any(|name| name == *keeper));
    match keeper {
        Some(keeper) => Check::ok(name, format!("kept right by {keeper}{source}")),
        None => Check::note(
            name,
            format!("nothing is seen that keeps the clock right{source}"),
            "latencies between hosts include the difference of their clocks: run chrony on both, or \
             PTP for less than a millisecond (in a container the host does it)",
        ),
    }
}

/// Makes what shm needs: sealed memory without a name, and the sockets that pass it on.
pub(super) fn shm() -> Check {
    let tried = || -> Result<(), VerbsError> {
        let context = ShmProvider::new().open(catchment_provider_shm::DEVICE)?;
        context.alloc_pd()?.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).map(drop)
    };
    match tried() {
        Ok(()) => Check::ok(
            catchment_provider_shm::INFO.name,
            "sealed memory (memfd) and its sockets work; /dev/shm is not needed",
        ),
        Err(error) => Check::problem(
            catchment_provider_shm::INFO.name,
            error.to_string(),
            "a seccomp profile may forbid memfd_create(2) or unix sockets: use the default profile of \
             podman or Docker, or another provider",
        ),
    }
}

/// Video files and cameras come through ffmpeg.
pub(super) fn ffmpeg() -> Check {
    let options = catchment::input::InputOptions::default();
    let mut missing = Vec::new();
    let mut version = String::new();
    for program in [&options.ffmpeg, &options.ffprobe] {
        let mut command = Command::new(program);
        command.arg("-version").stdin(Stdio::null());
        match command.stderr(Stdio::null()).output() {
            Ok(output) if output.status.success() => {
                if version.is_empty() {
                    let text = String::from_utf8_lossy(&output.stdout);
                    let words: Vec<&str> = text.split_whitespace().take(3).collect();
                    version = words.join(" ");
                }
            }
            Ok(output) => {
                missing.push(format!("{} ended with {}", program.display(), output.status))
            }
            Err(error) => missing.push(format!("{}: {error}", program.display())),
        }
    }
    if missing.is_empty() {
        return Check::ok("ffmpeg", version);
    }
    Check::note(
        "ffmpeg",
        missing.join("; "),
        "video files, cameras and RTSP need it (apt install ffmpeg, dnf install ffmpeg-free); raw \
         and Y4M input do not",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Level;
    use crate::checks::facts::Machine;

    #[test]
    fn versions_of_kernels_are_numbers() {
        for (release, numbers) in [
            ("6.1.0-18-amd64", Some((6, 1))),
            ("4.19.0", Some((4, 19))),
            ("5.15.0-rc1+", Some((5, 15))),
            ("unknown", None),
        ] {
            assert_eq!(version(release), numbers, "{release}");
        }
    }

    #[test]
    fn an_old_kernel_and_a_slow_governor_are_noted() {
        let machine = Machine::with(&[]);
        assert_eq!(kernel(&machine.facts).level, Level::Ok, "unknown is no blame");
        assert_eq!(governor(&machine.facts), None);
        machine.put("proc/sys/kernel/osrelease", "4.19.0\n");
        let seen = kernel(&machine.facts);
        assert_eq!(seen.level, Level::Note);
        assert!(seen.seen.contains("4.19.0") && seen.seen.contains("GRO"));
        let folder = "sys/devices/system/cpu/cpu0/cpufreq";
        machine.put(&format!("{folder}/scaling_governor"), "powersave\n");
        assert_eq!(governor(&machine.facts).unwrap().level, Level::Note);
        machine.put(&format!("{folder}/scaling_driver"), "intel_pstate\n");
        assert_eq!(governor(&machine.facts).unwrap().level, Level::Ok);
    }

    #[test]
    fn who_keeps_the_clock_right_is_named() {
        let machine = Machine::with(&[]);
        machine.put("proc/1/comm", "init\n");
        assert_eq!(clock(&machine.facts).level, Level::Note);
        machine.put("proc/77/comm", "chronyd\n");
        let seen = clock(&machine.facts);
        assert_eq!(seen.level, Level::Ok);
        assert!(seen.seen.contains("chronyd"), "{seen:?}");
    }
}
