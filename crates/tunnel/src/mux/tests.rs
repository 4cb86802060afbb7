//! Two multiplexers and the pipe between them: what a channel does, whole messages in order, late, until it breaks.
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LIMITS: Limits = Limits { streams: 8, window_bytes: 1000, peer_window_bytes: 1000 };
const MESSAGE_BYTES: usize = 300;

/// Chance from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// A connection as the programs at one end see it.
#[derive(Debug, Default)]
struct Seen {
    /// Which connection it is, by its first byte.
    to_send: u64,
    sent: u64,
    received: Vec<u8>,
    kept: usize,
    finished_here: bool,
    finished_there: bool,
    accepted: bool,
}

/// The byte at a place of what an end sends in a connection.
fn byte(side: Side, connection: u64, place: u64) -> u8 {
    let start: u64 = if side == Side::Client { 7 } else { 77 };
    (start + connection * 13 + place * 31 + place / 251) as u8
}

struct End {
    mux: Mux,
    side: Side,
    /// Open streams, and which connection each is.
    streams: BTreeMap<u32, (u64, Seen)>,
    ended: Vec<(u64, Seen, bool)>,
}

impl End {
    fn new(side: Side) -> Self {
        Self { mux: Mux::new(side, LIMITS), side, streams: BTreeMap::new(), ended: Vec::new() }
    }

    fn receive(
        &mut self,
        message: &[u8],
        connection_of: &mut BTreeMap<u32, u64>,
    ) -> Result<(), Fault> {
        let Self { mux, streams, ended, .. } = self;
        mux.receive(message, |_, stream, event| match event {
            Event::Opened => {
                let seen = Seen { to_send: 1500, ..Seen::default() };
                streams.insert(stream, (connection_of[&stream], seen));
            }
            Event::Accepted => streams.get_mut(&stream).unwrap().1.accepted = true,
            Event::Data(bytes) => {
                let seen = &mut streams.get_mut(&stream).unwrap().1;
                seen.received.extend(bytes);
                seen.kept += bytes.len();
                assert!(seen.kept <= 1000, "more than the window is kept");
            }
            Event::Finished => streams.get_mut(&stream).unwrap().1.finished_there = true,
            Event::Reset | Event::Refused(_) => {
                let (connection, seen) = streams.remove(&stream).unwrap();
                ended.push((connection, seen, true));
            }
            Event::Room => {}
        })
    }

    /// Does one thing that programs may do, by chance. `may_break`: connections break too.
    fn act(&mut self, chance: &mut Chance, may_break: bool) {
        let Some(index) = (chance.below(self.streams.len().max(1) as u64) as usize).into() else {
            return;
        };
        let Some((&stream, (_, seen))) = self.streams.iter_mut().nth(index) else { return };
        match chance.below(if may_break { 12 } else { 10 }) {
            0..=3 => {
                let taken = (chance.below(400) as usize).min(seen.kept);
                seen.kept -= taken;
                self.mux.consume(stream, taken);
            }
            4 if self.side == Side::Service && !seen.accepted => {
                seen.accepted = true;
                self.mux.accept(stream);
            }
            5..=9 => {
                if seen.sent == seen.to_send && !seen.finished_here && seen.accepted {
                    seen.finished_here = true;
                    self.mux.finish(stream);
                }
                if seen.finished_here && seen.finished_there && seen.kept == 0 {
                    self.mux.close(stream);
                    let (connection, seen) = self.streams.remove(&stream).unwrap();
                    self.ended.push((connection, seen, false));
                }
            }
            10 => {
                self.mux.reset(stream);
                let (connection, seen) = self.streams.remove(&stream).unwrap();
                self.ended.push((connection, seen, true));
            }
            _ => {}
        }
    }

    /// Puts a message together, as much as goes in.
    fn message(&mut self, chance: &mut Chance) -> Option<Vec<u8>> {
        let mut batch = Batch::new(MESSAGE_BYTES);
        if self.mux.fill(&mut batch) {
            for (&stream, (connection, seen)) in &mut self.streams {
                if self.side == Side::Service && !seen.accepted {
                    continue;
                }
                let most = (seen.to_send - seen.sent).min(1 + chance.below(200)) as usize;
                let space = batch.space(most.min(self.mux.sendable(stream)));
                for place in space.iter_mut() {
                    *place = byte(self.side, *connection, seen.sent);
                    seen.sent += 1;
                }
                let bytes = space.len();
                self.mux.sent(stream, bytes, &mut batch);
            }
        }
        (!batch.is_empty()).then(|| batch.bytes().to_vec())
    }
}

