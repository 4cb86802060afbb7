//! The operating system and the processor: clocks, CPU time, cores, priorities, one plain copy.
//!
//! The only module of the crate with `unsafe`.
use anyhow::{Context, Result, ensure};
use catchment_verbs::mem::VolatileSlice;
use std::io;
use std::process::Child;
use std::time::Duration;

/// Binds the calling thread, and those it starts later, to one core: none may have been started before. Ends the process when
/// its parent ends, so that no spinning role is left behind.
pub(crate) fn settle(core: usize) -> Result<()> {
    let threads = std::fs::read_dir("/proc/self/task").context("/proc/self/task")?.count();
    ensure!(threads == 1, "{threads} threads already, of which core {core} would bind one");
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("prctl(PR_SET_PDEATHSIG)")?;
    pin(core)
}

/// Binds the calling thread, and those and the processes that it starts later, to one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores)
        .with_context(|| format!("sched_setaffinity to core {core}: is it in this machine?"))
}

/// Returns the cores that this process may have.
pub(crate) fn cores() -> io::Result<Vec<usize>> {
    let all = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect())
}

/// Nanoseconds of the clock that all processes of the host share.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(rustix::time::ClockId::Monotonic)
}

fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let t = rustix::time::clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Returns the CPU time of all threads of this process, user and system.
pub(crate) fn process_cpu_ns() -> u64 {
    catchment_perf::process_cpu_time().as_nanos() as u64
}

/// Returns the CPU time of all threads of another process, those that have ended too, so that it never falls.
pub(crate) fn cpu_ns_of(process: u32) -> Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are valid during the calls.
    let error = unsafe {
        let mut clock = 0;
        match libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) {
            0 if libc::clock_gettime(clock, &raw mut time) != 0 => {
                io::Error::last_os_error().raw_os_error()
            }
            0 => None,
            error => Some(error),
        }
    };
    match error {
        Some(error) => Err(io::Error::from_raw_os_error(error))
            .with_context(|| format!("the CPU time of process {process}")),
        None => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
    }
}

/// A thread of a process, and the processor time that it has used so far.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) cpu_ns: u64,
}

/// Returns the threads of a process, those left out that end meanwhile.
pub(crate) fn threads(process: u32) -> Result<Vec<Thread>> {
    let mut threads = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        let read = |file: &str| std::fs::read_to_string(task.path().join(file));
        let (Ok(name), Ok(times)) = (read("comm"), read("schedstat")) else { continue };
        let ns = times.split_whitespace().next().and_then(|ns| ns.parse().ok());
        threads.push(Thread {
            number: task.file_name().to_string_lossy().parse()?,
            name: name.trim().to_owned(),
            cpu_ns: ns.context("the kernel has no schedstat")?,
        });
    }
    Ok(threads)
}

/// Most memory that this process had in use, in bytes, shared pages included. Not by getrusage(2):
/// that also counts what the process was before it became this program.
pub(crate) fn rss_bytes_peak() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = value.and_then(|value| value.split_whitespace().next());
    let kib: u64 =
        kib.and_then(|kib| kib.parse().ok()).context("/proc/self/status has no VmHWM")?;
    Ok(kib * 1024)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) cpu_ns: u64,
    /// Most memory, or what this process had when it started the program, if that was more.
    pub(crate) rss_bytes_peak: u64,
}

fn rusage_ns(usage: &libc::rusage) -> u64 {
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Waits for a child process and says what it used.
pub(crate) fn wait_with_usage(child: &Child) -> Result<Used> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage; both pointers are valid during the call. The child has
    // not been waited for: `Child::wait` was not called.
    let (pid, usage) = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        let pid = libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage);
        (pid, usage)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error()).context("wait4");
    }
    ensure!(status == 0, "process {pid} ended with wait status {status:#x}");
    Ok(Used { cpu_ns: rusage_ns(&usage), rss_bytes_peak: usage.ru_maxrss as u64 * 1024 })
}

/// Sets or ends real-time priority (SCHED_FIFO, lowest level) of the calling thread.
pub(crate) fn set_realtime(on: bool) -> io::Result<()> {
    set_realtime_of(0, on)
}

/// The same of another thread of this process. A thread on the same core cannot do it by itself once
/// the caller has real-time priority: it does not run any more.
pub(crate) fn set_realtime_of(thread: i32, on: bool) -> io::Result<()> {
    let policy = if on { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    let param = libc::sched_param { sched_priority: i32::from(on) };
    // SAFETY: the pointer is valid during the call; 0 means the calling thread.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A counter of the processor that all cores agree on, and its rate.
///
/// Reading it takes about 10 ns; clock_gettime(2) takes 60 on some machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    ns_per_tick: f64,
}

impl Ticks {
    /// Compares the counter with the system clock for a moment.
    pub(crate) fn calibrate() -> Self {
        let (t0, n0) = (Self::now(), monotonic_ns());
        // The time over which two clocks are compared.
        std::thread::sleep(Duration::from_millis(5));
        let (t1, n1) = (Self::now(), monotonic_ns());
        Self { ns_per_tick: (n1 - n0) as f64 / (t1 - t0) as f64 }
    }

    #[inline]
    pub(crate) fn now() -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction has no preconditions.
        return unsafe { std::arch::x86_64::_rdtsc() };
        #[cfg(not(target_arch = "x86_64"))]
        return monotonic_ns();
    }

    /// Nanoseconds between two readings.
    pub(crate) fn ns(self, from: u64, to: u64) -> f64 {
        to.saturating_sub(from) as f64 * self.ns_per_tick
    }
}

