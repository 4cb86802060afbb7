//! Cases with a second process: the test binary starts itself again.
use crate::resources::Holdings;
use crate::{
    Bench, Options, PATIENCE, Random, Side, eventually, pattern, resources, start, wait_one,
};
use catchment_probe::child::{Child, role, say};
use catchment_verbs::{
    AsyncEvent, Completion, Endpoint, Payload, QpState, RemoteAddr, SendOp, SendWr, Sge, Wake,
    WcStatus,
};
use std::thread;
use std::time::{Duration, Instant};

/// The work of the second process.
pub fn child(bench: &Bench) {
    let Some(role) = role() else { return };
    match role.as_str() {
        "servant" => servant(bench),
        "survivor" => survivor(bench),
        "victim" => victim(bench),
        "connections" => resources::connections(bench),
        "drops" => resources::drops(bench),
        "starving" => resources::starving(bench),
        other => panic!("no role {other:?}"),
    }
}

/// What two processes must exchange.
struct Card {
    end: Endpoint,
    memory: RemoteAddr,
}

impl Card {
    fn of(side: &Side) -> String {
        let (end, memory) = (side.qp.endpoint(), side.remote(0));
        format!("{end} {} {}", memory.addr, memory.rkey)
    }

    fn read(text: &str) -> Self {
        let fields: Vec<&str> = text.split(' ').collect();
        Self {
            end: fields[0].parse().unwrap(),
            memory: RemoteAddr {
                addr: fields[1].parse().unwrap(),
                rkey: fields[2].parse().unwrap(),
            },
        }
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.memory.addr + offset, ..self.memory }
    }
}

/// Connects this side with that of a child, and returns the child's card.
fn join(side: &mut Side, child: &mut Child, options: &Options) -> Card {
    let card = Card::read(&child.hear());
    child.tell(&Card::of(side));
    side.connect(card.end, options);
    assert_eq!(child.hear(), "connected");
    card
}

/// The child's half of [`join`].
fn join_parent(bench: &Bench, lines: &mut dyn Iterator<Item = String>) -> (Side, Card) {
    let options = Options::default();
    let mut side = bench.side(&options);
    say(&Card::of(&side));
    let card = Card::read(&lines.next().unwrap());
    side.connect(card.end, &options);
    (side, card)
}

/// Executes the parent's commands.
fn servant(bench: &Bench) {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let (mut side, card) = join_parent(bench, &mut lines);
    say("connected");
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<usize>().unwrap();
        let answer = match words[0] {
            "see" => {
                let expected = pattern(number(3) as u64, number(2));
                (side.get(number(1), number(2)) == expected).to_string()
            }
            "receive" => {
                side.post_recv(9, &[side.sge(number(1), number(2))]);
                "posted".into()
            }
            "received" => format!("{:?}", wait_one(&*side.recv_cq).result.unwrap().bytes),
            "write" => {
                side.put(0, &pattern(number(2) as u64, number(1)));
                side.run_ok(SendOp::Write(card.at(0)), &[side.sge(0, number(1))]);
                "written".into()
            }
            "watch" => {
                let watch = side.mr.watch().unwrap();
                watch.arm();
                say("armed");
                format!("{:?}", watch.wait(PATIENCE).unwrap())
            }
            other => panic!("no command {other:?}"),
        };
        say(&answer);
    }
}

