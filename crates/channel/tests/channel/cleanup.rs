//! Nothing stays, whatever fails (S3.3, S3.14).
use super::driver::{self, Patience};
use super::{card, joined, patient, shape};
use catchment_channel::{Channel, ChannelError, Resources};
use catchment_probe::census::{Census, Change, Object};
use catchment_probe::load::scaled;
use catchment_transfer::WaitPolicy;
use catchment_verbs::Context;
use std::sync::Arc;

fn counted() -> ([Arc<dyn Context>; 2], [Arc<Census>; 2]) {
    let [(a, census_a), (b, census_b)] = crate::two_devices().map(Census::of);
    ([a, b], [census_a, census_b])
}

/// An object is released before those it depends on.
const ORDER: [Object; 7] =
    [Object::Qp, Object::Mr, Object::Mr, Object::Mr, Object::Cq, Object::Channel, Object::Pd];

fn destroyed(log: &[Change]) -> Vec<Object> {
    let gone = log.iter().filter_map(|change| match change {
        Change::Destroyed(object) => Some(*object),
        Change::Made(_) => None,
    });
    gone.collect()
}

#[test]
fn s3_14_an_orderly_end_goes_in_the_order_of_dependencies() {
    let (contexts, censuses) = counted();
    let [mut a, mut b] = joined(contexts, shape(4, 64).with_shared(100));
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut a, 0, 0, b"hello", &mut wait);
    drop(driver::take(&mut b, &mut wait));
    for (channel, census) in [(a, &censuses[0]), (b, &censuses[1])] {
        assert_eq!(census.total(), ORDER.len() as i64);
        channel.close().unwrap();
        assert_eq!(census.total(), 0);
        assert_eq!(destroyed(&census.take_log()), ORDER);
    }
}

/// Every step of connecting is made to fail, at either end, from the first object to RTS.
#[test]
fn s3_14_a_failure_at_any_step_leaks_nothing_and_harms_nobody_else() {
    for failing in [0, 1] {
        for step in 1.. {
            let (contexts, censuses) = counted();
            censuses[failing].fail(step);
            let all = up(contexts);
            let log = censuses[failing].take_log();
            if all.is_ok() {
                // The last step is closing, which goes on whatever is refused.
                assert_eq!(step, censuses[failing].steps());
                assert_eq!(step, ORDER.len() as u64 + 4);
                break;
            }
            let made = log.iter().filter(|change| matches!(change, Change::Made(_))).count();
            assert!(made as u64 >= (step - 1).min(ORDER.len() as u64));
            for census in &censuses {
                assert_eq!(census.total(), 0, "step {step} of end {failing}");
            }
            let mut gone = destroyed(&log);
            let mut wanted = ORDER.to_vec();
            wanted.retain(|object| gone.contains(object));
            // Fewer regions when one of them was refused.
            wanted.dedup();
            gone.dedup();
            assert_eq!(gone, wanted, "step {step} of end {failing}");
        }
    }
}

/// Connects and closes; returns the first error of connecting.
fn up(contexts: [Arc<dyn Context>; 2]) -> Result<(), ChannelError> {
    let [a, b] = contexts;
    let a = Resources::acquire(a, shape(2, 64))?;
    let b = match Resources::acquire(b, shape(2, 64)) {
        Ok(b) => b,
        Err(error) => {
            a.release().unwrap();
            return Err(error);
        }
    };
    let (card_a, card_b) = (card(&a), card(&b));
    match (Channel::connect(a, &card_b, patient()), Channel::connect(b, &card_a, patient())) {
        (Ok(a), Ok(b)) => {
            a.close()?;
            b.close()
        }
        (Err(error), Ok(other)) | (Ok(other), Err(error)) => {
            other.close().unwrap();
            Err(error)
        }
        (Err(error), Err(_)) => Err(error),
    }
}

#[test]
fn s3_3_nothing_is_left_after_many_connections() {
    let (contexts, censuses) = counted();
    for _ in 0..scaled(1_000) {
        let [a, b] = joined([0, 1].map(|n: usize| Arc::clone(&contexts[n])), shape(2, 64));
        a.close().unwrap();
        b.close().unwrap();
        for census in &censuses {
            assert_eq!(census.total(), 0);
            census.take_log();
        }
    }
}

/// A message that is still kept keeps its memory: the error names it, and it goes with the message.
#[test]
fn what_the_program_keeps_is_named_and_goes_later() {
    let (contexts, censuses) = counted();
    let [mut a, mut b] = joined(contexts, shape(4, 64));
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut a, 0, 0, b"kept", &mut wait);
    let block = driver::take(&mut b, &mut wait);
    let error = b.close().err().unwrap();
    assert!(matches!(error, ChannelError::StillUsed(_)));
    assert_eq!(error.to_string(), "still in use: registered memory (by 1)");
    assert_eq!(censuses[1].alive(Object::Mr), 1);
    assert_eq!(censuses[1].alive(Object::Qp), 0);
    drop(block);
    assert_eq!(censuses[1].total(), 0);
    a.close().unwrap();
}
