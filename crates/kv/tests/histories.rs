//! Processes use one store over shm and roce, one-sided and by messages, and are killed; so is the server. What they
//! saw is linearizable.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use catchment_kv::{Client, ClientConfig, KvError, Replaced, Server, ServerConfig, Sided, Value};
use catchment_linear::{Absence, Deleted, Event, Replaced as Ended, Seen, What, search, versions};
use catchment_probe::child::{Child, hear, role, say};
use catchment_probe::load::{did, scaled};
use catchment_probe::random::Random;
use catchment_providers::ProviderSet;
use catchment_session::io::ServerSecurity;
use catchment_session::path::PathRules;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;

const KEYS: u64 = 12;
const SLOTS: u64 = 4;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn second_process() {
    match role().as_deref().map(|role| role.split(' ').collect::<Vec<_>>()).as_deref() {
        None => {}
        Some(["server"]) => server(),
        Some(["client", address, number, operations]) => {
            client(address, number.parse().unwrap(), operations.parse().unwrap());
        }
        Some(other) => panic!("no role {other:?}"),
    }
}

fn server() {
    let server = Server::start(ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        memory_bytes: 8 << 20,
        lease: Duration::from_secs(60),
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
    let mut client = connect(address, number).unwrap();
    let mut random = Random::new(number);
    let mut seen: HashMap<u64, (u64, u64)> = HashMap::new();
    for n in 0..operations {
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

/// Runs clients one after the other, most of which are killed somewhere. Returns what they saw, and whether one failed.
fn slot(
    address: &str,
    slot: u64,
    operations: u64,
    mut saw: impl FnMut(usize),
) -> (Vec<Event>, Option<String>) {
    let mut random = Random::new(slot);
    let (mut history, mut number): (Vec<Event>, u64) = (Vec::new(), slot);
    let mut failed = None;
    while (history.len() as u64) < operations && failed.is_none() {
        let mut child =
            Child::start("second_process", &format!("client {address} {number} {operations}"));
        number += SLOTS;
        let mut left = Some(random.between(operations / 8, operations / 2));
        while let Some(line) = child.listen() {
            if line.starts_with("= ") {
                if let Some(event) = history.last_mut() {
                    end(event, &line);
                }
            } else if let Some(error) = line.strip_prefix("failed: ") {
                failed = Some(error.to_owned());
            } else if line != "end" {
                history.extend(begun(&line));
                saw(history.len());
            }
            left = left.and_then(|left| left.checked_sub(1));
            if left == Some(0) {
                child.kill();
            }
        }
    }
    (history, failed)
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
    let mut server = Child::start("second_process", "server");
    let address = server.hear();
    let history = std::thread::scope(|scope| {
        let slots: Vec<_> = (0..SLOTS)
            .map(|n| {
                let address = &address;
                scope.spawn(move || slot(address, n, operations / SLOTS, |_| {}))
            })
            .collect();
        let slots: Vec<_> = slots.into_iter().map(|slot| slot.join().unwrap()).collect();
        slots
            .into_iter()
            .flat_map(|(history, failed)| {
                assert_eq!(failed, None);
                history
            })
            .collect::<Vec<_>>()
    });
    check(&history);
    assert!(history.iter().any(|event| event.end.is_none()), "some were killed in an operation");
    did("S5.24", history.len() as u64, "operations");
    server.tell("end");
}

#[test]
fn s5_24_a_killed_server_ends_operations_and_no_answer_before_was_wrong() {
    let mut server = Child::start("second_process", "server");
    let address = server.hear();
    let (sender, under_way) = mpsc::channel();
    let history = std::thread::scope(|scope| {
        let slots: Vec<_> = (0..SLOTS)
            .map(|n| {
                let (address, sender) = (&address, sender.clone());
                let saw = move |operations| {
                    if operations == 500 {
                        sender.send(()).unwrap();
                    }
                };
                scope.spawn(move || slot(address, 100 + n, u64::MAX >> 8, saw))
            })
            .collect();
        (0..SLOTS).for_each(|_| under_way.recv().unwrap());
        server.kill();
        let slots: Vec<_> = slots.into_iter().map(|slot| slot.join().unwrap()).collect();
        let said = |(history, failed): (Vec<Event>, Option<String>)| {
            let failed = failed.unwrap();
            assert!(failed.contains("server") && !history.is_empty(), "{failed}");
            history
        };
        slots.into_iter().flat_map(said).collect::<Vec<_>>()
    });
    check(&history);
}
