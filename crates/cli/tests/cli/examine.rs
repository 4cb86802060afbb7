//! `doctor`, `devices` and `explain` on real situations: network namespaces without a route, a port
//! that is taken, limits, packets that do not pass.
use crate::common::{Collector, Finished, Service, catchment, collecting, finish, run};
use catchment_netns::{Namespace, VethPair, with_privilege};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;

/// The MTU that has room for packets of 4096 bytes.
const JUMBO: u32 = 9000;

#[track_caller]
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check {name}: {report:#}"))
}

#[track_caller]
fn contains(finished: &Finished, words: &[&str]) {
    for text in words {
        let said = finished.stdout.contains(text) || finished.stderr.contains(text);
        assert!(said, "lacks {text:?}: {finished:#?}");
    }
}

fn inside(namespace: &Namespace, words: &[&str]) -> Finished {
    let words = words.to_vec();
    namespace.run(move || run(words)).unwrap()
}

#[test]
fn a_doctor_tells_what_works_and_exits_by_what_does_not() {
    let words = ["doctor", "--json", "--ibverbs-library", "/nowhere/lib.so"];
    let finished = run(words);
    let report = finished.last_json();
    let problems = report["problems"].as_u64().unwrap();
    assert_eq!(finished.code, Some(i32::from(problems > 0)), "{report:#}");
    let works = |name: &str| {
        let mut all = report["providers"].as_array().unwrap().iter();
        all.find(|provider| provider["name"] == name).unwrap()["works"] == true
    };
    assert!(works("shm") && works("roce"), "{report:#}");
    assert!(!works("ibverbs"), "there is no library: {report:#}");
    let library = check(&report, "libibverbs");
    let seen = library["seen"].as_str().unwrap();
    assert!(seen.contains("/nowhere/lib.so") && seen.contains("apt install"), "{seen}");
    for name in ["kernel", "cores", "container", "shm", "udp", "buffers", "port", "time"] {
        check(&report, name);
    }
    // The same in words, in one screen.
    let text = run(&words[..1]).stdout;
    assert!(text.lines().count() < 60, "{text}");
    assert!(text.contains("\nroce    works"), "{text}");
}

#[test]
fn a_taken_port_is_noticed_with_its_owner() {
    with_privilege("examine::a_taken_port_is_noticed_with_its_owner", || {
        let namespace = Namespace::new().unwrap();
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 4791));
        let free = inside(&namespace, &["doctor"]);
        contains(&free, &["UDP port 4791 is free"]);
        let _owner = namespace.run(|| UdpSocket::bind(any).unwrap()).unwrap();
        let taken = inside(&namespace, &["doctor"]);
        let me = format!("process {}", std::process::id());
        contains(&taken, &["note    port", "UDP port 4791 is taken", &me]);
        contains(&taken, &["an RNIC at the other end knows only 4791"]);
        let other = inside(&namespace, &["doctor", "--roce-port", "4792"]);
        contains(&other, &["UDP port 4792 is free"]);
    });
}

#[test]
fn a_host_without_a_network_is_told_so() {
    with_privilege("examine::a_host_without_a_network_is_told_so", || {
        let namespace = Namespace::new().unwrap();
        let doctor = inside(&namespace, &["doctor"]);
        contains(&doctor, &["no interface but loopback is up", "ip link"]);
        contains(&doctor, &["roce    works    on this host only"]);
        let explain = inside(&namespace, &["explain", "10.0.0.1"]).expect(3);
        contains(&explain, &["route", "none: no route to 10.0.0.1"]);
        let words = ["explain", "--json", "10.0.0.1"];
        let explained = inside(&namespace, &words).expect(3).last_json();
        assert_eq!(explained["local"], Value::Null);
        let why = explained["no_route"].as_str().unwrap();
        assert!(why.contains("unreachable"), "{why}");
    });
}

#[test]
fn the_limit_of_locked_memory_is_read_where_the_program_runs() {
    let program = env!("CARGO_BIN_EXE_catchment");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -l 64 && exec {program} doctor --json")]);
    let report = finish(&mut shell).last_json();
    let seen = check(&report, "memlock")["seen"].as_str().unwrap();
    assert!(seen.contains("may lock 64 KiB"), "{seen}");
}

#[test]
fn interfaces_are_measured_against_the_packets_that_fit() {
    with_privilege("examine::interfaces_are_measured_against_the_packets_that_fit", || {
        for (mtu, level, path_mtu) in [(1500, "note", 1024), (JUMBO, "ok", 4096)] {
            let hosts = VethPair::new(mtu).unwrap();
            let report = inside(&hosts.left, &["doctor", "--json"]).last_json();
            let interface = check(&report, "interface");
            assert_eq!(interface["level"], level, "{interface:#}");
            let seen = interface["seen"].as_str().unwrap();
            assert!(seen.contains(&format!("path MTU {path_mtu}")), "{seen}");
            let rows = inside(&hosts.left, &["devices", "--json"]).expect(0).json_lines();
            assert_eq!(rows[0]["provider"], "shm");
            let veth = rows.iter().find(|row| row["interface"] == "veth0").unwrap();
            assert_eq!(veth["path_mtu"], path_mtu, "{veth:#}");
            assert_eq!(veth["mtu_bytes"], mtu, "{veth:#}");
        }
    });
}

