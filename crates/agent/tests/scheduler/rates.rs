//! What rates promise: no more than they give, no less while somebody waits, and what one leaves.
use super::{CHUNK, busy, busy_with, scheduler};
use catchment_agent::scheduler::Scheduler;
use std::time::Duration;

#[test]
fn who_has_a_rate_gets_what_it_gives_and_keeps_nobody_waiting() {
    let (mut scheduler, ids) = busy(&[1.0, 1.0, 1.0], u64::MAX, 10_000, 100_000);
    let chunk = u64::from(CHUNK);
    let serve = |scheduler: &mut Scheduler| {
        let before = ids.iter().map(|id| scheduler.served(*id).bytes).collect::<Vec<_>>();
        while scheduler.next_chunk().is_some() {}
        let after = ids.iter().map(|id| scheduler.served(*id).bytes);
        after.zip(before).map(|(after, before)| after - before).collect::<Vec<_>>()
    };
    // A rate of 0, one that is below a chunk in each span, and one above.
    let rates = [0.0, 1e6, 40e6];
    ids.iter().zip(rates).for_each(|(id, rate)| scheduler.set_rate(*id, rate));
    assert_eq!(serve(&mut scheduler), [0, 0, 0], "nothing is saved up at the start");
    assert_eq!(scheduler.next_refill().map(|time| time.as_nanos()), Some(25));
    let span = Duration::from_micros(500);
    let mut all = [0; 3];
    for spans in 1..=200_u32 {
        scheduler.refill(span);
        let served = serve(&mut scheduler);
        all.iter_mut().zip(served).for_each(|(sum, bytes)| *sum += bytes);
        for (bytes, rate) in all.iter().zip(rates) {
            let due = rate * (span * spans).as_secs_f64();
            assert!((*bytes as f64 - due).abs() <= chunk as f64, "{bytes} of {due}");
        }
    }
    // Who waited all the time has what 20 ms give beyond two chunks, or what a millisecond gives: nobody else was late.
    scheduler.refill(span * 1000);
    let served = serve(&mut scheduler);
    let late = [20_000 + 3 * chunk, 800_000 + 40_000 + chunk];
    assert!(served[1] <= late[0] && (800_000..=late[1]).contains(&served[2]), "{served:?}");
    // Another rate owes what was owed.
    scheduler.set_rate(ids[2], 1e3);
    assert_eq!(serve(&mut scheduler), [0, 0, 0]);
    // And is told from having nothing to send.
    let held = |scheduler: &Scheduler| scheduler.served(ids[2]).held_ns;
    let before = held(&scheduler);
    scheduler.refill(span);
    assert_eq!(held(&scheduler) - before, 500_000);
    scheduler.set_rate(ids[2], 1e12);
    scheduler.refill(span);
    let before = held(&scheduler);
    scheduler.refill(span);
    assert_eq!(held(&scheduler), before);
}

/// Who had nothing to send, for however short a time, has no more saved up than two chunks, or what a millisecond gives.
#[test]
fn who_did_not_wait_all_the_time_was_not_kept_waiting() {
    let mut scheduler = scheduler(u64::MAX, 64);
    let ids = [(); 2].map(|()| scheduler.add_application());
    scheduler.set_shares(&ids.map(|id| (id, 1.0)));
    let connections = ids.map(|id| scheduler.add_connection(id, 1 << 20));
    let (rate, pause) = (40e6, Duration::from_millis(15));
    ids.iter().for_each(|id| scheduler.set_rate(*id, rate));
    let push = |scheduler: &mut Scheduler, at: usize| {
        (0..1000).for_each(|_| scheduler.push(connections[at], u64::from(CHUNK), true));
    };
    push(&mut scheduler, 0);
    scheduler.refill(pause);
    push(&mut scheduler, 1);
    scheduler.refill(pause);
    while scheduler.next_chunk().is_some() {}
    let [always, late] = ids.map(|id| scheduler.served(id).bytes as f64);
    let (all, chunk) = (2.0 * rate * pause.as_secs_f64(), f64::from(CHUNK));
    let most = rate * 1e-3;
    assert!(always > all / 2.0 && always <= all / 2.0 + most + chunk, "{always} of {all}");
    assert!(late <= most + chunk, "{late} is more than {most}");
}

/// What one leaves goes to those of its pool who wait by their shares, however long their requests are.
#[test]
fn what_one_of_a_pool_leaves_is_the_others_by_their_shares() {
    let shares: Vec<f64> = (0..24).map(|at| f64::from(1 << (at % 4))).collect();
    let lengths = [8, 64, 600, 2000, 5000, 40_000];
    let bytes: Vec<u64> = (0..24).map(|at| lengths[at / 4]).collect();
    let (mut scheduler, ids) = busy_with(&shares, scheduler(u64::MAX, 100), 400_000, &bytes);
    let idle = scheduler.add_application();
    let all: f64 = shares.iter().sum();
    // As many bytes a second for each share; one leaves a fiftieth of all.
    let (unit, left) = (2e6, 0.02 * 2e6 * all);
    ids.iter().zip(&shares).for_each(|(id, share)| scheduler.set_rate(*id, unit * share));
    scheduler.set_rate(idle, left);
    ids.iter().chain([&idle]).for_each(|id| scheduler.set_pool(*id, idle));
    let mut spans = |count: u32| {
        let span = Duration::from_micros(20);
        for _ in 0..count {
            scheduler.refill(span);
            while scheduler.next_chunk().is_some() {}
        }
        let served = ids.iter().map(|id| scheduler.served(*id));
        assert!(served.clone().all(|served| served.emptied == 0));
        (served.map(|served| served.cost_bytes as f64).collect::<Vec<_>>(), span * count)
    };
    let (before, _) = spans(1000);
    let (after, time) = spans(10_000);
    for at in 0..24 {
        let due = (unit + left / all) * shares[at] * time.as_secs_f64();
        let got = after[at] - before[at];
        let within = 0.002 * due + 2.0 * f64::from(CHUNK);
        assert!((got - due).abs() < within, "{at}: {got} of {due} ({})", got / due);
    }
}

