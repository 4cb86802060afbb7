//! Two agents, processes of their own, agree on the rates of applications that write to one of them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_agent::policy::{Between, Policy};
use catchment_agent::protocol::Account;
use catchment_agent::{Agent, AgentOptions, AgentProvider, peers, rounds, status};
use catchment_conformance::{Options, Side, eventually};
use catchment_probe::child::{Child, role, say};
use catchment_verbs::{Completion, Payload, Provider as _, SendOp, SendWr, WcStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const REQUEST: usize = 1 << 20;
/// So many that an application has work for its agent even while it gets no processor.
const OUTSTANDING: u32 = 2048;
const CHUNK: u64 = 64 << 10;
/// What each host sends, in bytes a second.
const SENDS: f64 = 640e6;
/// What the second host takes in, in bytes a second: less than anybody sends.
const TAKES_IN: f64 = 384e6;
/// What of it applications share.
const SHARED: f64 = Between::SHARED_PART * TAKES_IN;
/// What an agent catches up on of rates.
const LATE: Duration = Duration::from_millis(20);
/// Most that an application asks for that has nothing to send.
const IDLE: f64 = 1e6;

/// The second processes do their work here; nothing in the first.
#[test]
fn second_process() {
    let Some(policy) = role() else { return };
    let agent = Agent::start(Policy::parse(&policy).unwrap()).unwrap();
    say(&agent.local().map_or_else(String::new, ToString::to_string));
    std::io::stdin().lines().for_each(drop);
}

struct Host {
    name: String,
    process: Child,
    address: String,
}

impl Host {
    fn start(test: &str, number: u32, dials: &[&str], takes_in: f64) -> Self {
        let shm = serde_json::json!("shm");
        Self::start_at(test, number, dials, (SENDS, takes_in), ("127.0.0.1:0", shm))
    }

    fn start_at(
        test: &str,
        number: u32,
        dials: &[&str],
        (sends, takes_in): (f64, f64),
        (listen, device): (&str, serde_json::Value),
    ) -> Self {
        let name = format!("{test}-{number}-{}", std::process::id());
        let rule = |(name, weight)| serde_json::json!({ "name": name, "weight": weight });
        let rules = [("three", 3), ("one", 1), ("two", 2), ("target", 1)].map(rule);
        let between = serde_json::json!({
            "listen": listen, "peers": dials, "host": number, "lease_ms": 1500,
            "send_bytes_per_s": sends as u64, "completion_bytes_per_s": takes_in as u64
        });
        let policy = serde_json::json!({
            "name": name, "device": device, "chunk_bytes": CHUNK, "applications": rules, "between": between
        });
        let mut process = Child::start("second_process", &policy.to_string());
        let address = process.hear();
        Self { name, process, address }
    }

    fn account(&self, application: &str) -> Option<Account> {
        let all = status(&self.name).unwrap();
        all.into_iter().find(|account| account.application == application)
    }

    fn rate(&self, application: &str) -> f64 {
        self.account(application).map_or(0.0, |account| account.rate_bytes_per_s)
    }

    fn side(&self, application: &str) -> Side {
        let (agent, application) = (self.name.clone(), application.to_owned());
        let options = AgentOptions { agent: agent.clone(), application };
        Side::new(AgentProvider::new(options).open(&agent).unwrap(), &limits())
    }
}

fn limits() -> Options {
    Options {
        max_send_wr: OUTSTANDING,
        send_cqe: 2 * OUTSTANDING,
        max_recv_wr: OUTSTANDING,
        recv_cqe: 2 * OUTSTANDING,
        bytes: 2 * REQUEST,
        ..Options::default()
    }
}

/// Two hosts with a session; the second one takes in little.
fn two_hosts(test: &str) -> (Host, Host) {
    let second = Host::start(test, 2, &[], TAKES_IN);
    let first = Host::start(test, 1, &[&second.address], 6.4e9);
    eventually("the session", || peers(&first.name).unwrap().iter().any(|peer| peer.connected));
    (first, second)
}

/// An application that writes as fast as it may. It ends when it is told to, or with the first failure.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<WcStatus>>,
}

impl Writer {
    /// One at `host` that writes to memory of the target.
    fn start(host: &Host, application: &str, target: &mut Vec<Side>, at: &Host) -> Self {
        let (mut side, mut other) = (host.side(application), at.side("target"));
        let memory = other.remote(0);
        other.connect(side.qp.endpoint(), &limits());
        side.connect(other.qp.endpoint(), &limits());
        target.push(other);
        Self::run(side, SendOp::Write(memory), REQUEST)
    }

    /// One that does the same all the time.
    fn run(mut side: Side, op: SendOp, bytes: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let sges = [side.sge(0, bytes)];
            let wr = SendWr::new(7, op, Payload::Sges(&sges));
            let mut out = [Completion::EMPTY; 64];
            let mut outstanding = 0;
            while !asked.load(Ordering::Acquire) {
                while outstanding < OUTSTANDING {
                    side.post(wr);
                    outstanding += 1;
                }
                let count = side.send_cq.poll(&mut out).unwrap();
                outstanding -= count as u32;
                let mut failed = out[..count].iter().filter_map(|one| one.result.err());
                if let Some(failure) = failed.next() {
                    return Some(failure.status);
                }
                if count == 0 {
                    std::thread::yield_now();
                }
            }
            None
        });
        Self { stop, thread }
    }

    fn stop(self) -> Option<WcStatus> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Whether rates are what is expected, in bytes a second, but for what those may ask for who have nothing to send.
