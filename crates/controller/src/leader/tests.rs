//! The decisions, with a store whose answers are given.
use super::*;
use std::cell::Cell;
use std::collections::VecDeque;

const LEASE: Duration = Duration::from_secs(2);

/// What a store answers next.
enum Says {
    Nobody(u32),
    GaveUp(u32, Duration),
    Leads(u32),
    Won,
    Kept(bool),
    Nothing,
}

/// And how often a campaign was prepared.
struct Script(VecDeque<Says>, usize);

fn away() -> StoreError {
    StoreError { endpoint: "store".to_owned(), what: "away".to_owned() }
}

fn other(term: u32) -> Candidate {
    Candidate { address: "other:1".to_owned(), term }
}

impl Store for Script {
    fn look(&mut self) -> Result<Seen, StoreError> {
        let seen = |leader: Option<Candidate>, term, left| Ok(Seen { leader, term, left });
        match self.0.pop_front() {
            Some(Says::Nobody(term)) => seen(None, term, None),
            Some(Says::GaveUp(term, left)) => seen(None, term, Some(left)),
            Some(Says::Leads(term)) => seen(Some(other(term)), term, None),
            Some(Says::Nothing) => Err(away()),
            Some(Says::Won | Says::Kept(_)) | None => panic!("asked who leads"),
        }
    }

    fn prepare(&mut self) -> Result<(), StoreError> {
        self.1 += 1;
        Ok(())
    }

    fn campaign(&mut self, _: &Candidate) -> Result<Campaign, StoreError> {
        match self.0.pop_front() {
            Some(Says::Won) => Ok(Campaign::Won),
            Some(Says::Leads(term)) => Ok(Campaign::Led(Some(other(term)))),
            Some(Says::Nobody(_)) => Ok(Campaign::Led(None)),
            Some(Says::Nothing) => Err(away()),
            Some(Says::GaveUp(..) | Says::Kept(_)) | None => panic!("asked to lead"),
        }
    }

    fn renew(&mut self) -> Result<bool, StoreError> {
        match self.0.pop_front() {
            Some(Says::Kept(there)) => Ok(there),
            Some(Says::Nothing) => Err(away()),
            Some(Says::Nobody(_) | Says::GaveUp(..) | Says::Leads(_) | Says::Won) | None => {
                panic!("asked to renew")
            }
        }
    }

    fn resign(&mut self, _: Option<Duration>) {}
}

/// Plays answers, a quarter of a lease apart; returns how it stands after each step.
fn play(unreachable: Unreachable, answers: impl IntoIterator<Item = Says>) -> Vec<Standing> {
    let mut script = Script(answers.into_iter().collect(), 0);
    let now = Cell::new(Instant::now());
    let mut election = Election::new(LEASE, unreachable);
    let mut stood = Vec::new();
    while !script.0.is_empty() && !matches!(election.standing, Standing::Ended { .. }) {
        let candidate =
            |above: u32| Candidate { address: "own:1".to_owned(), term: 10.max(above + 1) };
        election.step(&mut script, || now.get(), candidate);
        now.set(now.get() + LEASE / 4);
        stood.push(election.standing.clone());
    }
    stood
}

fn leads(standing: &Standing) -> Option<u32> {
    match standing {
        Standing::Leads { term, .. } => Some(*term),
        Standing::StandsBy { .. } | Standing::Ended { .. } => None,
    }
}

#[test]
fn a_standby_leads_when_nobody_does_and_in_a_higher_term() {
    use Says::{Kept, Leads, Nobody, Nothing, Won};
    let answers = [Leads(40), Nothing, Nobody(40), Leads(41), Nobody(41), Won, Kept(true)];
    let stood = play(Unreachable::Hold, answers);
    assert_eq!(stood[0], stands_by(Some(other(40)), None));
    assert_eq!(stood[1], stands_by(None, Some("store: away".to_owned())), "the store is away");
    assert_eq!(stood[2], stands_by(Some(other(41)), None), "another one was faster");
    assert_eq!((leads(&stood[3]), leads(&stood[4])), (Some(42), Some(42)));
}

#[test]
fn a_campaign_whose_answer_is_lost_leads_nobody() {
    use Says::{Leads, Nobody, Nothing};
    let stood = play(Unreachable::Hold, [Nobody(0), Nothing, Leads(10)]);
    assert!(stood.iter().all(|standing| leads(standing).is_none()), "{stood:?}");
}

