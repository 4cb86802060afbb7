//! What the order of service promises, whatever applications ask and whenever the device is done.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod beside;
mod rates;

use catchment_agent::scheduler::{ApplicationId, Chunk, Limits, Scheduler};
use proptest::prelude::*;
use std::collections::VecDeque;

const CHUNK: u32 = 4096;

fn scheduler(window_bytes: u64, request_bytes: u32) -> Scheduler {
    Scheduler::new(Limits { chunk_bytes: CHUNK, window_bytes, request_bytes })
}

/// A scheduler whose applications each have one connection with so many requests of so many bytes.
fn busy(shares: &[f64], window: u64, requests: u64, bytes: u64) -> (Scheduler, Vec<ApplicationId>) {
    busy_with(shares, scheduler(window, 64), requests, &vec![bytes; shares.len()])
}

/// The same, with so many bytes for each application.
fn busy_with(
    shares: &[f64],
    mut scheduler: Scheduler,
    requests: u64,
    bytes: &[u64],
) -> (Scheduler, Vec<ApplicationId>) {
    let ids: Vec<_> = shares.iter().map(|_| scheduler.add_application()).collect();
    let rates: Vec<_> = ids.iter().copied().zip(shares.iter().copied()).collect();
    scheduler.set_shares(&rates);
    for (id, bytes) in ids.iter().zip(bytes) {
        let connection = scheduler.add_connection(*id, 1 << 20);
        (0..requests).for_each(|_| scheduler.push(connection, *bytes, true));
    }
    (scheduler, ids)
}

/// How far an application is from its share of what all have been served, in bytes.
fn distance(scheduler: &Scheduler, ids: &[ApplicationId], shares: &[f64], at: usize) -> f64 {
    let total: u64 = ids.iter().map(|id| scheduler.served(*id).cost_bytes).sum();
    let sum: f64 = shares.iter().sum();
    scheduler.served(ids[at]).cost_bytes as f64 - total as f64 * shares[at] / sum
}

/// The device is done with the first of these, or does nothing for a while.
fn end_or_look(scheduler: &mut Scheduler, flying: &mut VecDeque<Chunk>) {
    match flying.pop_front() {
        Some(Chunk { connection, bytes, .. }) => scheduler.done(connection, bytes),
        None => scheduler.look(),
    }
}

#[test]
fn three_to_one_is_three_chunks_to_one() {
    let (mut scheduler, ids) = busy(&[3.0, 1.0], u64::MAX, 1000, 100_000);
    for _ in 0..4000 {
        scheduler.next_chunk().unwrap();
    }
    let [a, b] = [0, 1].map(|at| scheduler.served(ids[at]).chunks);
    // Requests end with a short chunk, in both the same.
    assert!(a.abs_diff(3 * b) <= 4, "{a} to {b}");
}

/// S5.9: what each connection is served, bytes as they count, is within a twentieth of what its application's share gives
/// it, whatever its requests are.
#[test]
fn s5_9_connections_have_equal_parts_of_what_their_application_has() {
    let shares = [3.0, 1.0];
    let (mut scheduler, ids) = busy(&shares, u64::MAX, 0, 0);
    let sizes = [[32, 700, 4096, 1 << 20], [64, 64, 1 << 16, 100_000]];
    let connections: Vec<_> = (0..8)
        .map(|at| (scheduler.add_connection(ids[at / 4], 1 << 20), sizes[at / 4][at % 4]))
        .collect();
    let mut served = [0; 8];
    for (connection, bytes) in &connections {
        (0..2).for_each(|_| scheduler.push(*connection, *bytes, true));
    }
    for _ in 0..400_000 {
        let chunk = scheduler.next_chunk().unwrap();
        let at = connections.iter().position(|one| one.0 == chunk.connection).unwrap();
        served[at] += scheduler.cost_bytes(chunk.bytes);
        if chunk.last {
            scheduler.push(chunk.connection, connections[at].1, true);
        }
        scheduler.done(chunk.connection, chunk.bytes);
    }
    let total: u64 = served.iter().sum();
    for (at, served) in served.iter().enumerate() {
        let due = total as f64 * shares[at / 4] / 4.0 / 4.0;
        assert!((*served as f64 - due).abs() <= 0.05 * due, "connection {at}: {served} of {due}");
    }
}

