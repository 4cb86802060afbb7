//! The papers' experiments as their users run them, those without a clock.
use super::{Folder, bench, errors, rows};
use catchment_netns::with_privilege;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

fn run(folder: &Folder, arguments: &[&str]) -> String {
    let output = bench(&["papers", "--quick", "--realtime", "off", "--out"])
        .arg(&folder.0)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Exact numbers in virtual time, the same on every machine.
#[test]
fn e1_1_interactions_are_those_of_the_paper_and_the_page_says_so() {
    let folder = Folder::new("e1.1");
    let said = run(&folder, &["--json", "--only", "E1.1", "--provider", "sim"]);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let claimed: Vec<&Value> = lines.iter().filter(|line| !line["held"].is_null()).collect();
    assert!(claimed.len() >= 5, "{said}");
    for line in claimed {
        assert_eq!(line["experiment"], "E1.1");
        assert_eq!(line["provider"], "sim");
        assert_eq!(line["held"], true, "{line}");
        assert!(line["measured"].as_f64().is_some() && line["claim"].is_string());
        assert!(line["id"].as_str().unwrap().starts_with("E1.1."), "{line}");
        assert_eq!(line["registered"]["commit"], "a4ef7233");
        // Nobody's core was looked after in virtual time.
        assert!(line["disturbed"].is_null() && line["why_not"].is_null(), "{line}");
        assert_eq!(line["unit"], "1");
    }
    let index = fs::read_to_string(folder.0.join("papers.md")).unwrap();
    assert!(index.contains("| [E1.1](papers/e1.1.md) |"), "{index}");
    assert!(index.contains("| E1.13 | Throughput over the block size | not measured |"), "{index}");
    let page = fs::read_to_string(folder.0.join("papers/e1.1.md")).unwrap();
    assert!(page.contains("# E1.1") && page.contains("| held |"), "{page}");
    let command = "cargo xtask bench papers --quick --only E1.1 --provider sim --realtime off`";
    assert!(page.contains(command), "{page}");
    let rows = rows(&folder, "e1.1");
    for column in [
        "experiment", "mechanism", "metric", "median", "ci_low", "wait", "source_core", "build",
        "kernel", "commit",
    ] {
        assert!(rows.iter().all(|row| row.get(column).is_some()), "{column}");
    }
}

/// Experiments are measured on different days, a table is of what is there, and whoever measures again on the same
/// day leaves a trace of what was before.
#[test]
fn e1_21_experiments_of_several_runs_make_one_page() {
    let folder = Folder::new("several");
    let sim = ["--provider", "sim", "--only"];
    run(&folder, &[&sim[..], &["E1.1"]].concat());
    run(&folder, &[&sim[..], &["E1.22"]].concat());
    let said = run(&folder, &["--provider", "shm", "--only", "E1.21"]);
    assert!(said.contains("lines without"), "{said}");
    let table = fs::read_to_string(folder.0.join("papers/e1.21.md")).unwrap();
    let line = |start: &str| table.lines().find(|line| line.contains(start)).unwrap().to_owned();
    assert!(line("interactions for a block, 3 blocks").contains("1.333"), "{table}");
    assert!(line("latency of 256 B").ends_with("| - | - | - | - | - | - |"), "{table}");
    let index = || fs::read_to_string(folder.0.join("papers.md")).unwrap();
    for id in ["e1.1", "e1.21", "e1.22"] {
        assert!(index().contains(&format!("](papers/{id}.md) |")), "{}", index());
    }
    let before = index();
    run(&folder, &[&sim[..], &["E1.1"]].concat());
    let page = fs::read_to_string(folder.0.join("papers/e1.1.md")).unwrap();
    assert_eq!(page.matches("Another quick run of the day, before it").count(), 1, "{page}");
    assert_eq!(before.lines().count(), index().lines().count());
    let kept = fs::read_to_string(folder.0.join("papers/e1.1.jsonl")).unwrap();
    let first: Value = serde_json::from_str(kept.lines().next().unwrap()).unwrap();
    assert_eq!((&first["what"], &first["experiment"]), (&"run".into(), &"E1.1".into()));
    // What somebody damaged is named, and not taken for nothing.
    fs::write(folder.0.join("papers/e1.1.jsonl"), "{}\n").unwrap();
    let output = bench(&["papers", "--quick", "--only", "E1.22", "--provider", "sim", "--out"])
        .arg(&folder.0)
        .output()
        .unwrap();
    assert!(!output.status.success() && errors(&output).contains("e1.1.jsonl, line 1"));
}

/// What was promised is in one list, with the day of each promise: a claim that is dropped, weakened or
/// dated anew changes this file, where everybody sees it.
#[test]
fn every_claim_is_listed_as_it_was_registered() {
    let listed = bench(&["papers", "--list"]).output().unwrap();
    assert!(listed.status.success(), "{}", errors(&listed));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let committed = include_str!("claims.txt");
    for (listed, committed) in listed.lines().zip(committed.lines()) {
        assert_eq!(listed, committed, "`papers --list` differs from tests/bench/claims.txt");
    }
    assert_eq!(listed.lines().count(), committed.lines().count());
    let of = |section: &str, count: usize| {
        (1..=count).map(|one| format!("{section}{one}")).collect::<Vec<_>>()
    };
    let sections = [
        of("H", 12),
        of("4.1.", 5),
        of("4.2.", 5),
        of("4.3.", 2),
        of("4.4.", 3),
        of("I", 14),
        of("M", 6),
        of("E3.8.", 1),
    ];
    let experiments = ["1.1", "1.10", "1.11", "1.12", "1.13", "1.15", "1.16", "1.17", "1.18"];
    let others = ["1.19", "1.20", "1.21", "1.22", "3.5", "3.6", "3.7"];
    let first = experiments.iter().chain(&others).map(|one| format!("E{one}.1"));
    for id in sections.concat().into_iter().chain(first) {
        let is_it = |line: &str| line.split_whitespace().next() == Some(&id);
        assert!(listed.lines().any(is_it), "no claim {id}");
    }
}

/// Claims that nothing measures are told as that, and others as the claim that they repeat.
#[test]
fn a_claim_that_is_not_measured_says_so() {
    let folder = Folder::new("unmeasured");
    let only = ["--json", "--only", "E1.22", "--only", "I11", "--only", "I1", "--provider", "sim"];
    let said = run(&folder, &only);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = |id: &str| lines.iter().find(|line| line["id"] == id).unwrap();
    for id in ["I11", "I1"] {
        assert!(line(id)["held"].is_null() && line(id)["provider"].is_null());
        assert_eq!(line(id)["why_not"], "not measured");
    }
    assert_eq!(line("I1")["must"], "as E1.13.5");
    // One cell of the model is missed, and the rows say which.
    let missed = lines.iter().filter(|line| line["held"] == false);
    for missed in missed {
        let why = missed["why_not"].as_str().unwrap();
        assert!(why.contains("blocks, ") && why.contains("workers"), "{missed}");
    }
    assert_eq!(line("E1.22.3")["held"], false, "{said}");
}

/// A claim that another bench measures is judged by the rows that this one left.
#[test]
fn a_claim_of_another_bench_is_judged_by_its_goals() {
    let folder = Folder::new("elsewhere");
    let only = ["--only", "E1.1", "--only", "E5.16", "--provider", "sim"];
    let output = bench(&["papers", "--quick", "--json"])
        .args(only)
        .arg("--out")
        .arg(&folder.0)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_claim: Vec<Value> = lines.filter(|line| line["id"] == "E5.16.1").collect();
    // Medians of three commands and the gain of one, over two lines.
    assert_eq!(of_claim.len(), 2 * 4, "{said}");
    for line in of_claim {
        assert!(line["measured"].is_number() && line["must"].is_string(), "{line}");
        let missed = line["held"] == false;
        assert_eq!(missed, line["why_not"].is_string(), "{line}");
    }
    let index = fs::read_to_string(folder.0.join("papers.md")).unwrap();
    assert!(index.contains("| E5.16.1 | Redis") && index.contains("](tunnel.md) |"), "{index}");
}

/// The plan of a whole run, which takes hours, is there at once, and nothing else happens.
#[test]
fn a_plan_names_every_experiment_and_its_time() {
    let folder = Folder::new("plan");
    let output = bench(&["papers", "--full", "--plan", "--out"]).arg(&folder.0).output().unwrap();
    let plan = errors(&output);
    assert!(output.status.success(), "{plan}");
    for id in ["E1.1 ", "E1.13", "E1.22", "E3.5"] {
        assert!(plan.lines().any(|line| line.starts_with(id)), "{plan}");
    }
    assert!(plan.contains("all of them"), "{plan}");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

/// Whoever ends a run keeps what was measured until then.
#[test]
fn a_run_that_is_killed_leaves_its_first_experiments() {
    let folder = Folder::new("killed");
    let mut child = bench(&["papers", "--full", "--realtime", "off", "--provider", "sim"])
        .args(["--only", "E1.1", "--only", "E1.22", "--out"])
        .arg(&folder.0)
        .spawn()
        .unwrap();
    let page = folder.0.join("papers.md");
    let began = Instant::now();
    while !page.exists() && began.elapsed() < Duration::from_secs(120) {
        // The first experiment ends meanwhile.
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("| [E1.1](papers/e1.1.md) |"), "{page}");
    assert!(page.contains("| E1.22 | Release in any order | not measured |"), "{page}");
    assert!(rows(&folder, "e1.1").len() > 5);
}

/// A scenario of a user's own: two cells in virtual time, a picture, a claim that fails.
#[test]
fn e1_13_a_claim_that_fails_is_published_as_failed() {
    let folder = Folder::new("own");
    let file = folder.0.join("mine.toml");
    let scenario = r#"
        id = "E9.1"
        title = "Mine"
        source = "nowhere"
        method = "As it comes."
        workload = "stream"
        [[measure]]
        providers = ["sim"]
        mechanisms = ["sb-paper", "sw-paper", "sw-paper-inline"]
        blocks = [3]
        constants = { t_write_us = 3.5, bytes_per_s = 7e9, t_read_us = 5.1, t_send_us = 70.0, t_credit_us = 3.5 }
        quick = { bytes = [1048576, 2097152] }
        full = { bytes = [1048576] }
        [[plot]]
        name = "speed"
        title = "Speed"
        metric = "bytes_per_s"
        y = "GB/s"
        scale = 1e-9
        [[claim]]
        id = "E9.1"
        registered = { commit = "26eeeb07", date = "2026-11-22" }
        claim = "Ten times as fast"
        providers = ["sim"]
        metric = "blocks_per_s"
        mechanism = "sb-paper"
        over = "sw-paper"
        take = "least"
        at_least = 10
        note = "It is not."
    "#;
    fs::write(&file, scenario).unwrap();
    let said = run(&folder, &["--scenario", file.to_str().unwrap()]);
    assert!(said.contains("NOT HELD") && said.contains("Ten times"), "{said}");
    let index = fs::read_to_string(folder.0.join("papers.md")).unwrap();
    assert!(index.contains("0 claims held, 1 did not"), "{index}");
    let page = fs::read_to_string(folder.0.join("papers/e9.1.md")).unwrap();
    assert!(page.contains("It is not."), "{page}");
    // The reason is of the rows, not of whoever wrote the scenario.
    let reason = page.lines().find(|line| line.starts_with("- Not held: E9.1")).unwrap();
    assert!(reason.contains("sb-paper blocks_per_s") && !reason.contains("It is not."), "{reason}");
    assert!(!page.contains("Failed"), "{page}");
    let svg = fs::read_to_string(folder.0.join("papers/e9.1-speed-sim.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("GB/s"));
    let png = fs::read(folder.0.join("papers/e9.1-speed-sim.png")).unwrap();
    assert_eq!(png[..4], [0x89, b'P', b'N', b'G']);
}

/// The transmission controller's rows: by load, with packets where they are asked for, and knees (S2.1).
#[test]
fn e2_1_grants_have_rows_by_load_and_knees() {
    let folder = Folder::new("grants");
    let file = folder.0.join("grants.toml");
    let part = |rest: &str| {
        format!(
            "[[measure]]\nproviders = [\"sim\"]\nblocks = [12]\n{rest}\n\
             full = {{ bytes = [24883200], milliseconds = 1000 }}\n"
        )
    };
    let mut text =
        "id = \"E9.4\"\ntitle = \"Grants\"\nsource = \"nowhere\"\nmethod = \"As it comes.\"\n\
                    workload = \"grants\"\n"
            .to_owned();
    let quick = |seconds: u32, seeds: u32| {
        format!(
            "quick = {{ bytes = [24883200], milliseconds = {seconds}000, repetitions = {seeds} }}"
        )
    };
    let both = "mechanisms = [\"spq\", \"deadline\"]\nloads = [0.3]\npackets = true\nvariant = \"packets\"\n";
    text.push_str(&part(&format!("{both}{}", quick(1, 1))));
    let long = "mechanisms = [\"tcm\", \"p-tcm\"]\nloads = [0.3, 0.8]\nvariant = \"grants\"\n";
    text.push_str(&part(&format!("{long}{}", quick(60, 2))));
    text.push_str(&part(&format!(
        "mechanisms = [\"deadline\"]\nvariant = \"20 ms\"\n{}",
        quick(60, 1)
    )));
    text.push_str(
        "[[claim]]\nid = \"E9.4.1\"\nregistered = { commit = \"26eeeb07\", date = \"2026-11-22\" }\n\
         claim = \"Priority helps the urgent ones\"\nproviders = [\"sim\"]\nmetric = \"urgent_ms_p95\"\n\
         mechanism = \"p-tcm\"\nover = \"tcm\"\nvariant = \"grants\"\nalong = \"x\"\nat = { x = 0.8 }\nat_most = 1\n",
    );
    fs::write(&file, text).unwrap();
    let said = run(&folder, &["--json", "--scenario", file.to_str().unwrap()]);
    let line: Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(line["held"], true, "{line}");
    let rows = rows(&folder, "e9.4");
    let of = |mechanism: &str, metric: &str, x: Option<f64>| {
        let is_it = |row: &&Value| {
            row["mechanism"] == mechanism && row["metric"] == metric && row["x"].as_f64() == x
        };
        rows.iter().find(is_it).unwrap_or_else(|| panic!("no {metric} of {mechanism} at {x:?}"))
    };
    assert_eq!(of("deadline", "packets_dropped", Some(0.3))["median"], 0.0);
    assert_eq!(of("p-tcm", "urgent_ms_p95", Some(0.8))["samples"], 2);
    let knee = of("deadline", "knee_events", None)["median"].as_f64().unwrap();
    assert!((0.5..1.1).contains(&knee), "{knee}");
    // Level packet alone has them.
    assert!(
        !rows.iter().any(|row| row["mechanism"] == "tcm" && row["metric"] == "packets_dropped")
    );
}

/// One scheme for all providers and mechanisms (S1.35): times of synchronisation and of a block, throughput,
/// processor time, memory and resources of the device; and each row names how both sides waited (S1.16).
#[test]
fn s1_16_s1_35_rows_of_all_providers_have_one_scheme_and_name_the_waiting() {
    with_privilege(
        "papers::s1_16_s1_35_rows_of_all_providers_have_one_scheme_and_name_the_waiting",
        || {
            let folder = Folder::new("scheme");
            let file = folder.0.join("scheme.toml");
            let part = |providers: &str, mechanisms: &str, wait: &str| {
                format!(
                    "[[measure]]\nproviders = [\"{providers}\"]\nmechanisms = [{mechanisms}]\nblocks = [3]\n\
                 wait = \"{wait}\"\nconstants = {{ t_write_us = 3.5, bytes_per_s = 7e9, t_read_us = 5.1, \
                 t_send_us = 70.0, t_credit_us = 3.5 }}\nquick = {{ bytes = [4096], milliseconds = 1 }}\n\
                 full = {{ bytes = [4096] }}\n"
                )
            };
            let waits = ["spin", "yield", "sleep", "doorbell"];
            let both = "\"paper\", \"sw-fair\"";
            let mut text = "id = \"E9.3\"\ntitle = \"Scheme\"\nsource = \"nowhere\"\nmethod = \"As it comes.\"\n\
                        workload = \"stream\"\n"
            .to_owned();
            text.extend(waits.map(|wait| part("shm", both, wait)));
            text.push_str(&part("roce", both, "doorbell"));
            text.push_str(&part("sim", "\"sb-paper\"", "spin"));
            text.push_str(
            "[[claim]]\nid = \"E9.3.1\"\nregistered = { commit = \"26eeeb07\", date = \"2026-11-22\" }\n\
             claim = \"Rows\"\nproviders = [\"shm\"]\nmetric = \"bytes_per_s\"\nmechanism = \"paper\"\n\
             take = \"least\"\nreport = true\n",
        );
            fs::write(&file, text).unwrap();
            run(&folder, &["--json", "--scenario", file.to_str().unwrap()]);
            let rows = rows(&folder, "e9.3");
            let columns =
                |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert!(rows.iter().all(|row| columns(row) == columns(&rows[0])));
            let is_there = |provider: &str, mechanism: &str, wait: &str, metric: &str| {
                rows.iter().any(|row| {
                    row["provider"] == provider
                        && row["mechanism"] == mechanism
                        && row["wait"] == wait
                        && row["metric"] == metric
                        && row["median"].as_f64().is_some_and(|median| median > 0.0)
                })
            };
            let of_waits = waits.map(|wait| ("shm", wait));
            for (provider, wait) in of_waits.into_iter().chain([("roce", "doorbell")]) {
                for mechanism in ["paper", "sw-fair"] {
                    for metric in [
                        "latency_ns", "bytes_per_s", "cpu_s_per_gb_source",
                        "cpu_s_per_gb_collector", "rss_bytes_source", "rss_bytes_collector",
                        "queue_pairs",
                    ] {
                        let found = is_there(provider, mechanism, wait, metric);
                        assert!(found, "no {metric} of {mechanism} over {provider}, {wait}");
                    }
                }
                assert!(is_there(provider, "paper", wait, "sync_ns"), "{provider}, {wait}");
            }
            assert!(
                rows.iter().any(|row| row["provider"] == "sim" && row["metric"] == "bytes_per_s")
            );
        },
    );
}

/// Programs of other projects that are not installed are named, with how to get them.
#[test]
fn what_is_not_installed_is_left_out_with_a_note() {
    let folder = Folder::new("missing");
    let file = folder.0.join("missing.toml");
    let scenario = r#"
        id = "E9.2"
        title = "Others"
        source = "nowhere"
        method = "As it comes."
        workload = "stream"
        [[measure]]
        providers = ["shm"]
        mechanisms = ["iperf3", "ucx"]
        blocks = [3]
        quick = { bytes = [4096] }
        full = { bytes = [4096] }
        [[claim]]
        id = "E9.1"
        registered = { commit = "26eeeb07", date = "2026-11-22" }
        claim = "Throughput"
        providers = ["shm"]
        metric = "bytes_per_s"
        mechanism = "iperf3"
        report = true
    "#;
    fs::write(&file, scenario).unwrap();
    let output = bench(&["peers", "--json", "--scenario"])
        .arg(&file)
        .arg("--out")
        .arg(&folder.0)
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let errors = errors(&output);
    assert!(output.status.success(), "{errors}");
    let page = fs::read_to_string(folder.0.join("peers/e9.2.md")).unwrap();
    for remedy in ["iperf3", "ucx-utils"] {
        let remedy = format!("is not on this machine: apt-get install {remedy}");
        assert!(errors.contains(&remedy) && page.contains(&remedy), "{page}");
    }
}
