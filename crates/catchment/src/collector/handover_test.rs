//! Not in the file itself, which the model checker's tests include.
use super::handover::Parked;
use super::primitives::AtomicCell;

#[test]
fn the_value_is_in_one_place() {
    let parked = Parked::new(Box::new(7));
    let value = parked.take().unwrap();
    assert!(parked.take().is_none());
    assert!(parked.park(value, || false).is_none());
    let value = parked.take().unwrap();
    assert_eq!(parked.park(value, || true).as_deref(), Some(&7));
}

#[test]
fn exchanging_takes_no_lock() {
    assert!(AtomicCell::<Option<Box<u8>>>::is_lock_free());
}
