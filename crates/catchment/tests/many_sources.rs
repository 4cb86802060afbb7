//! A thousand sources of one collector, from a few processes: each takes descriptors and threads.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use catchment::Frame;
use catchment::collector::Collector;
use catchment::observe::cpu::cpu_time_of_self;
use catchment::roce::RoceOptions;
use catchment::session::path::PathRules;
use catchment::source::{DeviceSpec, Source};
use catchment_netns::wait_until;
use catchment_probe::child::{Child, role, say};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

const SOURCES: usize = 1000;
const PROCESSES: usize = 4;
/// Sources of one process that connect at once: cameras that get power together.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(120);
/// A thousand at a time: two thousand connect too, but on a slow machine not within a patience.
static ALONE: Mutex<()> = Mutex::new(());
/// How long idle sources are watched.
const IDLE: Duration = Duration::from_secs(10);
/// How often the threads of an idle source may wake in a second, all together: looks at devices and
/// link, and reports.
const WAKES_MAX: f64 = 20.0;
/// Threads that a collector may have more than before its sources: the devices' own, and those of
/// this test that listen to the processes.
const THREADS_MORE: usize = 8 + PROCESSES;
/// Descriptors of everything that sessions share.
const DESCRIPTORS_MORE: usize = 64;
/// Descriptors that a session may take.
const SESSION_DESCRIPTORS: usize = 4;
/// Memory of the collector's own that a session may take, beside its ring.
const SESSION_KIB: u64 = 64;

fn open_files_to_the_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// The threads or descriptors of this process.
fn count(what: &str) -> usize {
    fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}

/// The memory of its own that this process has touched, in KiB: rings are shared memory, and the
/// buffers of sockets are the kernel's.
fn own_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse().unwrap()
}

/// The processor time of this process.
fn cpu_time() -> Duration {
    cpu_time_of_self(Duration::ZERO)
}

fn source(provider: &str, number: usize, collector: &str) -> Source {
    let rules = PathRules { require: vec![provider.to_owned()], ..PathRules::default() };
    // Each has a port of its own, as if each were on a host of its own.
    let roce = RoceOptions { port: 0, ..RoceOptions::default() };
    Source::builder(collector)
        .device(DeviceSpec::new(format!("cam{number:03}")).frame_bytes(200))
        .blocks(4)
        .block_bytes(512)
        .path_rules(rules)
        .provider(roce)
        .patience(PATIENCE)
        .connect()
        .unwrap()
}

/// A process of sources, in a role `PROVIDER NUMBER COLLECTOR`: connects, says so, tells its processor time for each line `cpu`, and at the
/// next line sends a frame of each device.
#[test]
fn sources_of_a_process() {
    let Some(role) = role() else { return };
    open_files_to_the_limit();
    let words: Vec<&str> = role.split(' ').collect();
    let (provider, collector) = (words[0], words[2]);
    let first: usize = words[1].parse().unwrap();
    let (sender, sources) = mpsc::channel();
    std::thread::scope(|scope| {
        for start in 0..AT_ONCE {
            let sender = sender.clone();
            scope.spawn(move || {
                for number in (first + start * PROCESSES..SOURCES).step_by(AT_ONCE * PROCESSES) {
                    let one = source(provider, number, collector);
                    sender.send((number, one)).unwrap();
                }
            });
        }
    });
    drop(sender);
    let sources: Vec<_> = sources.into_iter().collect();
    say("connected");
    for _ in std::io::stdin().lines().take_while(|line| line.as_ref().unwrap() == "cpu") {
        say(&cpu_time().as_micros().to_string());
    }
    for (number, source) in &sources {
        let mut device = source.device(&format!("cam{number:03}")).unwrap();
        device.frame(200).unwrap().send_bytes(&[7; 200]).unwrap();
    }
    for (_, source) in sources {
        assert_eq!(source.close(PATIENCE).unwrap().totals.frames_sent, 1);
    }
}

