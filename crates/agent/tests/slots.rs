//! Rounds of two agents by WRITEs into slots, and what a mad peer may write there.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
#[path = "raw/mod.rs"]
mod raw;
mod suite;

use catchment_agent::peer::message::{Frame, Hello, PeerMessage, SLOTS_BYTES, Slots};
use catchment_agent::policy::Policy;
use catchment_agent::protocol::{By, Peer};
use catchment_agent::slot::{
    MOST_BYTES, SLOT_BYTES, Seen, SlotMemory, SlotName, SlotReader, encode,
};
use catchment_agent::{Agent, peers, rounds};
use catchment_conformance::{Options, Side, connected, eventually, wait_one};
use catchment_control::drum::{Header, Message as Round, Offer};
use catchment_provider_shm::{DEVICE, ShmProvider};
use catchment_verbs::{
    Access, Cq, Endpoint, Mr, Payload, Pd, Provider as _, Qp, QpInit, RemoteAddr, RtrAttr, RtsAttr,
    SendOp, SendWr,
};
use raw::{LEASE_MS, Raw, hello};
use ring::digest::{SHA256, digest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use suite::{SHM, open, peer, two_agents, two_agents_in};

const ROCE: [&str; 2] = [r#"{"roce": "127.0.0.1"}"#, r#"{"roce": "127.0.0.2"}"#];

/// A connection from one host to the other: something to agree on, each time that it comes.
fn connection(names: &[String; 2]) -> (Side, Side) {
    let options = Options::default();
    let [here, there] = [0, 1].map(|host: usize| (open(&names[host], "suite"), &options));
    connected(here, there)
}

/// What both agents say of how messages went: by WRITEs and by their session.
fn counts(names: &[String; 2]) -> [[u64; 2]; 2] {
    [0, 1].map(|host: usize| {
        let rounds = rounds(&names[host]).unwrap().unwrap();
        [rounds.written, rounds.sent]
    })
}

fn go_by_writes(names: &[String; 2]) {
    let before = counts(names);
    // One at a time: a message of more edges goes by the session.
    let mut pair = None;
    eventually("rounds by WRITEs of both", || {
        if pair.is_none() || rounds(&names[0]).unwrap().unwrap().still {
            pair = None;
            pair = Some(connection(names));
        }
        let now = counts(names);
        (0..2).all(|host| now[host][0] > before[host][0] + 2) && peer(names).by == Some(By::Write)
    });
    // What is agreed that way is in force.
    eventually("an agreement", || rounds(&names[0]).unwrap().unwrap().still);
}

fn written_and_again(kind: &str, devices: [&str; 2]) {
    let (agents, names) = two_agents(kind, devices, 20);
    go_by_writes(&names);
    for agent in &agents {
        let before = counts(&names);
        agent.break_slots();
        let _pair = connection(&names);
        eventually("rounds by the session meanwhile", || {
            let now = counts(&names);
            now[0][1] > before[0][1] || now[1][1] > before[1][1]
        });
        go_by_writes(&names);
    }
    assert!(peer(&names).connected, "nothing that was written ended the session");
}

/// S5.27: rounds go by WRITEs once both ends of their queue pair are connected; when it fails at either, by the
/// session, until there is another.
#[test]
fn s5_27_rounds_go_by_writes_and_by_the_session_where_these_fail() {
    written_and_again("slots", SHM);
}

#[test]
fn s5_27_rounds_go_by_writes_over_packets() {
    written_and_again("slots-roce", ROCE);
}

/// Where a policy wants no slots, all goes by sessions, and is agreed all the same.
#[test]
fn without_slots_rounds_go_by_the_session() {
    let members = serde_json::json!({ "between": { "slots": false } });
    let (_agents, names) = two_agents_in(&members, ("no-slots", SHM), (20, 1 << 40));
    let _pair = connection(&names);
    eventually("rounds of both", || counts(&names).iter().all(|[_, sent]| *sent > 2));
    eventually("an agreement", || rounds(&names[0]).unwrap().unwrap().still);
    assert!(counts(&names).iter().all(|[written, _]| *written == 0));
    assert_eq!(peer(&names).by, Some(By::Session));
}

/// A peer of a device of its own, with a session and slots.
struct Mad {
    raw: Raw,
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
    _pd: Arc<dyn Pd>,
    /// Of the agent.
    slots: Slots,
    epoch: u32,
    generation: u64,
}

const EPOCH: u32 = 7;
const NUMBER: u32 = 9;

impl Mad {
    fn join(agent: &Agent) -> Self {
        let context = ShmProvider::new().open(DEVICE).unwrap();
        let device = digest(&SHA256, &context.gid().0);
        let device = device.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let pd = context.alloc_pd().unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = pd.alloc_mr(SLOTS_BYTES as usize, access).unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let init = QpInit { max_inline_bytes: SLOT_BYTES as u32, ..QpInit::rc(&cq, 8, 0) };
        let mut qp = pd.create_qp(init).unwrap();
        let mut raw = Raw::greet(agent, Hello { device, ..hello(2, EPOCH) });
        let PeerMessage::Welcome(Hello { epoch, .. }) = raw.hear() else { panic!() };
        let (endpoint, rkey, addr) = (qp.endpoint().to_string(), mr.rkey(), mr.addr());
        let ours = Slots { number: NUMBER, endpoint, rkey, addr, bytes: SLOTS_BYTES };
        raw.send(&PeerMessage::Slots(ours).encode());
        let slots = loop {
            if let Frame::Message(PeerMessage::Slots(slots)) = raw.hear_any() {
                break slots;
            }
        };
        let remote: Endpoint = slots.endpoint.parse().unwrap();
        qp.connect(access, RtrAttr::new(remote), RtsAttr::default()).unwrap();
        raw.send(&PeerMessage::SlotsReady { number: slots.number }.encode());
        while raw.hear_any() != Frame::Message(PeerMessage::SlotsReady { number: NUMBER }) {}
        Self { raw, qp, cq, mr, _pd: pd, slots, epoch, generation: 0 }
    }

    /// Writes bytes at the end of the slot for offers.
    fn put(&mut self, bytes: &[u8]) {
        let addr = self.slots.addr + (SLOT_BYTES - bytes.len()) as u64;
        let op = SendOp::Write(RemoteAddr { addr, rkey: self.slots.rkey });
        self.qp.post_send(&[SendWr::new(1, op, Payload::Inline(bytes))]).unwrap();
        wait_one(&*self.cq).result.unwrap();
    }

    /// Writes a message as it should be.
    fn write(&mut self, message: &[u8]) {
        self.generation += 1;
        let name = SlotName::new(EPOCH, self.epoch, 0);
        let mut bytes = [0; SLOT_BYTES];
        let start = encode(name, self.generation, message, &mut bytes).unwrap();
        self.put(&bytes[start..]);
    }

    fn refusal(&mut self) -> String {
        loop {
            if let Frame::Message(PeerMessage::Refused { reason, .. }) = self.raw.hear_any() {
                return reason;
            }
        }
    }

    /// Waits for answers in the slot for answers.
    fn answers(&self, reader: &mut SlotReader) -> Round {
        let (mut out, mut count) = ([0; MOST_BYTES], 0);
        eventually("an answer in the slot", || match reader.take(&Mapped(&self.mr), &mut out) {
            Seen::Message(bytes) => {
                count = bytes;
                true
            }
            Seen::Nothing | Seen::Torn => false,
        });
        Round::decode(&out[..count]).unwrap()
    }
}

/// The second slot of a region.
struct Mapped<'a>(&'a Arc<dyn Mr>);

impl SlotMemory for Mapped<'_> {
    fn load(&self, word: usize) -> u64 {
        let whole = self.0.region().whole();
        whole.load_u64(SLOT_BYTES + 8 * word, Ordering::Acquire).unwrap()
    }

    fn load_commit(&self) -> u64 {
        self.load(SLOT_BYTES / 8 - 1)
    }
}