/// Every operation between two processes.
pub fn two_processes_do_everything(bench: &Bench) {
    let options = Options::default();
    let mut child = start("servant");
    let mut a = bench.side(&options);
    let theirs = join(&mut a, &mut child, &options);
    let data = pattern(1, 100_000);
    a.put(0, &data);
    let sge = a.sge(0, data.len());
    a.run_ok(SendOp::Write(theirs.at(40)), &[sge]);
    assert_eq!(child.ask("see 40 100000 1"), "true");
    a.run_ok(SendOp::Read(theirs.at(40)), &[a.sge(200_000, data.len())]);
    assert!(a.get(200_000, data.len()) == data);
    assert_eq!(child.ask("write 5000 77"), "written");
    assert!(a.get(0, 5000) == pattern(77, 5000));
    assert_eq!(child.ask("receive 300000 100000"), "posted");
    a.put(0, &data);
    a.post(SendWr::new(1, SendOp::Send, Payload::Sges(&[sge])));
    child.tell("received");
    assert!(wait_one(&*a.send_cq).result.is_ok());
    assert_eq!(child.hear(), "100000");
    assert_eq!(child.ask("see 300000 100000 1"), "true");
    let caps = a.context.caps().clone();
    if caps.doorbell {
        assert_eq!(child.ask("watch"), "armed");
        a.run_ok(SendOp::Write(theirs.at(0)), &[a.sge(0, 8)]);
        assert_eq!(child.hear(), "Rung");
    }
    if caps.direct {
        let at = theirs.at(500_000);
        let window = a.qp.map_remote(at.addr, 1000, at.rkey).unwrap();
        window.memory.memory().write_at(0, &pattern(5, 1000)).unwrap();
        window.bell.ring();
        assert_eq!(child.ask("see 500000 1000 5"), "true");
    }
}

/// A child that works until it is killed: WRITEs, READs, SENDs, sleeping, connecting.
fn victim(bench: &Bench) {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let (mut side, card) = join_parent(bench, &mut lines);
    let (sge, place) = (side.sge(0, 3000), side.sge(8192, 100_000));
    say("connected");
    let mut out = [Completion::EMPTY; 16];
    for n in 0.. {
        let wr = |op| SendWr::new(n, op, Payload::Sges(std::slice::from_ref(&sge)));
        let _ = side.qp.post_recv(&[catchment_verbs::RecvWr { wr_id: n, sges: &[place] }]);
        let _ = side.qp.post_send(&[
            wr(SendOp::Write(card.at(0))).unsignaled(),
            wr(SendOp::Read(card.at(0))).unsignaled(),
            wr(SendOp::Send),
        ]);
        while side.recv_cq.poll(&mut out).unwrap() > 0 {}
        while side.send_cq.poll(&mut out).unwrap() > 0 {}
        if n % 16 == 0 {
            side.recv_cq.req_notify(false);
            side.channel.wait(Duration::from_micros(200)).unwrap();
        }
        if n % 64 == 0 && crate::watches_afar(side.context.caps()) {
            let _ = side.qp.watch_remote(card.memory.rkey).map(|w| w.arm());
        }
        if side.qp.state() == QpState::Err {
            return;
        }
    }
}

/// `kill -9` at any moment: what is outstanding is flushed, sleepers wake, nothing leaks, and the
/// next process can connect.
pub fn a_killed_peer_is_noticed_every_time(_bench: &Bench) {
    start("survivor").says("done");
}

fn survivor(bench: &Bench) {
    let context = bench.open();
    let mut random = Random::new(11);
    let mut before = None;
    // Over a network each round waits for half a second of silence.
    let rounds =
        if bench.caps().path_mtu.is_some() { crate::rounds(12) } else { crate::rounds(50) };
    for round in 0..rounds {
        if round == 5 {
            before = Some(Holdings::now());
        }
        survive_one(bench, &context, &mut random);
        while context.async_event().is_some() {}
    }
    if let Some(before) = before {
        before.assert_back();
    }
    say("done");
}

fn survive_one(
    bench: &Bench,
    context: &std::sync::Arc<dyn catchment_verbs::Context>,
    random: &mut Random,
) {
    let options = Options::default();
    let mut child = start("victim");
    let mut side = Side::new(context.clone(), &options);
    let theirs = join(&mut side, &mut child, &options);
    // A side that has never posted must notice too, where silence means something.
    let idle = bench.caps().path_mtu.is_none() && random.below(3) == 0;
    let time = Duration::from_micros(random.below(20_000));
    let mut outstanding =
        if idle { Outstanding::default() } else { work(&mut side, &theirs, time) };
    let watch = side.mr.watch().filter(|_| bench.caps().doorbell);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            // Writes of the victim may ring too: until the queue pair is in error.
            watch.as_ref().map(|watch| {
                watch.arm();
                watch.wait(PATIENCE).unwrap()
            })
        });
        child.kill();
        // Over a network silence alone means nothing: a request has to find out.
        if bench.caps().path_mtu.is_some() {
            probe(&mut side, &theirs, &mut outstanding);
        }
        assert_ne!(sleeper.join().unwrap(), Some(Wake::TimedOut), "not woken");
    });
    eventually("the error state", || side.qp.state() == QpState::Err);
    eventually(
        "the event",
        || matches!(context.async_event(), Some(AsyncEvent::QpFatal { qpn, .. }) if qpn == side.qp.qpn()),
    );
    assert_all_flushed(&mut side, &outstanding);
}

