//! Real processes that share one agent: two of them WRITE to a third.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_agent::policy::Policy;
use catchment_agent::protocol::Account;
use catchment_agent::{Agent, AgentOptions, AgentProvider, Inquiry, status};
use catchment_conformance::{Options, Side, eventually};
use catchment_probe::child::{Child, hear, role, say};
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::{
    Access, Completion, Endpoint, Payload, Provider as _, QpState, RemoteAddr, SendOp, SendWr,
    WcStatus,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CHUNK: u64 = 64 << 10;
/// Long requests, many of them: an application has work for the agent even while it gets no processor.
const REQUEST: usize = 1 << 20;
const OUTSTANDING: u32 = 2048;

/// The second processes do their work here; nothing in the first.
#[test]
fn second_process() {
    let Some(role) = role() else { return };
    match role.split_once(' ') {
        Some(("agent", name)) => be_agent(name),
        Some(("target", agent)) => be_target(agent),
        Some((writer, agent)) => be_writer(writer, agent),
        None => panic!("no role {role:?}"),
    }
}

fn start(role: &str) -> Child {
    Child::start("second_process", role)
}

fn be_agent(name: &str) {
    let text = format!(
        r#"{{"name": "{name}", "chunk_bytes": {CHUNK}, "applications": [
            {{"name": "three", "weight": 3}}, {{"name": "one", "weight": 1}}, {{"name": "target"}}]}}"#
    );
    let agent = Agent::start(Policy::parse(&text).unwrap()).unwrap();
    say("ready");
    for rules in std::io::stdin().lines().map_while(Result::ok) {
        let text =
            format!(r#"{{"name": "{name}", "chunk_bytes": {CHUNK}, "applications": {rules}}}"#);
        agent.reload(Policy::parse(&text).unwrap()).unwrap();
        say("reloaded");
    }
}

fn options() -> Options {
    Options {
        max_send_wr: OUTSTANDING,
        send_cqe: 2 * OUTSTANDING,
        bytes: 2 * REQUEST,
        ..Options::default()
    }
}

fn open(application: &str, agent: &str) -> Arc<dyn catchment_verbs::Context> {
    let (agent, application) = (agent.to_owned(), application.to_owned());
    AgentProvider::new(AgentOptions { agent: agent.clone(), application }).open(&agent).unwrap()
}

/// Where a side can be reached: endpoint, address, key.
fn card(side: &Side) -> String {
    let memory = side.remote(0);
    format!("{} {} {}", side.qp.endpoint(), memory.addr, memory.rkey)
}

fn read_card(text: &str) -> (Endpoint, RemoteAddr) {
    let fields: Vec<&str> = text.split(' ').collect();
    let (addr, rkey) = (fields[1].parse().unwrap(), fields[2].parse().unwrap());
    (fields[0].parse().unwrap(), RemoteAddr { addr, rkey })
}

/// Lets others write into memory of its own, each into one side.
fn be_target(agent: &str) {
    let context = open("target", agent);
    say("ready");
    let mut sides: Vec<Side> = Vec::new();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match word {
            "join" => {
                let mut side = Side::new(context.clone(), &options());
                side.connect(read_card(rest).0, &options());
                let card = card(&side);
                sides.push(side);
                card
            }
            "see" => sides.iter().map(|side| side.get(0, 1)[0].to_string()).collect(),
            "state" => format!("{:?}", sides[1].qp.state()),
            "leave" => {
                sides.pop();
                "left".to_owned()
            }
            other => panic!("no command {other:?}"),
        };
        say(&answer);
    }
}

