//! Processes use one store over shm and roce, one-sided and by messages, and are killed or stand still; so does the
//! server. What they saw is linearizable.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use catchment_kv::{Client, ClientConfig, KvError, Replaced, Server, ServerConfig, Sided, Value};
use catchment_linear::{Absence, Deleted, Event, Replaced as Ended, Seen, What, search, versions};
use catchment_probe::child::{Child, hear, role, say};
use catchment_probe::load::{did, scaled};
use catchment_probe::random::Random;
use catchment_providers::ProviderSet;
use catchment_session::io::ServerSecurity;
use catchment_session::path::PathRules;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 12;
const SLOTS: u64 = 4;
/// Operations without an end to them.
const ENDLESS: u64 = u64::MAX >> 8;
/// A lease that no test outlasts.
const LONG: Duration = Duration::from_secs(60);
/// Operations that each client makes before and after what disturbs it. Beside busy programs one over RoCE can take a
/// second: every hop waits for a processor.
const PROGRESS: u64 = 30;
/// Clients that make no progress for so long hang.
const HANG: Duration = Duration::from_secs(300);

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn second_process() {
    match role().as_deref().map(|role| role.split(' ').collect::<Vec<_>>()).as_deref() {
        None => {}
        Some(["server", lease_ms, mib]) => {
            server(Duration::from_millis(lease_ms.parse().unwrap()), mib.parse().unwrap());
        }
        Some(["client", address, number, operations]) => {
            client(address, number.parse().unwrap(), operations.parse().unwrap());
        }
        Some(other) => panic!("no role {other:?}"),
    }
}

fn server(lease: Duration, mib: u64) {
    let server = Server::start(ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        memory_bytes: mib << 20,
        lease,
        providers: ProviderSet::default(),
        security: ServerSecurity::default(),
    });
    let server = server.unwrap();
    say(&server.local().to_string());
    hear();
}

/// Half of the clients over shm, half over roce; every third by messages.
fn connect(address: &str, number: u64) -> Result<Client, KvError> {
    let provider = if number.is_multiple_of(2) { "shm" } else { "roce" };
    let rules = PathRules { require: vec![provider.to_owned()], ..PathRules::default() };
    let sided = if number % 3 == 2 { Sided::Two } else { Sided::One };
    let config = ClientConfig {
        sided,
        providers: ProviderSet::default().rules(rules),
        ..ClientConfig::new(address.parse().unwrap())
    };
    Client::connect(&config)
}

/// Operations of one client: a line before each, and one behind.
fn client(address: &str, number: u64, operations: u64) {
    let mut client = match connect(address, number) {
        Ok(client) => client,
        Err(error) => return say(&format!("failed: connecting: {error}")),
    };
    let mut random = Random::new(number);
    let mut seen: HashMap<u64, (u64, u64)> = HashMap::new();
    for n in 0..operations {
        if operations == ENDLESS && n.is_multiple_of(8) {
            // Histories of a few seconds need not have millions.
            std::thread::sleep(Duration::from_micros(200));
        }
        let key = random.below(KEYS);
        let name = format!("key {key}");
        let name = name.as_bytes();
        let id = number << 32 | n;
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.resize(8 + random.index(600), 7);
        let only = seen.get(&key).copied();
        let begin = |what: &str| say(&format!("{} {key} {what} .", now_ns()));
        let ended = match (random.below(10), only) {
            (0..5, _) => {
                begin("get");
                let got = client.get(name);
                if let Ok(Some(Value { bytes, version })) = &got {
                    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    seen.insert(key, (*version, value));
                }
                got.map(|got| {
                    got.map_or("nothing".to_owned(), |_| {
                        let (version, value) = seen[&key];
                        format!("value {value} {version}")
                    })
                })
            }
            (5, _) => {
                begin("delete");
                let deleted = client.delete(name);
                deleted.map(|version| {
                    version.map_or("nothing".to_owned(), |version| format!("done {version}"))
                })
            }
            (6, Some((version, value))) => {
                begin(&format!("replace {id} {version} {value}"));
                client.replace(name, version, &bytes).map(|replaced| match replaced {
                    Replaced::Stored(version) => format!("done {version}"),
                    Replaced::Changed(Some(version)) => format!("other {version}"),
                    Replaced::Changed(None) => "nothing".to_owned(),
                })
            }
            _ => {
                begin(&format!("put {id}"));
                client.put(name, &bytes).map(|version| format!("done {version}"))
            }
        };
        match ended {
            Ok(ended) => say(&format!("= {} {ended} .", now_ns())),
            Err(error) => return say(&format!("failed: {error}")),
        }
    }
    say("end");
}

