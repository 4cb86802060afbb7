//! The papers' experiments as their users run them, those without a clock.
use super::{Folder, bench, errors};
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
    }
    let page = fs::read_to_string(folder.0.join("papers.md")).unwrap();
    assert!(page.contains("## E1.1") && page.contains("| held |"), "{page}");
    let command = "cargo xtask bench papers --quick --only E1.1 --provider sim --realtime off`";
    assert!(page.contains(command), "{page}");
    let rows = fs::read_to_string(folder.0.join("papers/rows.csv")).unwrap();
    let columns: Vec<&str> = rows.lines().next().unwrap().split(',').collect();
    for column in [
        "experiment", "mechanism", "metric", "median", "ci_low", "wait", "source_core", "build",
        "kernel", "commit",
    ] {
        assert!(columns.contains(&column), "{columns:?}");
    }
    let json = fs::read_to_string(folder.0.join("papers/rows.json")).unwrap();
    assert_eq!(json.lines().count(), rows.lines().count() - 1);
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
    assert!(page.contains("## E1.1:"), "{page}");
    assert!(page.contains("Not measured yet: E1.22."), "{page}");
    let rows = fs::read_to_string(folder.0.join("papers/rows.csv")).unwrap();
    assert!(rows.lines().skip(1).all(|row| row.starts_with("E1.1,")));
    assert!(rows.lines().count() > 5, "{rows}");
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
    let page = fs::read_to_string(folder.0.join("papers.md")).unwrap();
    assert!(page.contains("0 claims held, 1 did not") && page.contains("It is not."), "{page}");
    assert!(!page.contains("Failed"), "{page}");
    let svg = fs::read_to_string(folder.0.join("papers/e9.1-speed-sim.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("GB/s"));
    let png = fs::read(folder.0.join("papers/e9.1-speed-sim.png")).unwrap();
    assert_eq!(png[..4], [0x89, b'P', b'N', b'G']);
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
    let page = fs::read_to_string(folder.0.join("peers.md")).unwrap();
    for remedy in ["iperf3", "ucx-utils"] {
        let remedy = format!("is not on this machine: apt-get install {remedy}");
        assert!(errors.contains(&remedy) && page.contains(&remedy), "{page}");
    }
}