#[test]
fn a_leader_whose_lease_is_over_ends() {
    use Says::{Kept, Nobody, Won};
    for unreachable in [Unreachable::Hold, Unreachable::StepDown] {
        let stood = play(unreachable, [Nobody(0), Won, Kept(true), Kept(false)]);
        assert!(matches!(stood[2], Standing::Ended { .. }), "{stood:?}");
    }
}

#[test]
fn without_a_store_a_leader_holds_or_steps_down_when_its_lease_is_over() {
    use Says::{Kept, Nobody, Nothing, Won};
    let answers = || {
        let away = (0..6).map(|_| Nothing);
        [Nobody(0), Won, Kept(true)].into_iter().chain(away)
    };
    let held = play(Unreachable::Hold, answers());
    assert!(held.iter().all(|standing| leads(standing) == Some(10)), "{held:?}");
    let Some(Standing::Leads { alone: Some((since, why)), .. }) = held.last() else {
        panic!("{held:?}");
    };
    assert_eq!(why, "store: away");
    let Standing::Leads { alone: Some((first, _)), .. } = &held[2] else { panic!("{held:?}") };
    assert_eq!(since, first, "since the store is away, not since the last try");
    let stepped = play(Unreachable::StepDown, answers());
    let led = stepped.iter().take_while(|standing| leads(standing).is_some()).count();
    // It was renewed at the second step, and is over four quarters of a lease later.
    assert_eq!(led, 5, "{stepped:?}");
    assert!(matches!(stepped.last(), Some(Standing::Ended { .. })), "{stepped:?}");
}

#[test]
fn what_a_leader_said_when_it_gave_up_counts_unless_another_one_has_led_since() {
    use Says::{GaveUp, Kept, Nobody, Won};
    let left = Duration::from_millis(30);
    let left_of = |standing: &Standing| match standing {
        Standing::Leads { left, .. } => *left,
        Standing::StandsBy { .. } | Standing::Ended { .. } => panic!("{standing:?}"),
    };
    let stood = play(Unreachable::Hold, [GaveUp(40, left), Won, Kept(true)]);
    assert_eq!((left_of(&stood[0]), left_of(&stood[1])), (Some(left), Some(left)));
    // A campaign of a tenth of a lease, and one that takes longer than what is left.
    let of = |left| {
        let mut script = Script([GaveUp(40, left), Won].into(), 0);
        let began = Instant::now();
        let times = Cell::new(0);
        let mut election = Election::new(LEASE, Unreachable::Hold);
        let now = || {
            times.set(times.get() + 1);
            began + LEASE / 10 * times.get()
        };
        election.step(&mut script, now, |_| other(50));
        left_of(&election.standing).unwrap()
    };
    assert_eq!((of(LEASE), of(left)), (LEASE / 10 * 9, Duration::ZERO));
    // Nobody leads when it campaigns, but somebody has since it looked, and died.
    let stood = play(Unreachable::Hold, [GaveUp(40, left), Nobody(41), Nobody(41), Won]);
    assert_eq!(stood[0], stands_by(None, None));
    assert_eq!((leads(&stood[1]), left_of(&stood[1])), (Some(42), None));
}

#[test]
fn a_lease_that_was_prepared_counts_from_then() {
    use Says::{Leads, Nobody, Nothing, Won};
    let mut script = Script([Leads(40), Leads(40), Leads(40)].into(), 0);
    let began = Instant::now();
    let now = Cell::new(began);
    let mut election = Election::new(LEASE, Unreachable::StepDown);
    let mut step = |script: &mut Script, after: Duration| {
        now.set(began + after);
        election.step(script, || now.get(), |_| other(50));
        leads(&election.standing)
    };
    for part in 0..3 {
        step(&mut script, LEASE / 8 * part);
    }
    assert_eq!(script.1, 2, "each fourth of a lease, not at each look");
    script.0.extend([Nobody(40), Won, Nothing, Nothing]);
    assert_eq!(step(&mut script, LEASE / 2), Some(50));
    assert_eq!(step(&mut script, LEASE / 4 * 5 - LEASE / 100), Some(50));
    assert_eq!(step(&mut script, LEASE / 4 * 5), None, "it was prepared at a fourth");
}