fn check_prefix(side_there: Side, connection: u64, seen: &Seen) {
    for (place, seen) in seen.received.iter().enumerate() {
        assert_eq!(
            *seen,
            byte(side_there, connection, place as u64),
            "byte {place} of {connection}"
        );
    }
}

/// Runs connections over two ends. Messages are late by chance; `cut_after` so many of them the pipe breaks.
fn run(seed: u64, may_break: bool, cut_after: u64) -> [End; 2] {
    let mut chance = Chance(seed);
    let mut ends = [End::new(Side::Client), End::new(Side::Service)];
    let mut pipes = [VecDeque::new(), VecDeque::new()];
    let (mut begun, mut delivered) = (0, 0);
    let mut connection_of = BTreeMap::new();
    for _ in 0..200_000 {
        if begun < 30
            && chance.below(8) == 0
            && let Some(stream) = ends[0].mux.open()
        {
            connection_of.insert(stream, begun);
            let seen = Seen { to_send: 1200, ..Seen::default() };
            ends[0].streams.insert(stream, (begun, seen));
            begun += 1;
        }
        let at = chance.below(2) as usize;
        ends[at].act(&mut chance, may_break);
        if chance.below(3) == 0 && pipes[at].len() < 4 {
            let message = ends[at].message(&mut chance);
            pipes[at].extend(message);
        }
        if chance.below(2) == 0
            && let Some(message) = pipes[at].pop_front()
        {
            delivered += 1;
            if delivered > cut_after {
                break;
            }
            ends[1 - at].receive(&message, &mut connection_of).unwrap();
        }
        let is_still = ends.iter().all(|end| end.mux.open_streams() == 0);
        if begun == 30 && is_still && pipes.iter().all(VecDeque::is_empty) {
            return ends;
        }
    }
    assert!(cut_after < u64::MAX, "seed {seed}: not all connections ended");
    ends
}

#[test]
fn every_byte_of_every_connection_arrives_and_both_ends_forget_it() {
    for seed in 0..60 {
        let [client, service] = run(seed, false, u64::MAX);
        assert_eq!((client.ended.len(), service.ended.len()), (30, 30), "seed {seed}");
        for (connection, seen, broke) in &client.ended {
            assert!(!broke && seen.received.len() == 1500, "seed {seed}: {connection}");
            check_prefix(Side::Service, *connection, seen);
        }
        for (connection, seen, broke) in &service.ended {
            assert!(!broke && seen.received.len() == 1200, "seed {seed}: {connection}");
            check_prefix(Side::Client, *connection, seen);
        }
    }
}

#[test]
fn connections_that_break_at_any_moment_are_forgotten_at_both_ends() {
    for seed in 0..60 {
        let ends = run(seed, true, u64::MAX);
        assert!(ends[0].ended.iter().any(|(.., broke)| *broke), "seed {seed}: none broke");
        for (end, other) in [(&ends[0], Side::Service), (&ends[1], Side::Client)] {
            assert_eq!(end.ended.len(), 30, "seed {seed}");
            end.ended
                .iter()
                .for_each(|(connection, seen, _)| check_prefix(other, *connection, seen));
        }
    }
}

#[test]
fn what_arrived_before_the_pipe_broke_is_a_prefix() {
    for seed in 0..60 {
        let ends = run(seed, true, seed * 7);
        for (end, other) in [(&ends[0], Side::Service), (&ends[1], Side::Client)] {
            end.streams
                .values()
                .for_each(|(connection, seen)| check_prefix(other, *connection, seen));
        }
    }
}

/// Returns what a message with these frames is.
fn message(frames: &[(Kind, u32, &[u8])]) -> Vec<u8> {
    let mut batch = Batch::new(1 << 16);
    for (kind, stream, bytes) in frames {
        batch.space(bytes.len()).copy_from_slice(bytes);
        batch.seal(*kind, *stream, bytes.len() as u32);
    }
    batch.bytes().to_vec()
}

fn refused(mux: &mut Mux, frames: &[(Kind, u32, &[u8])]) -> Fault {
    mux.receive(&message(frames), |_, _, _| {}).unwrap_err()
}

