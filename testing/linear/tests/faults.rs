//! Both checkers accept what one register at a time does, and find what it cannot do.
use catchment_linear::{Absence, Deleted, Event, Replaced, Seen, What, search, versions};
use catchment_probe::random::Random;

fn event(start: u64, end: u64, what: What) -> Event {
    Event { key: 1, start, end: Some(end), what }
}

fn unended(start: u64, what: What) -> Event {
    Event { key: 1, start, end: None, what }
}

fn put(value: u64, version: u64) -> What {
    What::Put { value, version }
}

fn get(value: u64, version: u64) -> What {
    What::Get(Seen::Value { value, version })
}

const NOTHING: What = What::Get(Seen::Nothing(Absence::Unknown));

fn verdicts(history: &[Event]) -> (bool, bool) {
    (versions::check(history).is_ok(), search::check(history).is_ok())
}

#[test]
fn what_one_register_does_is_accepted() {
    let replaced = What::Replace { value: 3, only: (2, 2), ended: Replaced::Stored { version: 3 } };
    let deleted = What::Delete(Deleted::Done { version: 4 });
    let seen = What::Get(Seen::Nothing(Absence::Deleted { version: 4 }));
    for history in [
        vec![event(0, 1, NOTHING), event(2, 3, put(1, 1)), event(4, 5, get(1, 1))],
        // At the same time, in either order.
        vec![
            event(0, 9, put(1, 1)),
            event(1, 2, get(1, 1)),
            event(3, 8, put(2, 2)),
            event(4, 5, get(1, 1)),
            event(5, 6, get(2, 2)),
        ],
        // A write whose client died was done, late.
        vec![
            event(0, 1, put(1, 1)),
            unended(2, put(2, 0)),
            event(3, 4, get(1, 1)),
            event(5, 6, get(2, 2)),
        ],
        // Another one was not.
        vec![event(0, 1, put(1, 1)), unended(2, put(2, 0)), event(3, 4, get(1, 1))],
        vec![
            event(0, 1, put(1, 1)),
            event(2, 3, put(2, 2)),
            event(4, 5, replaced),
            event(6, 7, deleted),
            event(8, 9, seen),
            event(10, 11, NOTHING),
        ],
    ] {
        assert_eq!(verdicts(&history), (true, true), "{history:?}");
    }
}

#[test]
fn planted_faults_are_found() {
    let other = What::Replace { value: 3, only: (1, 1), ended: Replaced::Stored { version: 2 } };
    let deleted = What::Delete(Deleted::Done { version: 2 });
    for (name, history) in [
        (
            "a value that was overwritten",
            vec![event(0, 1, put(1, 1)), event(2, 3, put(2, 2)), event(4, 5, get(1, 1))],
        ),
        (
            "the new value, then the old one",
            vec![
                event(0, 1, put(1, 1)),
                event(2, 9, put(2, 2)),
                event(3, 4, get(2, 2)),
                event(5, 6, get(1, 1)),
            ],
        ),
        ("a value before it was written", vec![event(0, 1, get(1, 1)), event(2, 3, put(1, 1))]),
        ("nothing where a value is", vec![event(0, 1, put(1, 1)), event(2, 3, NOTHING)]),
        (
            "a deleted value",
            vec![event(0, 1, put(1, 1)), event(2, 3, deleted), event(4, 5, get(1, 1))],
        ),
        (
            "two that replaced the same",
            vec![
                event(0, 1, put(1, 1)),
                event(2, 5, other),
                event(
                    3,
                    6,
                    What::Replace {
                        value: 4,
                        only: (1, 1),
                        ended: Replaced::Stored { version: 2 },
                    },
                ),
            ],
        ),
        ("a value that nobody wrote", vec![event(0, 1, put(1, 1)), event(2, 3, get(9, 2))]),
    ] {
        assert_eq!(verdicts(&history), (false, false), "{name}");
    }
}

#[test]
fn a_lost_write_is_found_by_its_version() {
    let twice = [event(0, 5, put(1, 1)), event(1, 6, put(2, 1))];
    assert!(versions::check(&twice).unwrap_err().reason.contains("version 1 is that of"));
}

/// A register that clients use at random times: each operation is done at a moment between its start and its end.
fn history(random: &mut Random, count: u64) -> Vec<Event> {
    let (mut value, mut version) = (None, 0);
    let mut history = Vec::new();
    for n in 1..=count {
        let at = n * 10;
        let what = match random.below(3) {
            0 => {
                version += 1;
                value = Some((n, version));
                put(n, version)
            }
            1 if value.is_some() => {
                version += 1;
                value = None;
                What::Delete(Deleted::Done { version })
            }
            _ => match value {
                Some((value, version)) => get(value, version),
                None => NOTHING,
            },
        };
        let (before, after) = (random.below(25), random.below(25));
        history.push(event(at.saturating_sub(before), at + after, what));
    }
    history
}

#[test]
fn random_histories_are_accepted_and_a_stale_read_in_them_is_not() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let mut history = history(&mut random, 200);
        assert_eq!(verdicts(&history), (true, true), "seed {seed}");
        let writes = history.iter().filter_map(|event| match event.what {
            What::Put { value, version } => Some((value, version)),
            What::Get(_) | What::Replace { .. } | What::Delete(_) => None,
        });
        let (value, version) = writes.min().unwrap();
        history.push(event(5_000, 5_001, get(value, version)));
        assert_eq!(verdicts(&history), (false, false), "seed {seed}");
    }
}

#[test]
fn a_million_operations_are_no_problem_for_versions() {
    let mut random = Random::new(7);
    let mut all = history(&mut random, 100_000);
    assert!(versions::check(&all).is_ok());
    let Some(late) =
        all.iter_mut().rev().find(|event| matches!(event.what, What::Get(Seen::Value { .. })))
    else {
        panic!("some value was read");
    };
    late.start += 1_000_000;
    late.end = Some(late.start + 1);
    assert!(versions::check(&all).is_err());
}
