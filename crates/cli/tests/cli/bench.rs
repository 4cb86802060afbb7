//! `catchment bench`: all tests over the providers that every machine has, on one host and between
//! two, and what it says when something is wrong or somebody is gone.
use crate::common::{Running, Service, catchment, finish, run};
use catchment::observe::cpu::usage_of;
use catchment_netns::{VethPair, wait_until, with_privilege};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const TESTS: [&str; 8] = [
    "write_bw", "write_lat", "read_bw", "read_lat", "write_imm_bw", "write_imm_lat", "send_bw",
    "send_lat",
];

fn server(listen: &str, more: &[&str]) -> Service {
    let words = ["bench", "server", "--json", "--listen", listen];
    Service::start_command(catchment().args(words).args(more))
}

#[track_caller]
fn is_sound(test: &str, row: &Value, bytes: u64, iterations: u64) {
    assert_eq!(row["test"], test, "{row}");
    assert_eq!(row["bytes"], bytes, "{row}");
    assert_eq!(row["iterations"], iterations, "{row}");
    let number = |name: &str| row[name].as_f64().unwrap();
    assert!(number("client_cpu_percent") > 0.0, "{row}");
    if row["typical_ns"].is_number() {
        let order = ["min_ns", "typical_ns", "p99_ns", "p999_ns", "max_ns"].map(number);
        assert!(order[0] > 0.0 && order.is_sorted(), "{row}");
    } else {
        let average = number("average_bytes_per_s");
        let peak = row["peak_bytes_per_s"].as_f64();
        assert_eq!(peak.is_none(), test == "transfer", "{row}");
        assert!(average > 0.0 && peak.is_none_or(|peak| peak >= average), "{row}");
        assert!((number("messages_per_s") * bytes as f64 / average - 1.0).abs() < 1e-6, "{row}");
    }
}

#[test]
fn every_test_runs_on_one_machine_over_shm_and_roce() {
    for provider in ["shm", "roce"] {
        for test in TESTS {
            let words = ["bench", test, "--json", "-s", "1,100,70000", "-n", "200"];
            let finished = run(words.iter().chain(&["--provider", provider])).expect(0);
            let lines = finished.json_lines();
            assert_eq!(lines[0]["client_provider"], provider, "{lines:?}");
            for (row, bytes) in lines[1..].iter().zip([1, 100, 70_000]) {
                is_sound(test, row, bytes, 200);
            }
            assert_eq!(lines.len(), 4);
        }
    }
}

/// Who starts an operation pays for it, and who is written or read does nothing: over shared memory WRITE and
/// READ cost the passive side next to no processor time, SEND and WRITE with immediate data cost it
/// receives and completions (S1.21).
#[test]
fn s1_21_each_operation_reports_what_it_costs_both_ends() {
    let cost = |test: &str| {
        // As many for all: the time of a request, and not that of the rest of the world, is compared.
        let words = ["bench", test, "--json", "-s", "64", "-n", "200000", "--provider", "shm"];
        let finished = run(words).expect(0);
        let row = finished.json_lines().remove(1);
        let number = |name: &str| row[name].as_f64().unwrap();
        let [active, passive] = ["client_cpu_percent", "server_cpu_percent"].map(number);
        let ns = 1e9 / number("messages_per_s") / 100.0;
        println!(
            "{test}: {:.0} ns of the active side, {:.0} of the passive",
            active * ns,
            passive * ns
        );
        (active * ns, passive * ns)
    };
    for test in ["write_bw", "read_bw"] {
        let (active, passive) = cost(test);
        assert!(active > 0.0 && 10.0 * passive < active, "{test}: {active}, {passive}");
    }
    let (_, idle) = cost("write_bw");
    for test in ["write_imm_bw", "send_bw"] {
        let (active, passive) = cost(test);
        assert!(active > 0.0 && passive > 10.0 * idle, "{test}: {active}, {passive}, {idle}");
    }
}

#[test]
fn the_status_bytes_move_blocks_over_shm_and_roce() {
    for (provider, most) in [("shm", 2), ("roce", 1)] {
        for latency in [&[][..], &["--latency"]] {
            let what = ["bench", "transfer", "--json", "-m", "all", "-n", "100"];
            let sizes = ["-b", "4", "-s", "3000", "--provider", provider];
            let finished = run(what.iter().chain(&sizes).chain(latency)).expect(0);
            let lines = finished.json_lines();
            assert_eq!(lines[0]["server_provider"], provider, "{lines:?}");
            assert_eq!(lines.len(), 1 + most, "{finished:#?}");
            for row in &lines[1..] {
                assert_eq!(row["blocks"], 4, "{row}");
                assert!(row["mechanism"].is_string(), "{row}");
                is_sound("transfer", row, 3000, 100);
            }
            let over_network = provider == "roce";
            let left_out = finished.stderr.contains("left out: sb-in-place");
            assert_eq!(left_out, over_network, "{finished:#?}");
        }
    }
}