#[test]
fn an_idle_application_gives_its_share_away_and_saves_nothing() {
    let (mut scheduler, ids) = busy(&[9.0, 1.0], u64::MAX, 1, 4096);
    let late = scheduler.add_connection(ids[1], 1 << 20);
    (0..1000).for_each(|_| scheduler.push(late, 4096, true));
    let first = scheduler.next_chunk().unwrap();
    assert!(first.last);
    for _ in 0..500 {
        scheduler.next_chunk().expect("the other one is served at once");
    }
    let again = scheduler.add_connection(ids[0], 1 << 20);
    (0..100).for_each(|_| scheduler.push(again, 4096, true));
    let before = scheduler.served(ids[0]).chunks;
    for _ in 0..20 {
        scheduler.next_chunk().unwrap();
    }
    let got = scheduler.served(ids[0]).chunks - before;
    assert!((17..=19).contains(&got), "nine in ten from now on, not more: {got} of 20");
}

#[test]
fn a_stuck_application_holds_up_nobody_and_is_served_again() {
    let (mut scheduler, ids) = busy(&[1.0, 1.0], 8 * u64::from(CHUNK), 1000, 4096);
    let mut of_second = VecDeque::new();
    let mut of_first = Vec::new();
    for _ in 0..1000 {
        let Some(chunk) = scheduler.next_chunk() else {
            end_or_look(&mut scheduler, &mut of_second);
            continue;
        };
        // The device never finishes what the first application asks.
        if chunk.connection.index() == 0 {
            of_first.push(chunk)
        } else {
            of_second.push_back(chunk)
        }
    }
    assert_eq!(of_first.len(), 4, "half of the window");
    assert!(scheduler.served(ids[1]).chunks > 150);
    for chunk in of_first {
        scheduler.done(chunk.connection, chunk.bytes);
    }
    let again = (0..10).any(|_| match (scheduler.next_chunk(), of_second.pop_front()) {
        (Some(chunk), _) => chunk.connection.index() == 0,
        (None, done) => {
            let done = done.expect("the device has nothing");
            scheduler.done(done.connection, done.bytes);
            false
        }
    });
    assert!(again, "it is served again");
}

/// One application is stuck, another dies with chunks in the device's hands: a third is served.
#[test]
fn what_a_dead_application_had_in_flight_holds_up_nobody() {
    let (mut scheduler, ids) = busy(&[1.0, 1.0], 8 * u64::from(CHUNK), 100, 4096);
    while scheduler.next_chunk().is_some() {}
    scheduler.remove_application(ids[1]);
    let late = scheduler.add_application();
    scheduler.set_shares(&[(ids[0], 1.0), (late, 1.0)]);
    let connection = scheduler.add_connection(late, 8);
    (0..10).for_each(|_| scheduler.push(connection, 4096, true));
    (0..2).for_each(|_| scheduler.look());
    for _ in 0..10 {
        let chunk = scheduler.next_chunk().expect("it is served although the first one is stuck");
        assert_eq!(chunk.connection, connection);
        scheduler.done(connection, chunk.bytes);
    }
}

/// Those who are stuck hold the whole window: others do not go on one chunk at a time for that.
#[test]
fn a_window_full_of_stuck_applications_leaves_others_theirs() {
    let (chunk, last) = (u64::from(CHUNK), 7);
    let mut shares = [1.0; 8];
    shares[last] = 7.0;
    let (mut scheduler, ids) = busy(&shares, 4 * chunk, 1000, chunk);
    let (mut of_last, mut most) = (VecDeque::new(), 0);
    for _ in 0..200 {
        let Some(one) = scheduler.next_chunk() else {
            end_or_look(&mut scheduler, &mut of_last);
            continue;
        };
        if one.connection.index() == last {
            of_last.push_back(one);
            most = most.max(of_last.len());
        }
    }
    assert!(scheduler.served(ids[last]).chunks > 50 && most >= 2, "{most} at once");
}

/// Who is alone for long keeps the device busier; once somebody else was there, whoever comes waits for a window.
#[test]
fn only_who_was_alone_for_long_has_more_than_a_window() {
    let chunk = u64::from(CHUNK);
    let (mut scheduler, ids) = busy(&[1.0], 4 * chunk, 1000, chunk);
    let mut flying: VecDeque<Chunk> = VecDeque::new();
    let most = |scheduler: &mut Scheduler, flying: &mut VecDeque<Chunk>| {
        let mut most = 0;
        for _ in 0..200 {
            match scheduler.next_chunk() {
                Some(chunk) => flying.push_back(chunk),
                None => {
                    let done = flying.pop_front().expect("it is never stuck");
                    scheduler.done(done.connection, done.bytes);
                }
            }
            most = most.max(flying.iter().map(|one| one.bytes).sum());
        }
        most
    };
    assert_eq!(most(&mut scheduler, &mut flying), 8 * 4 * chunk);
    let other = scheduler.add_application();
    scheduler.set_shares(&[(ids[0], 1.0), (other, 1.0)]);
    let connection = scheduler.add_connection(other, 1);
    for _ in 0..200 {
        if scheduler.waiting(other) == 0 {
            scheduler.push(connection, 8, true);
        }
        match scheduler.next_chunk() {
            Some(chunk) if chunk.connection == connection => scheduler.done(connection, 8),
            Some(chunk) => flying.push_back(chunk),
            None => {
                let done = flying.pop_front().expect("it is never stuck");
                scheduler.done(done.connection, done.bytes);
            }
        }
    }
    let left: u64 = flying.iter().map(|one| one.bytes).sum();
    assert!(left <= 4 * chunk, "{left} bytes are before whoever comes");
}