/// Writes as fast as it may until it is told to stop.
fn be_writer(name: &str, agent: &str) {
    let mut side = Side::new(open(name, agent), &options());
    say(&card(&side));
    let (end, memory) = read_card(&hear());
    side.connect(end, &options());
    side.put(0, &vec![b'0' + name.len() as u8; REQUEST]);
    say("connected");
    hear();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    std::thread::spawn(move || {
        hear();
        asked.store(true, Ordering::Release);
    });
    let sges = [side.sge(0, REQUEST)];
    let wr = SendWr::new(7, SendOp::Write(memory), Payload::Sges(&sges));
    let (mut posted, mut done, mut failed) = (0u64, 0u64, Vec::<WcStatus>::new());
    let mut out = [Completion::EMPTY; 64];
    loop {
        while !stop.load(Ordering::Acquire) && posted - done < u64::from(OUTSTANDING) {
            side.post(wr);
            posted += 1;
        }
        let count = side.send_cq.poll(&mut out).unwrap();
        failed.extend(out[..count].iter().filter_map(|one| Some(one.result.err()?.status)));
        done += count as u64;
        if posted == done && stop.load(Ordering::Acquire) {
            break;
        }
        if count == 0 {
            side.send_cq.req_notify(false);
            let again = side.send_cq.poll(&mut out[..1]).unwrap();
            done += again as u64;
            if again == 0 {
                side.channel.wait(std::time::Duration::from_millis(100)).unwrap();
            }
        }
    }
    say(&format!("done {failed:?}"));
}

/// A writer that is connected with the target.
fn join(name: &str, agent: &str, target: &mut Child) -> Child {
    let mut writer = start(&format!("{name} {agent}"));
    let theirs = writer.hear();
    let ours = target.ask(&format!("join {theirs}"));
    assert_eq!(writer.ask(&ours), "connected");
    writer
}

fn account(agent: &str, application: &str) -> Option<Account> {
    status(agent).unwrap().into_iter().find(|known| known.application == application)
}

fn started(agent: &str) -> (Child, Child) {
    let mut process = start(&format!("agent {agent}"));
    process.says("ready");
    let mut target = start(&format!("target {agent}"));
    target.says("ready");
    (process, target)
}

/// The accounts of both at one moment.
fn both(agent: &str) -> [Account; 2] {
    let all = status(agent).unwrap();
    ["three", "one"].map(|name| all.iter().find(|a| a.application == name).unwrap().clone())
}

/// S5.9: bytes follow the weights, within the bound of the scheduler: a chunk for each at either end.
#[test]
fn two_that_write_to_a_third_get_three_to_one() {
    let agent = format!("sharing-{}", std::process::id());
    let (_process, mut target) = started(&agent);
    let mut writers = ["three", "one"].map(|name| join(name, &agent, &mut target));
    writers.iter_mut().for_each(|writer| writer.tell("go"));
    eventually("both wait", || both(&agent).iter().all(|account| account.waiting > 1000));
    let mut from = both(&agent);
    eventually("a span in which both always waited", || {
        let to = both(&agent);
        let waited = |at: usize| from[at].waiting > 0 && from[at].emptied == to[at].emptied;
        if !(waited(0) && waited(1)) {
            from = to;
            return false;
        }
        let [three, one] = [0, 1].map(|at| to[at].bytes - from[at].bytes);
        assert!(three.abs_diff(3 * one) <= 4 * CHUNK, "{three} bytes to {one}");
        three >= 256 << 20
    });
    let [three, one] = both(&agent);
    assert!((three.share - 0.6).abs() < 1e-6 && (one.share - 0.2).abs() < 1e-6, "of 3, 1 and 1");
    for mut writer in writers {
        assert_eq!(writer.ask("stop"), "done []");
    }
    assert_eq!(target.ask("see"), "5351", "the names have five letters and three");
}

/// Other rules hold at once: weights of who is connected, memory of what is registered from then on, and who is served.
#[test]
fn other_rules_hold_for_who_is_connected() {
    let agent = format!("rules-{}", std::process::id());
    let (mut process, mut target) = started(&agent);
    let mut writers = ["three", "one"].map(|name| join(name, &agent, &mut target));
    writers.iter_mut().for_each(|writer| writer.tell("go"));
    let near = |account: Option<Account>, share: f64| (account.unwrap().share - share).abs() < 1e-6;
    eventually("shares of 3, 1 and 1", || near(account(&agent, "three"), 0.6));
    let rules = r#"[{"name": "three", "weight": 2}, {"name": "one", "weight": 5}, {"name": "target", "memory_bytes": 1}]"#;
    assert_eq!(process.ask(rules), "reloaded");
    eventually("shares of 2, 5 and 1", || {
        near(account(&agent, "three"), 0.25) && near(account(&agent, "one"), 0.625)
    });
    let pd = open("target", &agent).alloc_pd().unwrap();
    let region = Region::alloc(4096, RegionOptions::default()).unwrap();
    let refused = pd.reg_mr(region, Access::LOCAL_WRITE).err().unwrap().to_string();
    assert!(refused.contains("beyond the 1 that the policy allows"), "{refused}");
    let rules = r#"[{"name": "three", "weight": 2}, {"name": "target"}]"#;
    assert_eq!(process.ask(rules), "reloaded");
    eventually("the one that is not served leaves", || account(&agent, "one").is_none());
    let [mut three, mut one] = writers;
    assert!(one.ask("stop").starts_with("done [Flushed"));
    let done = account(&agent, "three").unwrap().done;
    eventually("the other goes on", || account(&agent, "three").unwrap().done > done + 100);
    assert_eq!(three.ask("stop"), "done []");
}