/// Reads the line before an operation; `None` if it is not whole.
fn begun(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.strip_suffix(" .")?.split(' ').collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let what = match words[2..] {
        ["get"] => What::Get(Seen::Nothing(Absence::Unknown)),
        ["delete"] => What::Delete(Deleted::Nothing(Absence::Unknown)),
        ["put", value] => What::Put { value: number(value), version: 0 },
        ["replace", new, version, value] => What::Replace {
            value: number(new),
            only: (number(version), number(value)),
            ended: Ended::Nothing,
        },
        _ => panic!("{line}"),
    };
    Some(Event { start: number(words[0]), key: number(words[1]), end: None, what })
}

/// Adds what the line behind it says.
fn end(event: &mut Event, line: &str) {
    let Some(line) = line.strip_prefix("= ").and_then(|line| line.strip_suffix(" .")) else {
        return;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    event.end = Some(number(0));
    event.what = match (event.what, words[1]) {
        (What::Get(_), "value") => What::Get(Seen::Value { value: number(2), version: number(3) }),
        (What::Put { value, .. }, "done") => What::Put { value, version: number(2) },
        (What::Delete(_), "done") => What::Delete(Deleted::Done { version: number(2) }),
        (What::Replace { value, only, .. }, "done") => {
            What::Replace { value, only, ended: Ended::Stored { version: number(2) } }
        }
        (What::Replace { value, only, .. }, "other") => {
            What::Replace { value, only, ended: Ended::Other { version: number(2) } }
        }
        (what, "nothing") => what,
        (what, _) => panic!("{what:?}: {line}"),
    };
}

/// What a slot is told, and what it tells while it runs.
#[derive(Default)]
struct Slot {
    /// Its client of the moment.
    process: AtomicU32,
    /// Operations begun.
    begun: AtomicU64,
    /// No more of them.
    over: AtomicBool,
    /// There are no more.
    ended: AtomicBool,
}

/// Ends slots, also where the test fails.
struct Over<'a>(&'a [Slot]);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|slot| slot.over.store(true, Ordering::Relaxed));
    }
}

/// What the clients of a slot saw, and why those failed that did: how their last operation ended is unknown.
type Saw = (Vec<Event>, Vec<String>);

/// Runs clients one after the other, most of which are killed somewhere. Goes on after one has failed if `goes_on` at
/// the reason.
fn run(
    slot: &Slot,
    (address, first): (&str, u64),
    operations: u64,
    goes_on: impl Fn(&str) -> bool,
) -> Saw {
    let mut random = Random::new(first);
    let (mut history, mut number): (Vec<Event>, u64) = (Vec::new(), first);
    let (mut failed, mut over) = (Vec::new(), false);
    while (history.len() as u64) < operations && !over {
        let mut child =
            Child::start("second_process", &format!("client {address} {number} {operations}"));
        slot.process.store(child.id(), Ordering::Relaxed);
        number += SLOTS;
        let mut left = Some(random.between(operations / 8, operations / 2));
        while let Some(line) = child.listen() {
            if line.starts_with("= ") {
                if let Some(event) = history.last_mut() {
                    end(event, &line);
                }
            } else if let Some(error) = line.strip_prefix("failed: ") {
                over |= !goes_on(error);
                println!("client {} failed: {error}", number - SLOTS);
                failed.push(error.to_owned());
            } else if line != "end" {
                history.extend(begun(&line));
                slot.begun.store(history.len() as u64, Ordering::Relaxed);
            }
            left = left.and_then(|left| left.checked_sub(1));
            over |= slot.over.load(Ordering::Relaxed);
            if left == Some(0) || over {
                child.kill();
            }
        }
    }
    slot.ended.store(true, Ordering::Relaxed);
    (history, failed)
}

/// Notices when this process stood still, as all of a machine or of a job may: then leases end, and nobody is to blame.
#[derive(Default)]
struct Standstill {
    seen: AtomicBool,
    over: AtomicBool,
}