/// What one cannot save up is served to the other of its pool, and no more than both rates give.
#[test]
fn what_one_of_a_pool_leaves_is_the_others() {
    let chunk = u64::from(CHUNK);
    let (mut scheduler, ids) = busy(&[1.0, 1.0, 1.0], u64::MAX, 10_000, chunk);
    let idle = scheduler.add_application();
    let (rate, span) = (1e6, Duration::from_micros(500));
    let [first, second, alone] = [ids[0], ids[1], ids[2]];
    [first, second, alone, idle].iter().for_each(|id| scheduler.set_rate(*id, rate));
    [first, second, idle].iter().for_each(|id| scheduler.set_pool(*id, idle));
    scheduler.set_pool(alone, alone);
    let spans = |scheduler: &mut Scheduler, count: u32| {
        for _ in 0..count {
            scheduler.refill(span);
            while scheduler.next_chunk().is_some() {}
        }
        let served = [first, second, alone].map(|id| scheduler.served(id).bytes as f64);
        (served, rate * (span * count).as_secs_f64())
    };
    // Until the idle one has saved up what it may.
    let (before, _) = spans(&mut scheduler, 20);
    let (after, due) = spans(&mut scheduler, 400);
    let got = |at: usize| after[at] - before[at];
    let near = |bytes: f64, due: f64| (bytes - due).abs() <= 2.0 * chunk as f64;
    assert!(near(got(0), 1.5 * due) && near(got(1), 1.5 * due), "{} {}", got(0), got(1));
    assert!(near(got(2), due), "{}: nobody leaves it anything", got(2));
    // It is waited for as briefly as what is left allows.
    scheduler.set_rate(first, 0.0);
    scheduler.set_rate(second, 0.0);
    scheduler.set_rate(alone, 0.0);
    spans(&mut scheduler, 1);
    let wait = scheduler.next_refill().expect("what is left grows");
    assert!(wait.as_secs_f64() <= (chunk + 1) as f64 / rate, "{wait:?}");
    // Who has left gives nothing.
    scheduler.remove_application(idle);
    let (before, _) = spans(&mut scheduler, 1);
    assert_eq!(spans(&mut scheduler, 100).0, before);
    // Nor does the next one with its number, which sends to other hosts.
    let newcomer = scheduler.add_application();
    assert_eq!(newcomer, idle);
    scheduler.set_rate(newcomer, rate);
    scheduler.set_pool(newcomer, newcomer);
    assert_eq!(spans(&mut scheduler, 100).0, before);
}

/// An application has no more than the most that it may have, whatever others leave; the rest is theirs. Without that, and once it
/// is gone, it has its share.
#[test]
fn who_may_have_so_much_gets_that_and_others_the_rest() {
    let (mut scheduler, ids) = busy(&[1.0, 1.0], u64::MAX, 100_000, 10_000);
    let chunk = u64::from(CHUNK);
    assert!(!scheduler.has_most());
    scheduler.set_most(ids[0], Some(10e6));
    assert!(scheduler.has_most());
    let span = Duration::from_micros(500);
    let serve = |scheduler: &mut Scheduler, chunks: usize| {
        let before = ids.iter().map(|id| scheduler.served(*id).bytes).collect::<Vec<_>>();
        for _ in 0..chunks {
            let Some(chunk) = scheduler.next_chunk() else { break };
            scheduler.done(chunk.connection, chunk.bytes);
        }
        let after = ids.iter().map(|id| scheduler.served(*id).bytes);
        after.zip(before).map(|(after, before)| after - before).collect::<Vec<_>>()
    };
    let burst = 100_000.0;
    let (mut first, mut second) = (0, 0);
    for spans in 1..=100_u32 {
        scheduler.refill(span);
        let served = serve(&mut scheduler, 40);
        (first, second) = (first + served[0], second + served[1]);
        let due = 10e6 * (span * spans).as_secs_f64() + burst;
        assert!(first as f64 <= due + chunk as f64, "{first} of {due}");
    }
    let due = 10e6 * (span * 100).as_secs_f64();
    assert!(first as f64 >= due - chunk as f64, "{first} of {due}");
    assert!(second > 100 * 20 * chunk, "{second}");
    // Nobody else wants anything: it waits all the same, and says for how long.
    scheduler.remove_application(ids[1]);
    let alone = scheduler.served(ids[0]).bytes;
    while scheduler.next_chunk().is_some() {}
    assert!(scheduler.served(ids[0]).bytes - alone <= 100_000 + chunk);
    let next = scheduler.next_refill().unwrap();
    scheduler.refill(next + Duration::from_nanos(1));
    assert!(scheduler.next_chunk().is_some());
    scheduler.set_most(ids[0], None);
    assert!(!scheduler.has_most() && scheduler.next_chunk().is_some());
}