#[test]
fn both_ways_of_waiting_measure_and_the_table_has_perftests_columns() {
    for (test, column) in [("send_bw", "BW average[MiB/sec]"), ("send_lat", "t_typical[usec]")] {
        for wait in ["yield", "sleep"] {
            let words = ["bench", test, "-D", "0.05", "--wait", wait];
            let finished = run(words.iter().chain(&["--provider", "roce"])).expect(0);
            assert!(finished.stdout.contains(column), "{finished:#?}");
            assert_eq!(finished.stdout.lines().count(), 3, "{finished:#?}");
        }
    }
}

#[test]
fn two_hosts_are_measured_over_packets() {
    with_privilege("bench::two_hosts_are_measured_over_packets", || {
        let pair = VethPair::new(9000).unwrap();
        let right = format!("{}:0", VethPair::RIGHT_V4);
        let server = pair.right.run(move || server(&right, &["--insecure"])).unwrap();
        let at = server.address.clone();
        for test in TESTS {
            let words = ["bench", test, "--json", "-n", "50", "--connect", &at].map(str::to_owned);
            let finished = pair.left.run(move || run(words)).unwrap().expect(0);
            let lines = finished.json_lines();
            assert_eq!(lines[0]["server_provider"], "roce", "{lines:?}");
            assert_eq!(lines[0]["path_mtu"], 4096, "{lines:?}");
            assert_eq!(server.next_event("served")["plans"], 1);
        }
    });
}

/// Waits until the client has computed for longer than it takes to begin. It must sleep while it
/// waits: beside busy programs a thread that yields computes next to nothing.
fn wait_until_it_measures(client: &Running) {
    wait_until("it measures", || usage_of(client.id()).unwrap().cpu_s >= 0.3);
}

#[test]
fn who_talks_nonsense_or_is_killed_is_told_of_and_the_next_one_is_served() {
    let server = server("127.0.0.1:0", &[]);
    let at = server.address.clone();
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{\"type\":\"over\",\"requests\":1}\n"] {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.write_all(nonsense).unwrap();
        let mut said = Vec::new();
        // It may be closed with bytes unread, which is an error here.
        let _ = stream.read_to_end(&mut said);
        let told = server.next_event("failed")["error"].to_string();
        assert!(told.contains("hello"), "{told}");
    }
    let words = ["bench", "send_lat", "--wait", "sleep", "-D", "60", "--json", "-c", &at];
    let client = Running::start(catchment().args(words));
    wait_until_it_measures(&client);
    client.kill();
    server.next_event("failed");
    run(["bench", "write_bw", "-n", "10", "-c", &at]).expect(0);
    assert_eq!(server.next_event("served")["plans"], 1);
}

#[test]
fn a_killed_server_ends_a_measurement() {
    for provider in ["shm", "roce"] {
        let server = server("127.0.0.1:0", &[]);
        let words = ["bench", "send_lat", "--wait", "sleep", "-D", "3000"];
        let words = words.into_iter().chain(["--provider", provider, "-c"]);
        let client = Running::start(catchment().args(words).arg(&server.address));
        wait_until_it_measures(&client);
        server.kill();
        // A client that went on would not end within the limit of a process.
        let finished = client.finish().expect(1);
        assert!(finished.stderr.contains("error: "), "{finished:#?}");
    }
}

#[test]
fn errors_say_what_was_wrong_and_exit_as_they_should() {
    let looks = ["bench", "write_lat", "--wait", "sleep"];
    for (words, code, text) in [
        (&looks[..], 2, "send_lat"),
        (&["bench", "write_bw", "-s", "1GiB"], 2, "268435456"),
        (&["bench", "write_bw", "-t", "0"], 2, "--tx-depth"),
        (&["bench", "transfer", "-m", "tape"], 2, "rendezvous"),
        (&["bench", "transfer", "-b", "0"], 2, "1 to 4096"),
        (&["bench", "transfer", "-b", "4096", "-s", "1MiB"], 2, "more than"),
        (
            &["bench", "transfer", "-m", "sb-in-place", "--provider", "roce"],
            2,
            "use sb over a network",
        ),
        (&["bench", "write_bw", "--provider", "tape"], 2, "tape"),
        (&["bench", "write_bw", "-c", "127.0.0.1:1"], 3, "bench server"),
        (&["bench", "server", "--listen", "0.0.0.0:0"], 2, "--insecure"),
        (&["bench", "server", "--insecure", "--listen", "192.0.2.1:1"], 5, "192.0.2.1:1"),
        (&["bench", "write_bw", "--fault", "drop=0.1"], 2, "--provider roce"),
    ] {
        let finished = finish(catchment().args(words)).expect(code);
        assert!(finished.stderr.contains(text), "{finished:#?}");
    }
    let server = server("127.0.0.1:0", &["--forbid", "shm"]);
    let words = ["bench", "write_bw", "--provider", "shm", "-c", &server.address];
    let finished = run(words).expect(3);
    assert!(finished.stderr.contains("forbidden"), "{finished:#?}");
}