impl Standstill {
    fn watch(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let began = Instant::now();
            // That it takes longer is the event.
            std::thread::sleep(Duration::from_millis(50));
            if began.elapsed() > Duration::from_secs(5) {
                println!("stood still for {:?}", began.elapsed());
                self.seen.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn started(lease: Duration, mib: u64) -> (Child, String) {
    let role = format!("server {} {mib}", lease.as_millis());
    let mut server = Child::start("second_process", &role);
    let address = server.hear();
    (server, address)
}

fn check(history: &[Event]) {
    let ended = history.iter().filter(|event| event.end.is_some()).count();
    println!("{} operations, {} without an end", history.len(), history.len() - ended);
    versions::check(history).unwrap();
    // The other checker takes long histories in parts only: those of single keys up to a bound.
    if history.len() < 20_000 {
        search::check(history).unwrap();
    }
}

#[test]
fn s5_24_processes_that_are_killed_leave_a_linearizable_history() {
    let operations = scaled(6_000);
    let (mut server, address) = started(LONG, 8);
    let still = Standstill::default();
    let history = std::thread::scope(|scope| {
        scope.spawn(|| still.watch());
        let slots: Vec<_> = (0..SLOTS)
            .map(|n| {
                let (address, still) = (&address, &still);
                let goes_on = |reason: &str| {
                    println!("client failed: {reason}");
                    still.seen.load(Ordering::Relaxed)
                };
                scope
                    .spawn(move || run(&Slot::default(), (address, n), operations / SLOTS, goes_on))
            })
            .collect();
        let slots: Vec<_> = slots.into_iter().map(|slot| slot.join()).collect();
        still.over.store(true, Ordering::Relaxed);
        let join = |slot: std::thread::Result<Saw>| {
            let (history, failed) = slot.unwrap();
            assert!(failed.is_empty() || still.seen.load(Ordering::Relaxed), "{failed:?}");
            history
        };
        slots.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    check(&history);
    assert!(history.iter().any(|event| event.end.is_none()), "some were killed in an operation");
    did("S5.24", history.len() as u64, "operations");
    server.tell("end");
}

/// Runs clients without an end while `disturb` does, then ends them. Returns what they saw, and why some failed.
fn beside(
    (address, first): (&str, u64),
    goes_on: fn(&str) -> bool,
    disturb: impl FnOnce(&[Slot]),
) -> Saw {
    let slots: Vec<_> = (0..SLOTS).map(|_| Slot::default()).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = (first..)
            .zip(&slots)
            .map(|(n, slot)| scope.spawn(move || run(slot, (address, n), ENDLESS, goes_on)))
            .collect();
        let over = Over(&slots);
        progress(&slots);
        disturb(&slots);
        drop(over);
        let (mut history, mut failed) = (Vec::new(), Vec::new());
        for slot in running {
            let (seen, reasons) = slot.join().unwrap();
            history.extend(seen);
            failed.extend(reasons);
        }
        (history, failed)
    })
}

/// Waits until each slot has begun some operations more.
fn progress(slots: &[Slot]) {
    let begun = |slot: &Slot| slot.begun.load(Ordering::Relaxed);
    let goals: Vec<_> = slots.iter().map(|slot| begun(slot) + PROGRESS).collect();
    let began = Instant::now();
    while slots.iter().zip(&goals).any(|(slot, goal)| begun(slot) < *goal) {
        assert!(
            began.elapsed() < HANG,
            "clients do not go on: {goals:?} {:?}",
            slots.iter().map(begun).collect::<Vec<_>>()
        );
        // Other processes make it.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stop(process: u32, time: Duration) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    // So long it stands still.
    std::thread::sleep(time);
    kill_process(process, Signal::CONT).unwrap();
}

/// Each stands still once: the server, then the clients.
fn stop_each(server: &Child, slots: &[Slot], time: Duration) {
    stop(server.id(), time);
    progress(slots);
    for slot in slots {
        stop(slot.process.load(Ordering::Relaxed), time);
        progress(slots);
    }
}

/// Over RoCE too, where a queue pair may give a silent peer up long before the lease is over. Memory that waits for
/// one of them is not full.
#[test]
fn s5_24_a_standstill_within_the_lease_fails_nothing() {
    let (server, address) = started(LONG, 1);
    let (history, failed) = beside(
        (&address, 200),
        |_| false,
        |slots| {
            stop_each(&server, slots, Duration::from_millis(1_500));
        },
    );
    assert!(failed.is_empty(), "{failed:?}");
    check(&history);
}

/// Who was silent for too long is told so, and what he had under way is done or not, but not later.
#[test]
fn s5_24_a_standstill_beyond_the_lease_leaves_a_linearizable_history() {
    let lease = Duration::from_millis(400);
    let (server, address) = started(lease, 8);
    let (history, failed) = beside(
        (&address, 300),
        |_| true,
        |slots| {
            stop_each(&server, slots, 2 * lease);
        },
    );
    assert!(!failed.is_empty(), "a client over a network outlived its lease");
    for reason in &failed {
        assert!(reason.contains("server"), "{reason}");
    }
    check(&history);
}

#[test]
fn s5_24_a_killed_server_ends_operations_and_no_answer_before_was_wrong() {
    let (mut server, address) = started(LONG, 8);
    let (history, failed) = beside(
        (&address, 100),
        |_| false,
        |slots| {
            server.kill();
            let began = Instant::now();
            while !slots.iter().all(|slot| slot.ended.load(Ordering::Relaxed)) {
                assert!(began.elapsed() < HANG, "a client did not notice");
                // They end by themselves.
                std::thread::sleep(Duration::from_millis(5));
            }
        },
    );
    assert_eq!(failed.len() as u64, SLOTS);
    for reason in &failed {
        assert!(reason.contains("server"), "{reason}");
        assert!(reason.matches("the server is lost").count() <= 1, "says it once: {reason}");
    }
    check(&history);
}
