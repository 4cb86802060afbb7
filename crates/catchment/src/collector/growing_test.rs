//! Not in the file itself, which the model checker's tests include.
use super::growing::growing_queue;

#[test]
fn entries_come_in_order_however_often_the_queue_grows() {
    let (mut producer, mut consumer) = growing_queue(1);
    let (mut pushed, mut popped) = (0, 0);
    for burst in [1, 2, 5, 40, 3, 200, 1] {
        for _ in 0..burst {
            producer.push(pushed);
            pushed += 1;
        }
        for _ in 0..burst - burst / 4 {
            assert_eq!(consumer.pop(), Some(popped));
            popped += 1;
        }
    }
    while let Some(entry) = consumer.pop() {
        assert_eq!(entry, popped);
        popped += 1;
    }
    assert_eq!(popped, pushed);
}

#[test]
fn a_queue_that_is_large_enough_does_not_grow() {
    let (mut producer, mut consumer) = growing_queue(4);
    let first = producer.capacity();
    for n in 0..100 {
        (0..4).for_each(|i| producer.push(n + i));
        (0..4).for_each(|_| assert!(consumer.pop().is_some()));
    }
    assert_eq!(producer.capacity(), first);
}