#[test]
fn hostile_frames_are_refused_with_the_reason() {
    use Kind::{Accepted, Close, Credit, Data, Finish, Open, Reset};
    let service = || Mux::new(Side::Service, LIMITS);
    let state = |kind, open| Fault::State { kind, stream: 0, open };
    assert_eq!(service().receive(&[], |_, _, _| {}), Err(FrameError::Empty.into()));
    assert_eq!(refused(&mut service(), &[(Open, 8, b"")]), Fault::Range { stream: 8, limit: 8 });
    assert_eq!(refused(&mut service(), &[(Data, 0, b"a")]), state(Data, false));
    assert_eq!(refused(&mut service(), &[(Open, 0, b""), (Open, 0, b"")]), state(Open, true));
    let after = |frames: &[(Kind, u32, &[u8])]| {
        let mut mux = service();
        mux.receive(&message(&[(Open, 0, b"")]), |_, _, _| {}).unwrap();
        refused(&mut mux, frames)
    };
    let order = |kind| Fault::Order { kind, stream: 0 };
    assert_eq!(after(&[(Accepted, 0, b"")]), order(Accepted));
    assert_eq!(after(&[(Finish, 0, b""), (Data, 0, b"a")]), order(Data));
    assert_eq!(after(&[(Finish, 0, b""), (Finish, 0, b"")]), order(Finish));
    assert_eq!(after(&[(Finish, 0, b""), (Close, 0, b"")]), order(Close));
    assert_eq!(after(&[(Reset, 0, b""), (Finish, 0, b"")]), state(Finish, false));
    let flood = [0; 1001];
    assert_eq!(after(&[(Data, 0, &flood)]), Fault::Window { stream: 0, bytes: 1001, room: 1000 });
    let credit = [Credit as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut mux = service();
    mux.receive(&message(&[(Open, 0, b"")]), |_, _, _| {}).unwrap();
    let fault = mux.receive(&credit, |_, _, _| {}).unwrap_err();
    assert_eq!(fault, Fault::Credit { stream: 0, bytes: 1, sent: 0 });
    let mut client = Mux::new(Side::Client, LIMITS);
    assert_eq!(refused(&mut client, &[(Open, 0, b"")]), order(Open));
    client.open().unwrap();
    assert_eq!(refused(&mut client, &[(Data, 0, b"a")]), order(Data));
}

#[test]
fn a_refusal_is_told_and_its_stream_is_free_again() {
    let mut ends = [Mux::new(Side::Client, LIMITS), Mux::new(Side::Service, LIMITS)];
    let stream = ends[0].open().unwrap();
    let carry = |from: usize, ends: &mut [Mux; 2]| {
        let mut batch = Batch::new(1024);
        assert!(ends[from].fill(&mut batch));
        let mut told = Vec::new();
        ends[1 - from]
            .receive(batch.bytes(), |_, _, event| told.push(format!("{event:?}")))
            .unwrap();
        told
    };
    assert_eq!(carry(0, &mut ends), ["Opened"]);
    ends[1].refuse(stream, &"é".repeat(200));
    let told = carry(1, &mut ends);
    assert_eq!(told, [format!("Refused({:?})", "é".repeat(128))]);
    assert_eq!(carry(0, &mut ends), Vec::<String>::new(), "the client's last word is no news");
    assert_eq!(ends.map(|end| end.open_streams()), [0, 0]);
}

proptest! {
    #[test]
    fn no_message_makes_an_end_panic_or_keep_more_than_the_window(
        frames in prop::collection::vec((1_u8..9, 0_u32..9, 0_usize..600), 1..60),
        as_client: bool,
    ) {
        let mut mux = Mux::new(if as_client { Side::Client } else { Side::Service }, LIMITS);
        if as_client {
            for _ in 0..4 {
                mux.open();
            }
        }
        let mut kept = BTreeMap::new();
        for (kind, stream, bytes) in frames {
            let value = if matches!(kind, 3 | 4 | 8) { bytes as u32 } else { 0 };
            let mut message = vec![kind, 0, 0, 0];
            message.extend(stream.to_be_bytes());
            message.extend(value.to_be_bytes());
            if matches!(kind, 3 | 4) {
                message.extend(vec![1; bytes]);
            }
            let told = mux.receive(&message, |_, stream, event| match event {
                Event::Opened => drop(kept.insert(stream, 0)),
                Event::Data(bytes) => *kept.entry(stream).or_insert(0) += bytes.len(),
                Event::Accepted | Event::Refused(_) | Event::Finished | Event::Reset | Event::Room => {}
            });
            if told.is_err() {
                break;
            }
            let mut batch = Batch::new(MESSAGE_BYTES);
            mux.fill(&mut batch);
            prop_assert!(kept.values().all(|kept| *kept <= 1000));
        }
    }
}