/// memcpy(3) of one block onto another: what every mechanism is compared with.
#[inline]
pub(crate) fn plain_memcpy(to: VolatileSlice<'_>, from: VolatileSlice<'_>) {
    assert_eq!(to.bytes(), from.bytes());
    // SAFETY: both are mapped for their length while borrowed, and lie in different mappings.
    unsafe { libc::memcpy(to.addr() as *mut _, from.addr() as *const _, to.bytes()) };
}

/// Time that all processors spent in softirqs since boot, which is charged to whoever runs: packets of
/// a network between namespaces are worked on there.
pub(crate) fn softirq_ns() -> u64 {
    // Linux counts hundredths of a second for programs, whatever its own tick is.
    const JIFFY_NS: u64 = 10_000_000;
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let field = stat.lines().next().and_then(|line| line.split_whitespace().nth(7));
    field.and_then(|jiffies| jiffies.parse::<u64>().ok()).unwrap_or(0) * JIFFY_NS
}

/// Returns how many datagrams were dropped since the network namespace of this thread began because the socket that they
/// were for was full.
pub(crate) fn udp_socket_drops() -> std::io::Result<u64> {
    let v4 = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    let v6 = std::fs::read_to_string("/proc/thread-self/net/snmp6")?;
    Ok(full_sockets_v4(&v4).unwrap_or(0) + full_sockets_v6(&v6).unwrap_or(0))
}

fn full_sockets_v4(snmp: &str) -> Option<u64> {
    snmp_count(snmp, "Udp:", "RcvbufErrors")
}

/// The counts of a protocol are two lines: their names, then the numbers.
fn snmp_count(snmp: &str, protocol: &str, wanted: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with(protocol));
    let (names, numbers) = (lines.next()?.split(' '), lines.next()?.split(' '));
    let (_, number) = names.zip(numbers).find(|(name, _)| *name == wanted)?;
    number.parse().ok()
}

/// What a network namespace sent and received of a protocol since it began, of IPv4 and IPv6.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// What was sent again too.
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Traffic {
    /// Returns what came since an earlier look.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self { sent: self.sent - before.sent, received: self.received - before.received }
    }

    /// Returns how much was sent that nobody received.
    pub(crate) const fn missing(self) -> i64 {
        self.sent.cast_signed() - self.received.cast_signed()
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, one: Self) {
        self.sent += one.sent;
        self.received += one.received;
    }
}

/// Returns the UDP datagrams and the TCP segments of the network namespace of this thread. A datagram that found its socket
/// full is not received.
pub(crate) fn datagrams_and_segments() -> std::io::Result<(Traffic, Traffic)> {
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    let snmp6 = std::fs::read_to_string("/proc/thread-self/net/snmp6")?;
    Ok((datagrams(&snmp, &snmp6), segments(&snmp)))
}

fn datagrams(snmp: &str, snmp6: &str) -> Traffic {
    let count = |wanted: &str| {
        let v6 = snmp6_count(snmp6, &format!("Udp6{wanted}"));
        snmp_count(snmp, "Udp:", wanted).unwrap_or(0) + v6.unwrap_or(0)
    };
    Traffic { sent: count("OutDatagrams"), received: count("InDatagrams") }
}

fn segments(snmp: &str) -> Traffic {
    let count = |wanted| snmp_count(snmp, "Tcp:", wanted).unwrap_or(0);
    // What is sent again is counted apart.
    Traffic { sent: count("OutSegs") + count("RetransSegs"), received: count("InSegs") }
}

fn full_sockets_v6(snmp6: &str) -> Option<u64> {
    snmp6_count(snmp6, "Udp6RcvbufErrors")
}

fn snmp6_count(snmp6: &str, wanted: &str) -> Option<u64> {
    let words = snmp6.lines().map(str::split_whitespace);
    let mut found = words.filter_map(|mut words| Some((words.next()?, words.next()?)));
    found.find(|(name, _)| *name == wanted)?.1.parse().ok()
}

/// Jiffies that the hypervisor gave to others, and all jiffies, since boot.
pub(crate) fn stolen_and_all_jiffies() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let values: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|v| v.parse().ok()).collect();
    Some((*values.get(7)?, values.iter().take(8).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H3: a core is chosen before a thread is there that could run elsewhere.
    #[test]
    fn h3_a_process_with_threads_chooses_no_core() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv());
        let refused = settle(0).unwrap_err().to_string();
        drop(end);
        assert!(refused.contains("threads already"), "{refused}");
        assert!(other.join().unwrap().is_err());
    }

    #[test]
    fn what_found_a_full_socket_is_read_by_its_name() {
        let snmp = "Tcp: A\nTcp: 1\nUdp: InDatagrams RcvbufErrors\nUdp: 7 5\nUdpLite: RcvbufErrors\nUdpLite: 9\n";
        assert_eq!(full_sockets_v4(snmp), Some(5));
        assert_eq!(full_sockets_v4("Udp: RcvbufErrors\n"), None);
        assert_eq!(full_sockets_v6("Udp6NoPorts \t9\nUdp6RcvbufErrors \t3\n"), Some(3));
        assert!(udp_socket_drops().is_ok());
        assert!(datagrams_and_segments().is_ok());
    }

    /// What was sent and did not come is told for each protocol, of both families.
    #[test]
    fn what_was_sent_and_received_is_told_by_protocol() {
        let snmp = "Tcp: InSegs OutSegs RetransSegs\nTcp: 5 7 2\nUdp: InDatagrams OutDatagrams\nUdp: 30 50\n";
        let (udp, tcp) =
            (datagrams(snmp, "Udp6InDatagrams 4\nUdp6OutDatagrams 3\n"), segments(snmp));
        assert_eq!((udp.missing(), tcp.missing()), (19, 4));
        assert_eq!(udp.since(Traffic { sent: 50, received: 10 }).missing(), -21);
    }
}