/// A short request costs what the device could move in its time: who sends only such gets no more of it.
#[test]
fn short_requests_cost_the_time_that_they_take() {
    let (mut scheduler, ids) =
        busy_with(&[1.0, 1.0], scheduler(u64::MAX, 1024), 10_000, &[32, 1 << 20]);
    for _ in 0..5000 {
        scheduler.next_chunk().unwrap();
    }
    let [short, long] = [0, 1].map(|at| scheduler.served(ids[at]));
    assert!(short.chunks.abs_diff(4 * long.chunks) <= 10, "{short:?} {long:?}");
    assert_eq!(short.bytes, 64 * short.chunks);
    assert_eq!(short.cost_bytes, 1024 * short.chunks);
}

/// Requests of one application that follow each other go together. However small a share is, it has several of the least
/// ones in its turn, where the turn of the largest is a chunk at most.
#[test]
fn the_least_share_has_several_requests_in_a_turn() {
    for (shares, least) in [([1.0, 1.0, 1.0], 10), ([1.0, 4.0, 6.0], 10), ([1.0, 8.0, 16.0], 4)] {
        let (mut scheduler, _) = busy(&shares, u64::MAX, 3000, 8);
        let mut next = || scheduler.next_chunk().unwrap().connection.index();
        let order: Vec<usize> = (0..4000).map(|_| next()).collect();
        let turns: Vec<&[usize]> = order.chunk_by(|one, next| one == next).collect();
        // Without those of the time before shares are known, and the one that was not over.
        let whole = &turns[3..turns.len() - 1];
        let mut of_least = whole.iter().filter(|turn| turn[0] == 0).map(|turn| turn.len());
        // Two turns follow each other where a round ends and the next one begins.
        assert!(of_least.all(|count| count + 1 >= least), "{shares:?}: {turns:?}");
    }
}

#[test]
fn a_request_that_cannot_be_split_is_served_whole_and_paid_for() {
    let mut scheduler = scheduler(u64::MAX, 64);
    let ids = [scheduler.add_application(), scheduler.add_application()];
    scheduler.set_shares(&[(ids[0], 1.0), (ids[1], 1.0)]);
    let [long, short] = ids.map(|id| scheduler.add_connection(id, 1 << 20));
    (0..3).for_each(|_| scheduler.push(long, 10 * u64::from(CHUNK), false));
    (0..100).for_each(|_| scheduler.push(short, CHUNK.into(), true));
    let order: Vec<usize> = std::iter::from_fn(|| scheduler.next_chunk())
        .take(33)
        .map(|c| c.connection.index())
        .collect();
    let longs: Vec<usize> = (0..order.len()).filter(|at| order[*at] == long.index()).collect();
    assert_eq!(longs.len(), 3);
    assert!((9..=11).contains(&longs[0]), "{longs:?}: all but a chunk is paid for before");
    assert!(longs.windows(2).all(|pair| (10..=12).contains(&(pair[1] - pair[0]))), "{longs:?}");
}

/// Without shares the order is that of arrival, whole requests, whoever asks; what cannot go lets others pass.
#[test]
fn without_shares_requests_are_served_as_they_came() {
    let mut scheduler = Scheduler::unlimited();
    let ids = [scheduler.add_application(), scheduler.add_application()];
    scheduler.set_shares(&[(ids[0], 9.0), (ids[1], 1.0)]);
    let [greedy, other] = ids.map(|id| scheduler.add_connection(id, 2));
    let again = scheduler.add_connection(ids[1], 100);
    for (connection, bytes) in
        [(greedy, 1 << 20), (other, 5), (greedy, 70_000), (again, 0), (greedy, 1), (other, 9)]
    {
        scheduler.push(connection, bytes, true);
    }
    let mut next =
        || scheduler.next_chunk().map(|chunk| (chunk.connection, chunk.bytes, chunk.last));
    assert_eq!(next(), Some((greedy, 1 << 20, true)));
    assert_eq!(next(), Some((other, 5, true)));
    assert_eq!(next(), Some((greedy, 70_000, true)));
    assert_eq!(next(), Some((again, 0, true)));
    assert_eq!(next(), Some((other, 9, true)), "the first one has no place");
    assert_eq!(next(), None);
    scheduler.done(greedy, 1 << 20);
    scheduler.pause(greedy);
    assert!(scheduler.next_chunk().is_none());
    scheduler.resume(greedy);
    let last = scheduler.next_chunk().unwrap();
    assert_eq!((last.connection, last.bytes), (greedy, 1));
    scheduler.push(again, 7, false);
    scheduler.remove_application(ids[1]);
    assert!(scheduler.next_chunk().is_none());
}

