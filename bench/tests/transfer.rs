//! The program as its users run it, on the smallest cells.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_catchment-bench"))
        .arg("transfer")
        .args(arguments)
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn mechanisms_are_verified_and_measured_side_by_side() {
    // Yielding, since a test shares its cores with other tests.
    let output = run(&[
        "--json",
        "--quick",
        "--wait",
        "yield",
        "--only",
        "ours-copy,4096,3",
        "--only",
        "ours-in-place,4096,3",
        "--only",
        "memcpy,4096,3",
        "--only",
        "tcp,4096,3",
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = lines(&output);
    assert_eq!(lines[0]["what"], "cache-line");
    assert!(lines[0]["environment"]["cores"].as_u64().unwrap() > 0);
    let names: Vec<&str> = lines[1..]
        .iter()
        .map(|line| line["what"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["ours-copy", "ours-in-place", "memcpy", "tcp"]);
    for line in &lines[1..] {
        assert_eq!((&line["bytes"], &line["blocks"]), (&4096.into(), &3.into()));
        // Nine blocks, each compared byte by byte.
        assert_eq!(line["verified_blocks"], 9, "{line}");
        let number = |name: &str| line[name].as_f64().unwrap();
        assert!(number("latency_ns_p50") > 1.0, "{line}");
        assert!(
            number("latency_ns_p99") >= number("latency_ns_p50"),
            "{line}"
        );
        assert!(number("cpu_s_per_gb_source") > 0.0, "{line}");
        let ratio = number("bytes_per_s") / number("blocks_per_s");
        assert!((ratio - 4096.0).abs() < 1.0, "{line}");
    }
}

#[test]
fn a_filter_that_leaves_nothing_is_named() {
    let output = run(&["--only", "memcpy,65,3"]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("--only") && errors.contains("65536"),
        "{errors}"
    );
}