/// What the agent's process holds: descriptors, and mappings of shared memory.
fn held(process: &Child) -> (usize, usize) {
    let of = |what| format!("/proc/{}/{what}", process.id());
    let maps = std::fs::read_to_string(of("maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:")).count();
    (std::fs::read_dir(of("fd")).unwrap().count(), shared)
}

/// S5.1: `kill -9` of an application: the other goes on without a failed request, gets all of the device, and
/// nothing of the dead one remains at the agent.
#[test]
fn a_killed_application_leaves_nothing_and_harms_nobody() {
    let agent = format!("killing-{}", std::process::id());
    let (process, mut target) = started(&agent);
    let mut lives = join("three", &agent, &mut target);
    lives.tell("go");
    eventually("it works", || account(&agent, "three").unwrap().done > 100);
    let before = held(&process);
    for _ in 0..3 {
        let mut dies = join("one", &agent, &mut target);
        dies.tell("go");
        eventually("both work", || account(&agent, "one").unwrap().done > 10);
        let decided_ns = || Inquiry::new(&agent).ask().unwrap().decided_ns.expect("shares");
        let with_both_ns = decided_ns();
        dies.kill();
        eventually("its end", || account(&agent, "one").is_none());
        assert!(decided_ns() > with_both_ns, "the agent says when it decided anew");
        let err = format!("{:?}", QpState::Err);
        eventually("the error at its peer", || target.ask("state") == err);
        assert_eq!(target.ask("leave"), "left");
        eventually("nothing of it is held", || held(&process) <= before);
        let seen = account(&agent, "three").unwrap();
        eventually("the other one goes on", || {
            account(&agent, "three").unwrap().done > seen.done + 100
        });
        assert_eq!(account(&agent, "three").unwrap().failed, 0);
    }
    assert_eq!(lives.ask("stop"), "done []");
}

/// The agent dies: what was asked of it ends with an error, and nobody waits for ever.
#[test]
fn requests_of_a_killed_agent_are_flushed() {
    let agent = format!("orphans-{}", std::process::id());
    let (mut process, mut target) = started(&agent);
    let mut writer = join("three", &agent, &mut target);
    writer.tell("go");
    eventually("it works", || account(&agent, "three").unwrap().done > 100);
    process.kill();
    let said = writer.ask("stop");
    assert!(said.starts_with("done [Flushed, Flushed"), "{:.80}", said);
}

/// Who asks again and again has one connection; an agent that was started again is asked over another.
#[test]
fn questions_go_over_one_connection_for_each_life_of_the_agent() {
    let name = format!("asked-{}", std::process::id());
    let start = || {
        let text = format!(r#"{{"name": "{name}", "applications": [{{"name": "suite"}}]}}"#);
        Agent::start(Policy::parse(&text).unwrap()).unwrap()
    };
    // Other tests have their agents in processes.
    let served = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = threads.map(|one| std::fs::read_to_string(one.path().join("comm")));
        names.filter(|name| name.as_ref().is_ok_and(|name| name.trim() == "agent-app")).count()
    };
    let mut inquiry = Inquiry::new(&name);
    let nobody = inquiry.ask().unwrap_err().to_string();
    assert!(nobody.contains("no agent of the name"), "{nobody}");
    for _ in 0..2 {
        let agent = start();
        for _ in 0..100 {
            assert_eq!(inquiry.ask().unwrap().applications, []);
            assert_eq!(served(), 1);
        }
        drop(agent);
        assert!(inquiry.ask().is_err());
    }
}
