//! Lost, doubled and overtaken packets between our queue pair and the kernel's.
use super::Collector;
use super::ours::Operation::{self, Read, Send as SendMessage, SendImm, Write, WriteImm};
use super::ours::{GROUPS, ask, count_up};
use crate::bytes::pattern;
use crate::end::Work;
use crate::loss::{Chosen, Direction, Impairment, Lost};
use crate::peer::pair::{Ours, Pair, Side};
use anyhow::{Result, ensure};

const PACKETS: u32 = 5;
const MESSAGE_BYTES: usize = 4 * 1024 + 100;

/// Size of a message under random losses: about 300 packets.
const RANDOM_BYTES: usize = 300_000;

#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    /// Whether it comes from the requester.
    request: bool,
    /// Its PSN, counted from the first of the message.
    at: u32,
    times: u32,
}

const LAST: u32 = PACKETS - 1;

const OF_WRITE: &[Place] = &[
    place("first packet lost", true, 0, 1),
    place("middle packet lost", true, 2, 1),
    place("last packet lost", true, LAST, 1),
    place("middle packet lost twice", true, 2, 2),
    place("last packet lost twice", true, LAST, 2),
    place("ACK lost", false, LAST, 1),
    place("ACK lost twice", false, LAST, 2),
];

const OF_READ: &[Place] = &[
    place("request lost", true, 0, 1),
    place("first response lost", false, 0, 1),
    place("middle response lost", false, 2, 1),
    place("last response lost", false, LAST, 1),
    place("middle response lost twice", false, 2, 2),
];

const OF_ATOMIC: &[Place] = &[
    place("request lost", true, 0, 1),
    place("response lost", false, 0, 1),
    place("response lost twice", false, 0, 2),
];

/// Random impairments of both directions: a name, the options of netem, the operations to try.
const RANDOM: &[(&str, &str, &[Operation])] = &[
    ("5 % lost both ways", "loss 5%", &[Write, WriteImm, SendMessage, SendImm, Read]),
    ("20 % doubled both ways", "duplicate 20%", &[Write, SendMessage, Read]),
    ("10 % overtake others both ways", "delay 2ms reorder 10%", &[Write, SendMessage, Read]),
];

const fn place(name: &'static str, request: bool, at: u32, times: u32) -> Place {
    Place { name, request, at, times }
}

pub(crate) fn add(cases: &mut Collector<'_>) {
    let name = "ours answers/WRITE and READ, both answers lost";
    cases.pair(name, Ours::LOSSY, answers_lost);
    for (side, group) in GROUPS {
        for (operation, places) in [(WriteImm, OF_WRITE), (SendMessage, OF_WRITE), (Read, OF_READ)]
        {
            for place in places {
                let name = format!("{group}/{operation:?}, {}", place.name);
                cases.pair(&name, Ours::LOSSY, move |pair| {
                    chosen(pair, side, place, |pair| ask(pair, side, operation, MESSAGE_BYTES))
                });
            }
        }
        for place in OF_ATOMIC {
            let name = format!("{group}/atomics, {}", place.name);
            cases.pair(&name, Ours::LOSSY, move |pair| {
                chosen(pair, side, place, |pair| count_up(pair, side))
            });
        }
        for (name, words, operations) in RANDOM {
            for &operation in *operations {
                let name = format!("{group}/{operation:?}, {name}");
                cases.pair(&name, Ours::LOSSY, move |pair| {
                    random(pair, words, |pair| ask(pair, side, operation, RANDOM_BYTES))
                });
            }
        }
    }
}

/// Loses the answers to a WRITE and to the READ after it. The WRITE is retransmitted first: its
/// answer must not acknowledge the READ, which this kernel would then complete without data.
fn answers_lost(pair: &mut Pair<'_>) -> Result<()> {
    let (_, psn) = pair.first_psns();
    let lost = |psn| Chosen { direction: Direction::ToGuest, psn, times: 1 };
    let impairment = Impairment { chosen: vec![lost(psn), lost(psn + 1)], ..Impairment::default() };
    let data = pattern(9, 64);
    let dropped = impairment.during(pair, |pair| {
        pair.fill(Side::Ours, 4096, &data)?;
        let (to, from) = (pair.place(Side::Ours, 0), pair.place(Side::Ours, 4096));
        let work = [(Work::Write(to), 0, 64), (Work::Read(from), 4096, data.len())];
        pair.post(Side::Guest, &work)?;
        pair.expect_sent(Side::Guest, "Success")?;
        pair.expect_sent(Side::Guest, "Success").map(drop)
    })?;
    ensure!(dropped.chosen > 0, "nothing was lost");
    pair.expect_memory(Side::Guest, 4096, &data)
}

impl Impairment {
    pub(crate) fn during(
        &self,
        pair: &mut Pair<'_>,
        run: impl Fn(&mut Pair<'_>) -> Result<()>,
    ) -> Result<Lost> {
        self.begin(pair.machine)?;
        let outcome = run(pair);
        // Restore the network for the next case even if this one failed.
        let lost = Self::end(pair.machine);
        outcome?;
        lost
    }
}

/// Loses the chosen packet: everything still arrives, and so does what follows.
fn chosen(
    pair: &mut Pair<'_>,
    side: Side,
    place: &Place,
    run: impl Fn(&mut Pair<'_>) -> Result<()>,
) -> Result<()> {
    let (ours, guest) = pair.first_psns();
    let (first, direction) = match (side, place.request) {
        (Side::Ours, true) => (ours, Direction::ToGuest),
        (Side::Ours, false) => (ours, Direction::FromGuest),
        (Side::Guest, true) => (guest, Direction::FromGuest),
        (Side::Guest, false) => (guest, Direction::ToGuest),
    };
    let packet = Chosen { direction, psn: first + place.at, times: place.times };
    let impairment = Impairment { chosen: vec![packet], ..Impairment::default() };
    let lost = impairment.during(pair, &run)?;
    ensure!(
        lost.chosen == u64::from(place.times),
        "{} packets were lost instead of {}",
        lost.chosen,
        place.times
    );
    run(pair)
}

fn random(
    pair: &mut Pair<'_>,
    words: &'static str,
    run: impl Fn(&mut Pair<'_>) -> Result<()>,
) -> Result<()> {
    let impairment = Impairment { both_directions: words, ..Impairment::default() };
    let lost = impairment.during(pair, run)?;
    ensure!(!words.starts_with("loss") || lost.by_chance > 0, "nothing was lost: {lost:?}");
    Ok(())
}