fn are_near(rates: &[f64], expected: &[f64]) -> bool {
    let near = |(rate, expected): (&f64, &f64)| (rate - expected).abs() <= 0.01 * expected + IDLE;
    rates.iter().zip(expected).all(near)
}

/// S5.20: what the second host takes in is shared by weight among applications of both, whoever is there.
#[test]
fn two_hosts_come_to_the_shared_optimum() {
    let (first, second) = two_hosts("optimum");
    let mut target = Vec::new();
    let three = Writer::start(&first, "three", &mut target, &second);
    let one = Writer::start(&first, "one", &mut target, &second);
    let two = Writer::start(&second, "two", &mut target, &second);
    let rates = || [first.rate("three"), first.rate("one"), second.rate("two")];
    eventually("shares of all three", || {
        are_near(&rates(), &[SHARED / 2.0, SHARED / 6.0, SHARED / 3.0])
    });
    // A host serves no more than its rates give in the time and in what its agent may have been late before, and what may be saved up, whoever of those that send to the
    // same host has it; and no rounds take place while nothing changes, as it does where a host gets no processor for a lease.
    eventually("a span without rounds", || {
        let count = || [&first, &second].map(|host| rounds(&host.name).unwrap().unwrap());
        let accounts = || ["three", "one"].map(|name| first.account(name).unwrap());
        let (quiet, before, from) = (count(), accounts(), Instant::now());
        // What does not happen in a time is the question.
        std::thread::sleep(Duration::from_millis(300));
        let (after, later) = (accounts(), count());
        let rate = |all: &[Account]| all.iter().map(|one| one.rate_bytes_per_s).sum::<f64>();
        let bytes = |all: &[Account]| all.iter().map(|one| one.bytes).sum::<u64>();
        let most = rate(&before).max(rate(&after)) * (from.elapsed() + LATE).as_secs_f64();
        let served = bytes(&after) - bytes(&before);
        let same = quiet.iter().zip(&later).all(|(a, b)| a.still && a.rounds == b.rounds);
        if same {
            // Two chunks of each and of what they leave, and one that each began with less.
            assert!(served as f64 <= most + 9.0 * CHUNK as f64, "{served} bytes at {most}");
            assert!(served > 0 && after.iter().all(|one| one.failed == 0));
        }
        same
    });
    assert_eq!(one.stop(), None);
    eventually("shares of those that are left", || {
        let left = [first.rate("three"), second.rate("two")];
        are_near(&left, &[SHARED * 0.6, SHARED * 0.4])
    });
    assert_eq!((three.stop(), two.stop()), (None, None));
}

/// S5.20: what a dead host was granted is the others' again, by its lease; and who sends to it is told.
#[test]
fn a_dead_host_gives_its_rates_back() {
    let (mut first, second) = two_hosts("dead-sender");
    let mut target = Vec::new();
    let three = Writer::start(&first, "three", &mut target, &second);
    let two = Writer::start(&second, "two", &mut target, &second);
    eventually("shares of both", || {
        are_near(&[first.rate("three"), second.rate("two")], &[SHARED * 0.6, SHARED * 0.4])
    });
    first.process.kill();
    eventually("all of it at the other", || are_near(&[second.rate("two")], &[SHARED]));
    assert!(three.stop().is_some(), "its agent is gone");
    assert_eq!(two.stop(), None);
}

