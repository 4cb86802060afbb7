//! One program for every machine: it needs no RDMA library to start, says what is missing when it is
//! asked for RDMA hardware, and does its work over the other providers. (The lab runs the same program
//! over `ibverbs`.)
use crate::common::{Finished, run};
use std::path::Path;
use std::process::Command;

const WITHOUT: [&str; 2] = ["--ibverbs-library", "/nowhere/libibverbs.so.1"];

fn demo(provider: &str) -> Finished {
    let words = ["demo", "--json", "--devices", "2", "--seconds", "1"];
    let more = ["--no-dashboard", "--provider", provider];
    run(words.iter().chain(&more).chain(&WITHOUT))
}

#[test]
fn frames_arrive_without_an_rdma_library() {
    // A demo that asks for an agent starts one.
    for provider in ["shm", "roce", "agent"] {
        let summary = demo(provider).expect(0).last_json();
        assert_eq!(summary["provider"], provider, "{summary}");
        assert_eq!(summary["queue_pairs"], 1, "{summary}");
        assert_eq!(summary["cpu_percent_agent"].is_number(), provider == "agent", "{summary}");
        assert_eq!(summary["frames_verified"], summary["frames_sent"], "{summary}");
        assert_eq!(summary["frames_lost"], 0, "{summary}");
        assert!(summary["frames_sent"].as_u64().unwrap() > 0, "{summary}");
    }
}

#[test]
fn what_is_missing_for_rdma_hardware_is_said() {
    let finished = demo("ibverbs");
    assert_ne!(finished.code, Some(0), "{finished:#?}");
    for words in ["/nowhere/libibverbs.so.1", "apt install"] {
        assert!(finished.stderr.contains(words), "lacks {words}: {finished:#?}");
    }
}

/// It would not start on machines without it.
#[test]
fn the_program_is_not_linked_to_an_rdma_library() {
    let program = env!("CARGO_BIN_EXE_catchment");
    assert!(Path::new(program).exists());
    let output = Command::new("ldd").arg(program).output().unwrap();
    let libraries = String::from_utf8(output.stdout).unwrap();
    assert!(libraries.contains("libc.so"), "{libraries}");
    for name in ["ibverbs", "rdmacm", "libmlx"] {
        assert!(!libraries.contains(name), "{libraries}");
    }
}