proptest! {
    /// With backlog, what requests cost follows the shares within a chunk for each application, at every moment, whatever
    /// their lengths, and also where the device has only a window of them in its hands.
    #[test]
    fn costs_follow_the_shares(
        applications in prop::collection::vec((1u32..100, 0u64..20_000), 2..6),
        request_bytes in 64u32..CHUNK,
        chunks in prop::option::of(1u64..64),
    ) {
        let (shares, bytes): (Vec<f64>, Vec<u64>) =
            applications.into_iter().map(|(share, bytes)| (f64::from(share), bytes)).unzip();
        let window = chunks.map_or(u64::MAX, |chunks| chunks * u64::from(CHUNK));
        let (mut scheduler, ids) = busy_with(&shares, scheduler(window, request_bytes), 3000, &bytes);
        let mut flying: VecDeque<Chunk> = VecDeque::new();
        for _ in 0..2000 {
            match scheduler.next_chunk() {
                Some(chunk) => {
                    flying.push_back(chunk);
                    // A turn is not cut short, and who has nothing there may always have a chunk.
                    let cost: u64 = flying.iter().map(|one| scheduler.cost_bytes(one.bytes)).sum();
                    let most = window.saturating_add((2 + ids.len() as u64) * u64::from(CHUNK));
                    prop_assert!(cost <= most, "{cost} in the device's hands");
                }
                None => while let Some(chunk) = flying.pop_front() {
                    scheduler.done(chunk.connection, chunk.bytes);
                },
            }
            prop_assume!(ids.iter().all(|id| scheduler.served(*id).emptied == 0));
            // Each is less than a chunk behind its rounds. Where a part of the window is less than a chunk, many rounds
            // follow at once for who may go, while others are at their bounds.
            let of = |most: fn(f64, f64) -> f64| shares.iter().copied().reduce(most).unwrap();
            let part = window as f64 * of(f64::min) / shares.iter().sum::<f64>();
            let rounds = if part < f64::from(CHUNK) { of(f64::max) / of(f64::min) } else { 0.0 };
            let bound = f64::from(CHUNK) * (ids.len() as f64 + rounds);
            for at in 0..ids.len() {
                let off = distance(&scheduler, &ids, &shares, at);
                prop_assert!(off.abs() <= bound, "{at} of {shares:?}: {off} beyond {bound}");
            }
        }
    }

    /// Who asks one request at a time is next, but for the second time in a round; and he gets no more than his share.
    #[test]
    fn one_request_at_a_time_is_next_and_gets_no_more_than_a_share(
        greedy in 1usize..20,
        request_bytes in 64u32..CHUNK,
        pause in 0u64..100,
    ) {
        let shares = vec![1.0; greedy];
        let (mut scheduler, ids) =
            busy_with(&shares, scheduler(u64::MAX, request_bytes), 3000, &vec![8; greedy]);
        let small = scheduler.add_application();
        scheduler.set_shares(&ids.iter().chain([&small]).map(|id| (*id, 1.0)).collect::<Vec<_>>());
        let connection = scheduler.add_connection(small, 1);
        // What is left of one round, and all of the next.
        let round = 2 * greedy as u64 * u64::from(2 * CHUNK);
        let (mut rested, mut is_next) = (0, false);
        for served in 0..2000 {
            if scheduler.waiting(small) == 0 && rested >= pause * u64::from(CHUNK) {
                scheduler.push(connection, 8, false);
                is_next = rested >= round;
            }
            let chunk = scheduler.next_chunk().unwrap();
            if chunk.connection == connection {
                (rested, is_next) = (0, false);
                scheduler.done(connection, 8);
            } else {
                prop_assert!(!is_next, "another one was before it");
                rested += scheduler.cost_bytes(chunk.bytes);
            }
            let total = ids.iter().chain([&small]).map(|id| scheduler.served(*id).cost_bytes);
            let due = total.sum::<u64>() as f64 / (greedy + 1) as f64;
            let got = scheduler.served(small).cost_bytes as f64;
            let bound = f64::from(CHUNK) * (greedy + 1) as f64;
            prop_assert!(got <= due + bound, "{got} of {due} after {served}");
        }
    }
}
