//! READs and WRITEs of what both ends share.
use super::driver::{self, Patience};
use super::{card, joined, pair, patient, shape};
use catchment_channel::{Channel, EndError, OperationError, Resources, Ticket};
use catchment_probe::random::Random;
use catchment_transfer::WaitPolicy;
use catchment_verbs::{Access, QpState, QpTransition, WcStatus};
use std::time::{Duration, Instant};

const SHARED: u32 = 1 << 16;

fn until_done(channel: &mut Channel, ticket: Ticket) -> Result<(), EndError> {
    let start = Instant::now();
    while !channel.is_done(ticket)? {
        assert!(start.elapsed() < Duration::from_secs(30), "not done");
        std::thread::yield_now();
    }
    Ok(())
}

#[test]
fn writes_and_reads_beside_messages() {
    let [mut a, mut b] = pair(shape(4, 256).with_shared(SHARED));
    let mut random = Random::new(7);
    let mut wait = Patience::new(WaitPolicy::Yield);
    for round in 0..50 {
        let bytes = 1 + random.below(4000) as u32;
        let at = random.below(u64::from(SHARED - bytes));
        let mut data = vec![0; bytes as usize];
        random.fill(&mut data);
        a.operations().scratch().write_at(100, &data).unwrap();
        let written = a.write(100, at, bytes).unwrap();
        // In order behind the WRITE: when the message arrives, the bytes have.
        driver::send(&mut a, 0, round, b"look", &mut wait);
        let block = driver::take(&mut b, &mut wait);
        assert_eq!(block.tag().packet, round);
        let seen = b.operations().shared().subslice(at as usize, bytes as usize).unwrap();
        assert_eq!(seen.to_vec(), data);
        until_done(&mut a, written).unwrap();
        let read = a.read(at, 5000, bytes).unwrap();
        until_done(&mut a, read).unwrap();
        assert_eq!(a.operations().scratch().subslice(5000, bytes as usize).unwrap().to_vec(), data);
    }
}

#[test]
fn bytes_outside_of_the_memory_are_refused_here() {
    let [mut a, _b] = pair(shape(2, 64).with_shared(1000));
    let available = match a.write(0, 0, SHARED) {
        Err(OperationError::Remote { available, .. }) => available,
        other => panic!("{other:?}"),
    };
    assert!((1000..SHARED.into()).contains(&available), "{available}");
    assert!(matches!(a.read(u64::MAX, 0, 1), Err(OperationError::Remote { .. })));
    assert!(matches!(a.read(0, SHARED as usize, 1), Err(OperationError::Local { .. })));
    let ticket = a.write(0, 0, 1000).unwrap();
    until_done(&mut a, ticket).unwrap();
}

#[test]
fn a_full_queue_is_reported_and_leaves_room_for_messages() {
    let mut shape = shape(4, 64).with_shared(1 << 20);
    shape.max_send_wr = 8;
    let [mut a, mut b] = pair(shape);
    let mut tickets = Vec::new();
    let refused = loop {
        match a.operations().write(0, 0, 1 << 20) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
        assert!(tickets.len() <= 8, "it takes more than it has room for");
    };
    assert_eq!(refused, OperationError::QueueFull);
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut a, 0, 0, b"still goes", &mut wait);
    drop(driver::take(&mut b, &mut wait));
    for ticket in tickets {
        until_done(&mut a, ticket).unwrap();
    }
}

/// Wrong key, wrong bounds: the peer's device refuses, and the session is over (S3.4).
#[test]
fn s3_4_a_wrong_key_or_bound_is_a_remote_access_error() {
    for lie in [
        |card: &mut catchment_channel::Card| card.memory.rkey ^= 0x55,
        |card: &mut catchment_channel::Card| card.memory.bytes += 1 << 20,
    ] {
        let shape = shape(2, 64).with_shared(64);
        let [a, b] = crate::two_devices().map(|c| Resources::acquire(c, shape).unwrap());
        let (card_a, mut card_b) = (card(&a), card(&b));
        lie(&mut card_b);
        let mut a = Channel::connect(a, &card_b, patient()).unwrap();
        let _b = Channel::connect(b, &card_a, patient()).unwrap();
        let ticket = a.write(0, card_b.memory.bytes - 2 * 128 - 1, 1).unwrap();
        let wanted = EndError::Completion(WcStatus::RemoteAccess);
        assert_eq!(until_done(&mut a, ticket), Err(wanted));
        assert_eq!(a.progress(), Err(wanted), "it stays so");
    }
}

/// SQD lets what was posted finish, and RTS goes on from there (S3.5).
#[test]
fn s3_5_a_drained_queue_pair_goes_on() {
    let [mut a, mut b] = joined(crate::two_devices(), shape(4, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut a, 0, 0, b"before", &mut wait);
    drop(driver::take(&mut b, &mut wait));
    let (drained, illegal) = a.operations().with_qp(|qp| {
        qp.modify(QpTransition::ToSqd).unwrap();
        (qp.state(), qp.modify(QpTransition::ToInit { access: Access::REMOTE_WRITE }).is_err())
    });
    assert_eq!((drained, illegal), (QpState::Sqd, true));
    a.operations().with_qp(|qp| qp.modify(QpTransition::ToRts(patient())).unwrap());
    driver::send(&mut a, 0, 1, b"after", &mut wait);
    assert_eq!(driver::take(&mut b, &mut wait).payload().to_vec(), b"after");
}
