//! `mechanisms`: every mechanism by name, over shared memory and software RoCE.
use super::{errors, lines, run};
use serde_json::Value;

fn is_sound(row: &Value) {
    assert_eq!(row["test"], "transfer", "{row}");
    assert_eq!(row["bytes"], 3000, "{row}");
    assert_eq!(row["iterations"], 100, "{row}");
    let number = |name: &str| row[name].as_f64().unwrap();
    assert!(number("client_cpu_percent") > 0.0, "{row}");
    assert!(number("server_cpu_percent") >= 0.0, "{row}");
    if row["typical_ns"].is_number() {
        let order = ["min_ns", "typical_ns", "p99_ns", "p999_ns", "max_ns"].map(number);
        assert!(order[0] > 0.0 && order.is_sorted(), "{row}");
    } else {
        assert!(row["peak_bytes_per_s"].is_null(), "{row}");
        let average = number("average_bytes_per_s");
        let product = number("messages_per_s") * 3000.0;
        assert!(average > 0.0 && (product / average - 1.0).abs() < 1e-6, "{row}");
    }
}

#[test]
fn every_mechanism_moves_blocks_over_shm_and_roce() {
    for (provider, most) in [("shm", 11), ("roce", 9)] {
        for latency in [&[][..], &["--latency"]] {
            let words = ["transfer", "--json", "-m", "all", "-n", "100", "-b", "4", "-s", "3000"];
            let words: Vec<&str> = words.into_iter().chain(["--provider", provider]).collect();
            let output = run(&[&["mechanisms"], &words[..], latency].concat());
            let (mut rows, errors) = (lines(&output), errors(&output));
            assert_eq!(rows.remove(0)["client_provider"], provider);
            assert_eq!(rows.len(), most, "{rows:?}{errors}");
            for row in &rows {
                assert_eq!(row["blocks"], 4, "{row}");
                assert!(row["mechanism"].is_string(), "{row}");
                is_sound(row);
            }
            let over_network = provider == "roce";
            for name in ["sb-in-place", "sw-fair-tail-in-place"] {
                let left_out = errors.contains(&format!("left out: {name}"));
                assert_eq!(left_out, over_network, "{errors}");
            }
        }
    }
}

#[test]
fn an_unknown_mechanism_and_one_that_the_path_lacks_are_named() {
    let output = run(&["mechanisms", "transfer", "-m", "tape"]);
    let seen = errors(&output);
    assert!(!output.status.success() && seen.contains("rendezvous"), "{seen}");
    let output =
        run(&["mechanisms", "transfer", "-m", "sw-fair-tail-in-place", "--provider", "roce"]);
    let seen = errors(&output);
    assert!(!output.status.success() && seen.contains("use sw-fair-tail"), "{seen}");
}