/// How often each thread of a process has slept so far. A thread may end meanwhile.
fn sleeps(process: u32) -> impl Iterator<Item = (OsString, u64)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.map_while(Result::ok).filter_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some((thread.file_name(), slept?.trim().parse().unwrap()))
    })
}

/// What processes have used so far.
struct Usage {
    cpu: Duration,
    sleeps: HashMap<OsString, u64>,
}

impl Usage {
    fn of_sources(processes: &mut [Child]) -> Self {
        let mut cpu = Duration::ZERO;
        for child in processes.iter_mut() {
            cpu += Duration::from_micros(child.ask("cpu").parse().unwrap());
        }
        let sleeps = processes.iter().flat_map(|child| sleeps(child.id())).collect();
        Self { cpu, sleeps }
    }

    fn of_collector() -> Self {
        Self { cpu: cpu_time(), sleeps: sleeps(std::process::id()).collect() }
    }

    /// Prints what was used since, and returns how often threads woke in a second.
    fn print_since(&self, before: &Self, what: &str) -> f64 {
        let cpu = (self.cpu - before.cpu).as_secs_f64() / IDLE.as_secs_f64();
        let woke = |(thread, sleeps): (_, &u64)| sleeps.checked_sub(*before.sleeps.get(thread)?);
        let wakes: u64 = self.sleeps.iter().filter_map(woke).sum();
        let wakes = wakes as f64 / IDLE.as_secs_f64();
        println!("{what}: {:.2} % of a processor, {wakes:.0} wake-ups a second", cpu * 100.0);
        wakes
    }
}

fn a_thousand_sources_over(provider: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let all = seen.clone();
    let collector = Collector::builder("127.0.0.1:0")
        .on_frame(move |frame: Frame| {
            all.lock().unwrap().insert(frame.device().to_owned());
        })
        .start()
        .unwrap();
    let at = collector.local_addr().to_string();
    let descriptors = count("fd");
    let threads = count("task");
    let memory = own_kib();
    let begin = Instant::now();
    let start = |first| Child::start("sources_of_a_process", &format!("{provider} {first} {at}"));
    let mut processes: Vec<_> = (0..PROCESSES).map(start).collect();
    processes.iter_mut().for_each(|child| drop(child.says("connected")));
    println!("{SOURCES} sources over {provider} connected in {:?}", begin.elapsed());
    // Threads for what blocks while sources connect end by themselves.
    wait_until("threads have ended", || count("task") <= threads + THREADS_MORE);
    let descriptors = count("fd") - descriptors;
    println!("{SOURCES} sessions over {provider} take {descriptors} descriptors");
    assert!(descriptors <= SOURCES * SESSION_DESCRIPTORS + DESCRIPTORS_MORE, "{descriptors}");
    let kib = own_kib().saturating_sub(memory) / SOURCES as u64;
    println!("a session over {provider} takes {kib} KiB of the collector's own memory");
    assert!(kib <= SESSION_KIB, "{kib} KiB");
    let before = (Usage::of_sources(&mut processes), Usage::of_collector());
    // Nothing is sent: what wakes now does so for nothing.
    std::thread::sleep(IDLE);
    // This process is the collector: asking for the sources' threads costs it time.
    let collector = Usage::of_collector();
    let sources = Usage::of_sources(&mut processes);
    collector.print_since(&before.1, &format!("an idle collector over {provider}"));
    let wakes = sources.print_since(&before.0, &format!("{SOURCES} idle sources over {provider}"));
    let wakes = wakes / SOURCES as f64;
    assert!(wakes <= WAKES_MAX, "{wakes} times a second");
    processes.iter_mut().for_each(|child| child.tell("go"));
    processes.iter_mut().for_each(Child::end);
    assert_eq!(seen.lock().unwrap().len(), SOURCES);
}

#[test]
fn a_thousand_sources_connect_over_shm() {
    a_thousand_sources_over("shm");
}

#[test]
fn a_thousand_sources_connect_over_roce() {
    a_thousand_sources_over("roce");
}