#[test]
fn a_collector_on_this_host_explains_shared_memory() {
    let (_dir, collector) = collecting();
    let finished = run(["explain", &collector.address]).expect(0);
    contains(&finished, &["shm at", "same host, network namespace and user"]);
    let explained = run(["explain", "--json", &collector.address]).expect(0).last_json();
    let session = &explained["session"];
    assert_eq!(session["provider"], "shm", "{explained:#}");
    assert_eq!(session["path_mtu"], Value::Null);
    // Two sessions, and no device of them.
    let summary = collector.end();
    assert_eq!(summary["queue_pairs"], 2, "{summary:#}");
    assert_eq!(summary["devices"].as_array().unwrap().len(), 0);
}

/// A collector of its own in the left namespace.
fn collector_at(hosts: &VethPair, address: &str) -> Collector {
    let words = ["--insecure", "--sink", "null"];
    hosts.left.run(|| Collector::start_with(address, &words)).unwrap()
}

#[test]
fn a_collector_on_another_host_explains_and_packets_prove_it() {
    with_privilege("examine::a_collector_on_another_host_explains_and_packets_prove_it", || {
        let hosts = VethPair::new(JUMBO).unwrap();
        for ip in [VethPair::LEFT_V4, VethPair::LEFT_V6] {
            let collector = collector_at(&hosts, &SocketAddr::new(ip, 0).to_string());
            let words = ["explain", "--insecure", &collector.address];
            let finished = inside(&hosts.right, &words).expect(0);
            let there = format!("to {ip} (roce), path MTU 4096, selective repeat");
            contains(&finished, &["packets of 4096 bytes pass both ways", &there]);
            contains(&finished, &["not shm: the source is in another network namespace"]);
            let words = ["explain", "--insecure", "--json", "--roce-mtu", "512"];
            let words = [&words[..], &[&collector.address]].concat();
            let explained = inside(&hosts.right, &words).expect(0).last_json();
            let session = &explained["session"];
            assert_eq!(session["path_mtu"], 512, "{explained:#}");
            assert_eq!(session["recovery"], "selective repeat");
            assert!(session["source_qpn"].as_u64() > Some(0), "{explained:#}");
            assert!(explained["proven_in_us"].as_f64() > Some(0.0));
        }
    });
}

#[test]
fn packets_that_do_not_pass_are_told_soon_and_with_what_to_do() {
    with_privilege("examine::packets_that_do_not_pass_are_told_soon_and_with_what_to_do", || {
        let hosts = VethPair::new(1500).unwrap();
        let address = SocketAddr::new(VethPair::LEFT_V4, 0).to_string();
        let collector = collector_at(&hosts, &address);
        let lost = ["--insecure", "--fault", "drop=1", &collector.address];
        let why = format!("no answer from {} UDP port 4791", VethPair::LEFT_V4);
        let firewall = "open UDP port 4791 in both directions";
        let finished = inside(&hosts.right, &[&["explain"][..], &lost].concat()).expect(3);
        contains(&finished, &["tried", "roce to roce", &why, firewall]);
        let source = ["send", "--wait", "4", "--input", "synthetic", "--device", "cam"];
        let finished = inside(&hosts.right, &[&source[..], &lost].concat()).expect(3);
        contains(&finished, &[&why, firewall]);
        let refused = collector.end()["sessions_refused"].as_u64();
        assert!(refused >= Some(4), "a path and a choice, twice: {refused:?}");
    });
}

#[test]
fn nobody_there_is_told_with_what_this_side_knows() {
    let finished = run(["explain", "127.0.0.1:1"]).expect(3);
    contains(&finished, &["route", "from 127.0.0.1", "is anything listening there?"]);
    let finished = run(["explain", "no-such-host.invalid"]).expect(3);
    contains(&finished, &["cannot find the address of no-such-host.invalid"]);
    let finished = run(["explain", "a:b:c"]).expect(2);
    contains(&finished, &["HOST:PORT"]);
    let finished = run(["explain", "--provider", "pigeon", "127.0.0.1"]).expect(2);
    contains(&finished, &["known: shm, ibverbs, roce"]);
}

#[test]
fn a_doctor_asks_agents_and_a_controller_and_says_what_keeps_grants_away() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("doctor-{}", std::process::id());
    let policy = dir.path().join("policy.json");
    let text = format!(r#"{{"name": "{name}", "applications": [{{"name": "a"}}]}}"#);
    std::fs::write(&policy, text).unwrap();
    let agent =
        Service::start_command(catchment().args(["agent", "--json", "--policy"]).arg(&policy));
    let control = ["control", "--json", "--bottleneck", "1Gbit", "--listen", "127.0.0.1:0"];
    let controller = Service::start_command(catchment().args(control));
    let words = ["doctor", "--json", "--controller", &controller.address];
    let report = run(words).last_json();
    let seen = |name: &str| {
        let of = |check: &&Value| check["name"] == name;
        let all: Vec<&Value> = report["checks"].as_array().unwrap().iter().filter(of).collect();
        all.iter().map(|check| check["seen"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(seen("agent").contains(&format!("{name}; applications connected: 0")), "{report:#}");
    assert!(seen("controller")[0].contains("grants in term"), "{report:#}");
    assert!(seen("grants")[0].contains("ms there and back"), "{report:#}");
    assert_eq!(check(&report, "grants")["level"], "ok");
    drop((agent, controller));
    // Something listens there that is no controller.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    std::thread::spawn(move || drop(silent.accept()));
    let report = run(["doctor", "--json", "--controller", &address]).last_json();
    assert_eq!(check(&report, "controller")["level"], "problem");
}
