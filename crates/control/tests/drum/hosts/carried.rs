//! S5.27: what data carry of their edges takes the place of messages that are lost.
use super::network::{Event, MS, Network};
use super::problem;
use catchment_control::drum::{Answered, Header, Host, Input, Message, Offer};

/// What happens to offers of which the next answers depend.
#[derive(Clone, Copy)]
enum Offers {
    Arrive,
    AreLost,
    AreCarried,
}

/// When they arrive and where, from whom, and what they are.
type Found = ((u64, u64), usize, u32, Header, Vec<Offer>);

fn offers_under_way((key, (to, packet)): (&(u64, u64), &Event)) -> Option<Found> {
    let (from, bytes) = packet.as_ref()?;
    match Message::decode(bytes) {
        Ok(Message::Offers(header, all)) if !all.is_empty() => {
            Some((*key, *to, *from, header, all))
        }
        _ => None,
    }
}

/// Runs until somebody is about to hear offers, has that happen to them, and returns what is answered next, and how many
/// numbers were taken from data.
fn answers(offers: Offers) -> (Vec<Answered>, u64) {
    let problem = problem(1.0, 3);
    let mut network = Network::new(&problem, 1, 0.0);
    // Past the round that only exchanges loads.
    network.run(4 * MS);
    let (key, to, from, header, all) = loop {
        if let Some(found) = network.events.iter().find_map(offers_under_way) {
            break found;
        }
        network.step();
    };
    if !matches!(offers, Offers::Arrive) {
        network.events.remove(&key);
    }
    network.run(key.0);
    if matches!(offers, Offers::AreCarried) {
        for offer in &all {
            let carried = network.hosts[from as usize].carried(offer.from, (to as u32, offer.to));
            let carried = carried.expect("it sends there");
            assert_eq!(u64::from(carried.stamp), header.sequence >> 16 & 0xffff);
            let ends = (offer.from, offer.to);
            let input =
                Input::Carried { from, ends, stamp: carried.stamp, numbers: carried.encode() };
            // A second packet of the same round changes nothing.
            network.change(to, input.clone());
            network.change(to, input);
        }
    }
    let taken = network.hosts[to].counts().carried;
    let is_answer = |packet: &Option<(u32, Vec<u8>)>| {
        let (by, bytes) = packet.as_ref().filter(|packet| packet.0 == to as u32)?;
        match Message::decode(bytes) {
            Ok(Message::Answers(answered, all))
                if answered.sequence > header.sequence && !all.is_empty() =>
            {
                Some((*by, all))
            }
            _ => None,
        }
    };
    for _ in 0..1000 {
        let here = network.events.values().filter(|event| event.0 == from as usize);
        if let Some((_, all)) = here.filter_map(|event| is_answer(&event.1)).next() {
            return (all, taken);
        }
        network.step();
    }
    panic!("nobody answers");
}

#[test]
fn s5_27_data_carry_what_a_lost_offer_said() {
    let [arrived, lost, carried] =
        [Offers::Arrive, Offers::AreLost, Offers::AreCarried].map(answers);
    assert_eq!((arrived.1, lost.1), (0, 0));
    assert!(carried.1 > 0, "taken, once each");
    assert_eq!(carried.1, carried.0.len() as u64);
    let distance = |to: &[Answered]| -> f64 {
        let pairs = arrived.0.iter().zip(to);
        pairs.map(|(one, other)| f64::from((one.value - other.value).abs() / one.value.abs())).sum()
    };
    let (without, with) = (distance(&lost.0), distance(&carried.0));
    assert!(with < 0.05 * without, "{with} of {without}");
}

/// A host that is not known, an edge that is not, old numbers: nothing.
#[test]
fn s5_27_numbers_of_nobody_and_of_before_change_nothing() {
    let problem = problem(1.0, 3);
    let mut network = Network::new(&problem, 1, 0.0);
    network.run(4 * MS);
    let mut host: Host = network.hosts[0].clone();
    let numbers = [0x41, 0x20, 0, 0, 0x41, 0x20, 0x41, 0x20];
    let now = (network.now >> 16) as u16;
    let old = [now.wrapping_sub(1000); 36];
    let edges = (0..6).flat_map(|from| (0..6).map(move |to| (from, to)));
    for ((ends, stamp), from) in edges.zip(old).zip([1, 2, 3, 4, 5].into_iter().cycle()) {
        host.handle(network.now, Input::Carried { from, ends, stamp, numbers }).expect("a packet");
        for from in [0, 99] {
            let stamp = now.wrapping_add(1000);
            host.handle(network.now, Input::Carried { from, ends, stamp, numbers })
                .expect("a packet");
        }
    }
    assert_eq!(host.counts().carried, 0);
    let refused = host.counts().refused;
    let numbers = [0xff; 8];
    host.handle(network.now, Input::Carried { from: 1, ends: (0, 0), stamp: now, numbers })
        .expect("a packet");
    assert_eq!(host.counts().refused, refused + 1, "no number");
}