/// An application that takes messages as they come, and counts their completions.
struct Taker {
    taken: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Taker {
    fn start(mut side: Side, bytes: usize) -> Self {
        let (taken, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let sges = [side.sge(0, bytes)];
        (0..OUTSTANDING.into()).for_each(|n| side.post_recv(n, &sges));
        let (count, asked) = (Arc::clone(&taken), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut out = [Completion::EMPTY; 64];
            while !asked.load(Ordering::Acquire) {
                let done = side.recv_cq.poll(&mut out).unwrap();
                for completion in &out[..done] {
                    assert_eq!(completion.result.unwrap().bytes, bytes as u64);
                    side.post_recv(completion.wr_id, &sges);
                }
                count.fetch_add(done as u64, Ordering::Relaxed);
                if done == 0 {
                    std::thread::yield_now();
                }
            }
        });
        Self { taken, stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap();
    }
}

/// S5.10: where what a host completes is the limit, its applications get completions at the rates that were decided, to a
/// twentieth, from the one thread that polls.
#[test]
fn s5_10_completions_come_at_the_rates_that_were_decided() {
    const MESSAGE: usize = 64 << 10;
    let (first, second) = two_hosts("completions");
    let pair = |application: &str| {
        let (mut side, mut other) = (first.side(application), second.side(application));
        other.connect(side.qp.endpoint(), &limits());
        side.connect(other.qp.endpoint(), &limits());
        let taker = Taker::start(other, MESSAGE);
        (Writer::run(side, SendOp::Send, MESSAGE), taker)
    };
    let pairs = ["three", "one"].map(pair);
    let decided = || ["three", "one"].map(|name| first.rate(name));
    eventually("shares of both", || are_near(&decided(), &[SHARED * 0.75, SHARED * 0.25]));
    let taken = || [0, 1].map(|at: usize| pairs[at].1.taken.load(Ordering::Relaxed));
    eventually("a span in which completions come at these rates", || {
        let (before, rates, from) = (taken(), decided(), Instant::now());
        // What comes in a span is the question, and how long it was.
        std::thread::sleep(Duration::from_millis(500));
        let (after, passed) = (taken(), from.elapsed().as_secs_f64());
        (0..2).all(|at| {
            let (bytes, due) = ((after[at] - before[at]) * MESSAGE as u64, rates[at] * passed);
            (bytes as f64 - due).abs() <= 0.05 * due
        })
    });
    for (writer, taker) in pairs {
        assert_eq!(writer.stop(), None);
        taker.stop();
    }
}

/// Who sends to a host that dies does not wait for ever, and others of its host go on.
#[test]
fn requests_to_a_dead_host_fail() {
    let (first, mut second) = two_hosts("dead-receiver");
    let (mut target, mut near) = (Vec::new(), Vec::new());
    let three = Writer::start(&first, "three", &mut target, &second);
    let one = Writer::start(&first, "one", &mut near, &first);
    eventually("both work", || {
        ["three", "one"].iter().all(|name| first.account(name).unwrap().done > 8)
    });
    second.process.kill();
    eventually("the failure", || three.thread.is_finished());
    assert!(three.stop().is_some());
    let done = first.account("one").unwrap().done;
    eventually("the other goes on", || first.account("one").unwrap().done > done + 8);
    assert_eq!(one.stop(), None);
}

/// Where queue pairs lead says where the other agent is: at the same port of that device's host.
#[test]
fn agents_find_each_other_by_where_queue_pairs_lead() {
    let at = |host: &str| serde_json::json!({ "roce": host });
    let here = ("127.0.0.1:0", at("127.0.0.1"));
    let first = Host::start_at("finds", 1, &[], (SENDS, 6.4e9), here);
    let listen = first.address.replace("127.0.0.1", "127.0.0.2");
    let second =
        Host::start_at("found", 2, &[], (SENDS, TAKES_IN / 4.0), (&listen, at("127.0.0.2")));
    assert!(peers(&first.name).unwrap().is_empty(), "nobody told them");
    let mut target = Vec::new();
    let three = Writer::start(&first, "three", &mut target, &second);
    eventually("the session", || peers(&first.name).unwrap().iter().any(|peer| peer.connected));
    eventually("all that the other takes in", || {
        (first.rate("three") - SHARED / 4.0).abs() <= 0.01 * TAKES_IN
    });
    assert_eq!(three.stop(), None);
}

/// Threads that do nothing, and let nobody else do anything meanwhile, until this is dropped.
struct Busy(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Busy {
    fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let asked = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !asked.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..count).map(spin).collect();
        Self(stop, threads)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// S5.9: a line that no processor serves is found out, and what is agreed is what is served, in shares of weight, though
/// others have the processors half of the time.
#[test]
fn rates_that_cannot_be_kept_are_agreed_out_of_what_can_be_served() {
    const FAR_TOO_FAST: f64 = 1e13;
    let shm = ("127.0.0.1:0", serde_json::json!("shm"));
    let host = Host::start_at("too-fast", 1, &[], (FAR_TOO_FAST, 1e14), shm);
    let mut target = Vec::new();
    let _busy = Busy::start(2);
    let three = Writer::start(&host, "three", &mut target, &host);
    let one = Writer::start(&host, "one", &mut target, &host);
    let accounts = || ["three", "one"].map(|name| host.account(name).unwrap());
    let works = || rounds(&host.name).unwrap().unwrap().working_bytes_per_s.unwrap();
    eventually("what works is found out", || (works() as f64) < FAR_TOO_FAST / 50.0);
    eventually("a span in which each is served what was agreed", || {
        let (before, from) = (accounts(), Instant::now());
        // What is served in a span is the question, and how long it was.
        std::thread::sleep(Duration::from_millis(500));
        let (after, passed) = (accounts(), from.elapsed().as_secs_f64());
        let served = |at: usize| (after[at].cost_bytes - before[at].cost_bytes) as f64;
        let agreed = |at: usize| {
            f64::midpoint(before[at].rate_bytes_per_s, after[at].rate_bytes_per_s) * passed
        };
        let near = |value: f64, due: f64| (value - due).abs() <= 0.1 * due;
        let kept = (0..2).all(|at| near(served(at), agreed(at)));
        kept && near(served(0), 3.0 * served(1)) && near(agreed(0), 3.0 * agreed(1))
    });
    assert_eq!((three.stop(), one.stop()), (None, None));
}