/// An agent of this process with an application, and the number of that.
fn target(test: &str) -> (Agent, String, Side, u32) {
    let name = format!("{test}-{}", std::process::id());
    let policy = serde_json::json!({
        "name": name, "applications": [{ "name": "suite" }], "between": {
            "listen": "127.0.0.1:0", "host": 1, "lease_ms": LEASE_MS,
            "send_bytes_per_s": 1e9 as u64, "completion_bytes_per_s": 1e9 as u64
        }
    });
    let agent = Agent::start(Policy::parse(&policy.to_string()).unwrap()).unwrap();
    let side = Side::new(open(&name, "suite"), &Options::default());
    let mut raw = Raw::welcome(&agent, hello(3, 1));
    raw.send(&PeerMessage::Where { queue_pairs: vec![side.qp.endpoint().qpn] }.encode());
    let PeerMessage::There { queue_pairs } = raw.hear() else { panic!() };
    (agent, name, side, queue_pairs[0].1.unwrap())
}

fn known(agent: &str) -> Peer {
    peers(agent).unwrap().into_iter().find(|peer| peer.host == Some(2)).unwrap()
}

fn offers(incarnation: u32, sequence: u64, seen: u64, offer: Offer) -> Vec<u8> {
    let header = Header { incarnation, sequence, seen, ..Header::default() };
    Round::Offers(header, vec![offer]).encode()
}

