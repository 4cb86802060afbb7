//! Any packets, from neighbours that obey and from those that do not.
use super::network::{MS, application, config};
use super::problem;
use catchment_control::drum::{
    Answered, Carried, Header, Host, HostConfig, Input, Message, Offer, Output, Round,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Grants = BTreeMap<(u32, u32), f64>;

/// A neighbour that offers anything, takes some of the answers, and obeys its grants.
#[derive(Clone, Debug, Default)]
struct Anyone {
    /// Sequence, what was seen, and grants of the answers that are on their way.
    answers: Vec<(u64, u64, Grants)>,
    taken: u64,
    acknowledged: u64,
    grants: Grants,
    /// The sequence of the offer since which each edge has been offered without a break.
    since: BTreeMap<(u32, u32), u64>,
}

impl Anyone {
    fn take_last(&mut self, lease: u64, now: u64) {
        let Some((sequence, seen, mut grants)) = self.answers.pop() else { return };
        // What was granted to an edge before it was offered anew is not its own any more.
        grants.retain(|ends, _| self.since.get(ends).is_some_and(|since| seen >= *since));
        if sequence > self.taken && seen + lease > now {
            (self.taken, self.grants) = (sequence, grants);
            self.acknowledged = self.acknowledged.max(seen);
        }
    }

    fn used(&self, lease: u64, now: u64) -> f64 {
        if now < self.acknowledged + lease { self.grants.values().sum() } else { 0.0 }
    }
}

/// Who sends, edges with value, marginal utility and elasticity, whether the last answers arrived, ms
/// to the next, and what data carry before that.
type Step = (u32, BTreeMap<(u32, u32), (f32, f32, f32)>, bool, u64, Vec<Data>);

/// The applications, how much newer than the last offers, in stamps, and the numbers.
type Data = ((u32, u32), i16, [u8; 8]);

/// Numbers: some that a host would write, some that are anything.
fn data() -> impl Strategy<Value = Data> {
    let offer = prop::option::of((1e-6_f32..1e6, 1e-6_f32..1e6));
    let price = prop::option::of(-1e6_f32..1e6);
    let good =
        (offer, price).prop_map(|(offer, price)| Carried { stamp: 0, offer, price }.encode());
    let numbers = prop_oneof![4 => good, 1 => any::<[u8; 8]>()];
    ((0..3_u32, 0..3_u32), -300..300_i16, numbers)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = (1e-6_f32..1e6, 1e-6_f32..1e6, 0.1_f32..10.0);
    let edges = prop::collection::btree_map((0..3_u32, 0..3_u32), value, 0..4);
    let data = prop::collection::vec(data(), 0..4);
    prop::collection::vec((1..4_u32, edges, any::<bool>(), 0..30_u64, data), 1..60)
}

proptest! {
    #[test]
    fn whatever_is_offered_what_may_be_in_use_fits(steps in steps()) {
        let problem = problem(1.0, 1);
        let config = HostConfig { lease_ns: 40 * MS, ..config(&problem, 0, 1) };
        let mut host = Host::new(config, 0).unwrap();
        let mut others = vec![Anyone::default(); 4];
        let mut now = 0;
        for (from, edges, arrived, wait, data) in steps {
            let sent = now;
            now += wait * MS + 1;
            host.handle(now, Input::Tick).unwrap();
            for (ends, newer, numbers) in data {
                let stamp = ((sent >> 16) as u16).wrapping_add_signed(newer);
                host.handle(now, Input::Carried { from, ends, stamp, numbers }).unwrap();
            }
            let other = &mut others[from as usize];
            if arrived {
                other.take_last(config.lease_ns, now);
            }
            let offer = |(&(from, to), &(value, marginal, elasticity)): (&(u32, u32), &(f32, f32, f32))| {
                let held = other.grants.get(&(from, to)).map_or(0.0, |grant| *grant as f32);
                Offer { from, to, value, inverse: value, marginal, elasticity, held }
            };
            // What it does not offer any more it does not use.
            // Rounds in any order, which begin again.
            let round = Round((now / MS * 12_345) as u16);
            let header = Header { incarnation: 1, heard: 1, sequence: now, seen: other.taken, round, ..Header::default() };
            let offers = edges.iter().map(offer).collect();
            let bytes = Message::Offers(header, offers).encode();
            other.grants.retain(|ends, _| edges.contains_key(ends));
            other.since.retain(|ends, _| edges.contains_key(ends));
            edges.keys().for_each(|ends| _ = other.since.entry(*ends).or_insert(now));
            host.handle(now, Input::Packet { from, bytes: &bytes }).unwrap();
            loop {
                match host.poll(now) {
                    Output::Send { to, bytes } => {
                        let Ok(Message::Answers(header, entries)) = Message::decode(&bytes) else { continue };
                        let grants = entries.iter().map(|entry| ((entry.from, entry.to), f64::from(entry.grant)));
                        others[to as usize].answers.push((header.sequence, header.seen, grants.collect()));
                    }
                    Output::Rates => {}
                    Output::Timeout(_) => break,
                }
            }
            let used: f64 = others.iter().map(|other| other.used(config.lease_ns, now)).sum();
            prop_assert!(used <= config.completion_capacity, "{used} of {}", config.completion_capacity);
        }
    }

    /// S5.27: what stands in a header of data is as exact as eight bytes allow, and nothing else is taken for it.
    #[test]
    fn s5_27_numbers_of_data_are_read_back(
        offer in prop::option::of((number(), number())), price in prop::option::of(number()), sign in any::<bool>(), any in any::<[u8; 8]>(),
    ) {
        let price = price.map(|price| if sign { -price } else { price });
        let read = Carried::decode(7, Carried { stamp: 7, offer, price }.encode()).unwrap();
        let near = |one: f32, other: f32| (one - other).abs() <= one.abs() / 256.0;
        prop_assert_eq!((read.stamp, read.offer.map(|offer| offer.0)), (7, offer.map(|offer| offer.0)));
        prop_assert!(offer.zip(read.offer).is_none_or(|(was, is)| near(was.1, is.1)), "{:?}", read);
        prop_assert!(price.zip(read.price).is_none_or(|(was, is)| near(was, is)), "{:?}", read);
        prop_assert_eq!(read.price.is_some(), price.is_some());
        if let Ok(read) = Carried::decode(7, any) {
            prop_assert_eq!(read.encode(), any);
        }
    }

    #[test]
    fn no_packet_ends_a_host_or_makes_a_rate_that_is_none(
        packets in prop::collection::vec((1..4_u32, 1..=2_u8, prop::collection::vec(any::<u8>(), 36..112), any::<bool>()), 1..40),
    ) {
        let problem = problem(1.0, 1);
        let mut host = Host::new(config(&problem, 0, 1), 0).unwrap();
        for at in 0..problem.applications {
            host.handle(0, Input::Join(application(&problem, 0, at))).unwrap();
        }
        let mut now = 0;
        for (from, kind, mut bytes, plain) in packets {
            now += MS / 2;
            let count = ((bytes.len() - 36) / if kind == 1 { 28 } else { 32 }).min(2) as u8;
            bytes.truncate(36 + usize::from(count) * if kind == 1 { 28 } else { 32 });
            bytes.splice(0..0, [kind, 2, 0, count]);
            if plain {
                bytes[4..40].fill(0);
                (bytes[7], bytes[11], bytes[23]) = (1, 1, from as u8);
            }
            host.handle(now, Input::Packet { from, bytes: &bytes }).unwrap();
            while !matches!(host.poll(now), Output::Timeout(_)) {}
            let rates = host.rates().iter().map(|rate| rate.1);
            prop_assert!(rates.clone().all(|rate| rate >= 0.0 && rate.is_finite()));
            prop_assert!(rates.sum::<f64>() <= problem.send_capacity[0] * (1.0 + 1e-9));
        }
    }
}

fn number() -> impl Strategy<Value = f32> {
    1e-20_f32..1e20
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        words in any::<[u32; 3]>(),
        longs in any::<[u64; 2]>(),
        flags in any::<[bool; 3]>(),
        round in any::<u16>(),
        numbers in prop::collection::btree_map(any::<(u32, u32)>(), any::<[bool; 5]>().prop_flat_map(|_| [number(), number(), number(), number(), number()]), 0..5),
        answers in any::<bool>(),
    ) {
        let [incarnation, heard, change] = words;
        let header = Header {
            incarnation: incarnation.max(1),
            heard: heard.max(u32::from(answers)),
            change,
            sequence: longs[0].max(1),
            seen: longs[1],
            rise: if answers { 1.5 } else { 0.0 },
            still: flags[0],
            alone: flags[1] && !answers,
            same: flags[2] && numbers.is_empty(),
            round: Round(round),
        };
        let message = if answers {
            let entries = numbers.iter().map(|(&(from, to), n)| Answered {
                from, to, price: -n[0], value: n[1], curvature: n[2], worth: n[3], edges: 7, grant: n[4],
            });
            Message::Answers(header, entries.collect())
        } else {
            let entries = numbers.iter().map(|(&(from, to), n)| Offer {
                from, to, value: n[0], inverse: n[1], marginal: n[2], elasticity: n[3], held: n[4],
            });
            Message::Offers(header, entries.collect())
        };
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn any_bytes_are_refused_or_encode_to_themselves(
        mut bytes in prop::collection::vec(any::<u8>(), 0..112),
        kind in 1..=2_u8,
        plain in any::<bool>(),
    ) {
        if let Some(first) = bytes.first_chunk_mut::<4>() {
            *first = [kind, 2, 0, first[3] % 3];
        }
        if plain && bytes.len() > 40 {
            // Past the header, which chance seldom gets right.
            bytes[4..40].fill(0);
            (bytes[7], bytes[11], bytes[23]) = (1, 1, 1);
        }
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }
}