/// Posts a request that the dead peer will not answer.
fn probe(side: &mut Side, theirs: &Card, outstanding: &mut Outstanding) {
    let wr = SendWr::new(u64::MAX, SendOp::Write(theirs.at(0)), Payload::Inline(&[]));
    eventually("room for a request", || {
        let mut out = [Completion::EMPTY; 16];
        let posted = side.qp.post_send(&[wr]).is_ok();
        outstanding.sends += usize::from(posted);
        if !posted {
            outstanding.sends -= side.send_cq.poll(&mut out).unwrap();
        }
        posted
    });
}

/// Requests that were posted and whose completions were not polled.
#[derive(Default)]
struct Outstanding {
    sends: usize,
    receives: usize,
}

/// Some traffic for this long, leaving receives and a message outstanding.
fn work(side: &mut Side, theirs: &Card, time: Duration) -> Outstanding {
    let (sge, place) = (side.sge(0, 100_000), side.sge(100_000, 100_000));
    let until = Instant::now() + time;
    let mut out = [Completion::EMPTY; 16];
    let mut outstanding = Outstanding::default();
    for n in 0.. {
        let short = [Sge { bytes: 64, ..sge }];
        let (sges, places) = ([sge], [place]);
        let receive = catchment_verbs::RecvWr { wr_id: n, sges: &places };
        // A full queue is no fault: the victim may be slow.
        outstanding.receives += usize::from(side.qp.post_recv(&[receive]).is_ok());
        let posted = side.qp.post_send(&[
            SendWr::new(n, SendOp::Write(theirs.at(0)), Payload::Sges(&short)),
            SendWr::new(n, SendOp::Send, Payload::Sges(&sges)),
        ]);
        outstanding.sends += posted.map_or_else(|refused| refused.index, |()| 2);
        if Instant::now() >= until {
            break;
        }
        outstanding.receives -= side.recv_cq.poll(&mut out).unwrap();
        outstanding.sends -= side.send_cq.poll(&mut out).unwrap();
    }
    outstanding
}

/// Everything outstanding completes exactly once; afterwards both queues take their full capacity
/// again.
fn assert_all_flushed(side: &mut Side, outstanding: &Outstanding) {
    for (cq, count) in [(&side.send_cq, outstanding.sends), (&side.recv_cq, outstanding.receives)] {
        for done in crate::wait_some(&**cq, count) {
            let status = done.result.err().map(|failure| failure.status);
            // Where a kernel cleans up, the peer's memory may be gone before its queue pair.
            assert!(
                matches!(
                    status,
                    None | Some(
                        WcStatus::Flushed
                            | WcStatus::TransportRetryExceeded
                            | WcStatus::RemoteAccess
                            | WcStatus::RemoteOperation
                    )
                ),
                "{status:?}"
            );
        }
        crate::assert_empty(&**cq);
    }
    let sges = [side.sge(0, 8)];
    for n in 0..u64::from(Options::default().max_recv_wr) {
        side.post_recv(n, &sges);
        side.post(SendWr::new(n, SendOp::Send, Payload::Sges(&sges)));
    }
    for cq in [&side.send_cq, &side.recv_cq] {
        for (n, done) in crate::wait_some(&**cq, 64).iter().enumerate() {
            assert_eq!(done.wr_id, n as u64);
            assert_eq!(done.result.unwrap_err().status, WcStatus::Flushed);
        }
    }
}