fn offer(to: u32) -> Offer {
    let (from, one) = (1, 1.0);
    Offer { from, to, value: one, inverse: one, marginal: one, elasticity: one, held: 0.0 }
}

/// What is written is taken as what is sent, and answered by a WRITE; bytes that are no message are as one that was lost.
#[test]
fn what_is_written_is_answered_by_a_write_and_torn_slots_are_not_taken() {
    let (agent, name, _side, application) = target("answers-slots");
    let mut mad = Mad::join(&agent);
    let mut reader = SlotReader::new(SlotName::new(mad.epoch, EPOCH, 1));
    let mut seen = 0;
    for round in 1..6 {
        // Half of a message, what was of another life, and anything else, before each.
        let mut old = [0; SLOT_BYTES];
        let message = offers(EPOCH, 10 * round - 1, seen, offer(application));
        encode(SlotName::new(EPOCH - 1, mad.epoch, 0), 99, &message, &mut old).unwrap();
        mad.put(&old);
        mad.put(&[0xa5; SLOT_BYTES]);
        mad.put(&old[SLOT_BYTES - 24..]);
        mad.write(&offers(EPOCH, 10 * round, seen, offer(application)));
        // The answer before is told again until these offers, which say that it came, are there; if their round was answered
        // without them, they are told at first that it holds.
        let (header, answers) = loop {
            let Round::Answers(header, answers) = mad.answers(&mut reader) else { panic!() };
            assert_eq!(header.same, answers.is_empty());
            if header.seen != 10 * (round - 1) && !header.same {
                break (header, answers);
            }
        };
        assert_eq!((header.seen, answers[0].to), (10 * round, application));
        seen = header.sequence;
    }
    assert_eq!(known(&name).by, Some(By::Write));
    let rounds = rounds(&name).unwrap().unwrap();
    assert_eq!((rounds.refused, rounds.sent), (0, 0));
    assert!(rounds.written >= 5);
}

/// What a whole message in a slot may not be, and the reason that is told: that of what comes by a session.
#[test]
fn a_mad_peer_is_turned_away_for_what_it_writes() {
    let (agent, name, _side, application) = target("turns-away-slots");
    let good = offer(application);
    let of = |value| offers(EPOCH, 9, 0, Offer { value, ..good });
    let mut messages: Vec<(Vec<u8>, &str)> = Vec::new();
    for bad in [f32::NAN, f32::INFINITY, -1.0, 1e31, 0.0] {
        messages.push((of(bad), "a message of a round: value is out of range"));
    }
    messages.push((offers(EPOCH - 1, 9, 0, good), "a message of epoch 6 in a session of epoch 7"));
    messages.push((offers(EPOCH + 1, 9, 0, good), "a message of epoch 8 in a session of epoch 7"));
    messages.push((of(1.0)[..67].to_vec(), "a message of a round: 67 bytes do not hold"));
    messages.push((Vec::new(), "a message of a round: 0 bytes do not hold"));
    messages.push((vec![0xa5; MOST_BYTES], "a message of a round: kind of 165 is not known"));
    messages.push((PeerMessage::Goodbye {}.encode(), "a message of a round: kind of 123"));
    for (bytes, said) in messages {
        let mut mad = Mad::join(&agent);
        mad.write(&bytes);
        let reason = mad.refusal();
        assert!(reason.starts_with(said), "{reason} in place of {said}");
        eventually("the end of its session", || !known(&name).connected);
        assert!(known(&name).reason.contains(said), "{:?}", known(&name));
    }
    // And an honest one is heard, all the same.
    let mut mad = Mad::join(&agent);
    mad.write(&of(1.0));
    mad.answers(&mut SlotReader::new(SlotName::new(mad.epoch, EPOCH, 1)));
}

/// A peer whose queue pair for slots is gone gets its messages by the session.
#[test]
fn a_peer_whose_slots_are_gone_hears_by_the_session() {
    let (agent, name, _side, application) = target("slots-gone");
    let mut mad = Mad::join(&agent);
    mad.write(&offers(EPOCH, 10, 0, offer(application)));
    let mut reader = SlotReader::new(SlotName::new(mad.epoch, EPOCH, 1));
    let Round::Answers(header, _) = mad.answers(&mut reader) else { panic!() };
    mad.qp.modify(catchment_verbs::QpTransition::ToErr).unwrap();
    for round in 2.. {
        let offers = offers(EPOCH, 10 * round, header.sequence, offer(application));
        mad.raw.send(&offers);
        if matches!(mad.raw.hear_any(), Frame::Round(Round::Answers(..))) {
            break;
        }
    }
    assert_eq!(known(&name).by, Some(By::Session));
}
