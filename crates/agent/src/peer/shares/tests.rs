//! What two agents say to each other of connections that share.
use super::super::Make;
use super::*;
use std::sync::mpsc::channel;

const HOST: u32 = 7;
const OURS: u32 = 20;
const THEIRS: u32 = 30;
const AT: Local = Local { key: 1, queue_pair: 0, qpn: OURS, life: 1 };

fn with_host() -> Shares {
    let mut shares = Shares::new(1, 8, 20, false);
    shares.opened(HOST);
    shares
}

/// Whether this is among what is said to the host now.
fn says(shares: &mut Shares, what: &PeerMessage) -> bool {
    let said = |action: &Action| matches!(action, Action::Say(HOST, message) if message.encode() == what.encode());
    actions(shares).iter().any(said)
}

/// With a connection that shares: the peer asked first.
fn sharing() -> Shares {
    let mut shares = with_host();
    shares.heard_share(HOST, THEIRS, OURS, Some(AT));
    let (reply, answer) = channel();
    shares.share(Instant::now(), AT, (Some(HOST), THEIRS), reply);
    assert_eq!(answer.recv().unwrap(), Some(HOST));
    shares
}

fn actions(shares: &mut Shares) -> Vec<Action> {
    std::iter::from_fn(|| shares.next()).collect()
}

#[test]
fn a_peer_that_parts_is_obeyed_each_time_that_it_says_so() {
    let mut shares = sharing();
    for _ in 0..2 {
        actions(&mut shares);
        shares.heard_apart(HOST, THEIRS, OURS, false);
        let told = actions(&mut shares);
        let parts = |action: &Action| matches!(action, Action::Tell(Verdict::Part(_)));
        assert!(told.iter().any(parts), "the engine may have known of nothing to part before");
    }
}

#[test]
fn a_host_that_was_given_up_and_comes_back_shares_nothing_of_before() {
    let mut shares = sharing();
    shares.forget(HOST);
    let told = actions(&mut shares);
    let fails = |action: &Action| matches!(action, Action::Tell(Verdict::Fail(1, 0)));
    assert!(told.iter().any(fails));
    shares.opened(HOST);
    shares.heard_share(HOST, THEIRS, OURS, Some(AT));
    let no = PeerMessage::Shared { queue_pair: OURS, to: THEIRS, yes: false };
    assert!(says(&mut shares, &no), "the end here has failed");
}

#[test]
fn a_yes_that_comes_when_the_question_was_given_up_is_answered() {
    let mut shares = with_host();
    let (reply, answer) = channel();
    let now = Instant::now();
    shares.share(now, AT, (Some(HOST), THEIRS), reply);
    shares.expire(now + ANSWER);
    assert_eq!(answer.recv().unwrap(), None);
    actions(&mut shares);
    shares.heard_shared(HOST, THEIRS, OURS, true);
    let apart = PeerMessage::Apart { queue_pair: OURS, to: THEIRS, answer: true };
    assert!(says(&mut shares, &apart));
}

/// A connection that was reset and is connected again: what its peer says of the life before may still come.
#[test]
fn what_a_peer_says_of_the_life_before_refuses_no_question() {
    let mut shares = with_host();
    let (reply, answer) = channel();
    shares.share(Instant::now(), AT, (Some(HOST), THEIRS), reply);
    shares.heard_apart(HOST, THEIRS, OURS, true);
    shares.heard_alone(HOST, THEIRS, OURS);
    assert!(answer.try_recv().is_err(), "the question is not answered yet");
    shares.heard_shared(HOST, THEIRS, OURS, true);
    assert_eq!(answer.recv().unwrap(), Some(HOST));
}

/// Both ask; the peer, which says yes here, gives its own question up.
#[test]
fn who_shares_with_a_peer_that_does_not_is_on_its_own() {
    let mut shares = with_host();
    let (reply, answer) = channel();
    shares.share(Instant::now(), AT, (Some(HOST), THEIRS), reply);
    shares.heard_share(HOST, THEIRS, OURS, Some(AT));
    assert_eq!(answer.recv().unwrap(), Some(HOST));
    actions(&mut shares);
    shares.heard_shared(HOST, THEIRS, OURS, false);
    let told = actions(&mut shares);
    let parts = |action: &Action| matches!(action, Action::Tell(Verdict::NotShared(AT)));
    assert!(told.iter().any(parts));
    assert!(!told.iter().any(|action| matches!(action, Action::Tell(Verdict::Fail(..)))));
    shares.drained(OURS, AT.life);
    shares.receives(OURS, AT.life);
    shares.posted(OURS, AT.life);
    let sends = |action: &Action| matches!(action, Action::Make(Make::Send(AT)));
    assert!(actions(&mut shares).iter().any(sends), "its peer says nothing more");
}

/// The peer's application posts before the one here has connected its end.
#[test]
fn who_is_asked_for_a_key_before_the_application_connects_answers_then() {
    let mut shares = with_host();
    shares.heard_share(HOST, THEIRS, OURS, Some(AT));
    actions(&mut shares);
    (0..40).for_each(|rkey| shares.heard_key(HOST, THEIRS, OURS, rkey % 20));
    assert!(actions(&mut shares).is_empty(), "nothing is refused, nothing is given");
    let (reply, answer) = channel();
    shares.share(Instant::now(), AT, (Some(HOST), THEIRS), reply);
    assert_eq!(answer.recv().unwrap(), Some(HOST));
    let asks = |action: &Action| matches!(action, Action::Tell(Verdict::KeyAsked { at: AT, .. }));
    assert_eq!(actions(&mut shares).iter().filter(|action| asks(action)).count(), MOST_KEYS);
}

/// The end here stops sharing; the peer, which had only reserved its own, lets it go and then connects it: it does not
/// share, or it would wait for an end that sends over its own queue pair.
#[test]
fn who_stops_sharing_says_no_to_a_peer_that_is_done_with_that() {
    let mut shares = with_host();
    let (reply, answer) = channel();
    shares.share(Instant::now(), AT, (Some(HOST), THEIRS), reply);
    shares.heard_shared(HOST, THEIRS, OURS, true);
    assert_eq!(answer.recv().unwrap(), Some(HOST));
    shares.receives(OURS, AT.life);
    shares.heard_apart(HOST, THEIRS, OURS, true);
    shares.heard_alone(HOST, THEIRS, OURS);
    actions(&mut shares);
    shares.heard_share(HOST, THEIRS, OURS, Some(AT));
    let no = PeerMessage::Shared { queue_pair: OURS, to: THEIRS, yes: false };
    assert!(says(&mut shares, &no));
    shares.posted(OURS, AT.life);
    let sends = |action: &Action| matches!(action, Action::Make(Make::Send(AT)));
    assert!(actions(&mut shares).iter().any(sends));
}
