//! A peer that is killed: the end that waits for it gets an error.
use super::suite::*;
use super::*;
use catchment_probe::child::{Child, hear, role, say};

const SHAPE: Shape = Shape { blocks: 4, payload_bytes: 64 };

/// Starts the other end of the connection in a process of its own: `sender` or `receiver`.
fn peer(end: &str, protocol: Protocol) -> Child {
    Child::start("mechanism::death::peer_process", &format!("{end} {}", protocol.name()))
}

/// Connects our port with the peer's.
fn connect(port: &mut Port, peer: &mut Child) -> Offer {
    let offer: Offer = peer.says("offer ").parse().unwrap();
    peer.tell(&port.offer().to_string());
    peer.says("connected");
    port.connect(&offer).unwrap();
    peer.tell("make your end");
    peer.says("ready");
    offer
}

/// Not a test by itself: one end of a mechanism, in a process that gets killed.
#[test]
fn peer_process() {
    let Some(role) = role() else { return };
    let (end, name) = role.split_once(' ').unwrap();
    let protocol = Protocol::ALL.into_iter().find(|one| one.name() == name).unwrap();
    protocol.with(SHAPE, Run { is_sender: end == "sender" });
}

struct Run {
    is_sender: bool,
}

impl Visit for Run {
    type Out = ();

    fn visit<M: Mechanism>(self, mechanism: M) {
        let is_sender = self.is_sender;
        let needs = match is_sender {
            true => mechanism.sender_needs().unwrap(),
            false => mechanism.receiver_needs().unwrap(),
        };
        let [_, ours] = two_hosts();
        let mut port = open(&ours, &needs);
        say(&format!("offer {}", port.offer()));
        let peer: Offer = hear().parse().unwrap();
        port.connect(&peer).unwrap();
        say("connected");
        hear();
        let mut wait = Patience::new(WaitPolicy::Yield);
        if is_sender {
            let mut sender = mechanism.sender(port, &peer).unwrap();
            say("ready");
            hear();
            for packet in 0..2 {
                send(&mut sender, 0, packet, &[packet as u8; 64], &mut wait);
            }
            loop {
                sender.progress().unwrap();
                std::thread::yield_now();
            }
        }
        let mut receiver = mechanism.receiver(port, &peer).unwrap();
        say("ready");
        hear();
        drop(take(&mut receiver, &mut wait));
        let _kept = take(&mut receiver, &mut wait);
        say("holding");
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_sender_notices_that_its_receiver_was_killed() {
    struct Killing(Protocol);
    impl Visit for Killing {
        type Out = ();

        fn visit<M: Mechanism>(self, mechanism: M) {
            let name = self.0.name();
            let mut peer = peer("receiver", self.0);
            let [ours, _] = two_hosts();
            let mut port = open(&ours, &mechanism.sender_needs().unwrap());
            let offer = connect(&mut port, &mut peer);
            let mut sender = mechanism.sender(port, &offer).unwrap();
            peer.tell("use it");
            let mut wait = Patience::new(WaitPolicy::Yield);
            for packet in 0..2 {
                send(&mut sender, 0, packet, &[7; 64], &mut wait);
            }
            std::thread::scope(|scope| {
                let holding = scope.spawn(|| peer.says("holding"));
                while !holding.is_finished() {
                    sender.progress().unwrap();
                    std::thread::yield_now();
                }
            });
            peer.kill();
            // Commits may succeed until then.
            let mut packet = 2;
            failure(|| send_if_free(&mut sender, 64, &mut packet));
            // And it stays an error.
            assert!(sender.claim(0, 64).is_err(), "{name}");
        }
    }
    protocols().for_each(|protocol| protocol.with(SHAPE, Killing(protocol)));
}

/// A receiver of status bytes does not know its sender, by design: that is for the layer above. Over
/// a network a death is noticed only by sending: releasing a block does.
#[test]
fn a_receiver_notices_that_its_sender_was_killed() {
    struct Killing(Protocol);
    impl Visit for Killing {
        type Out = ();

        fn visit<M: Mechanism>(self, mechanism: M) {
            let name = self.0.name();
            let mut peer = peer("sender", self.0);
            let [ours, _] = two_hosts();
            let mut port = open(&ours, &mechanism.receiver_needs().unwrap());
            let offer = connect(&mut port, &mut peer);
            let mut receiver = mechanism.receiver(port, &offer).unwrap();
            peer.tell("use it");
            let mut wait = Patience::new(WaitPolicy::Yield);
            let first = take(&mut receiver, &mut wait);
            drop(take(&mut receiver, &mut wait));
            peer.kill();
            assert_eq!(first.payload().to_vec(), [0; 64], "what came is there");
            if name.starts_with("sb") {
                return;
            }
            let kept = crate::context().caps().direct.then_some(first);
            failure(|| receiver.take().map(drop));
            if let Some(kept) = kept {
                assert_eq!(kept.payload().to_vec(), [0; 64], "it stays there");
            }
            assert!(receiver.take().is_err(), "{name}: and it stays an error");
        }
    }
    protocols().for_each(|protocol| protocol.with(SHAPE, Killing(protocol)));
}
