//! The measurements of the status bytes as their users run them.
use super::{lines, run};
use serde_json::Value;

fn goals(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["what"] == "goal").collect()
}

/// No clock is in it: what it prints is what holds.
#[test]
fn s1_33_reads_holds_its_goal_in_every_line_and_says_the_same_again() {
    let lines_once = lines(&run(&["reads", "--json", "--seed", "2"]));
    let goals = goals(&lines_once);
    assert_eq!(goals.len(), 9, "three loads, three rings");
    assert!(goals.iter().all(|goal| goal["held"] == true), "{goals:?}");
    let shipped = lines_once.iter().filter(|line| line["policy"] == "adaptive");
    assert_eq!(shipped.count(), 18);
    assert_eq!(lines_once, lines(&run(&["reads", "--json", "--seed", "2"])));
}

/// Times of a test that shares its cores say nothing: only that both ways find what was released
/// (the program fails otherwise), and that the goal is held against the right rows.
#[test]
fn s1_32_scan_measures_both_ways_and_judges_one_ring_size() {
    let lines = lines(&run(&["scan", "--json", "--rounds", "3"]));
    let rows: Vec<_> = lines.iter().filter(|line| line["what"] == "scan").collect();
    assert_eq!(rows.len(), 16);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("find_ns_scan") > 0.0 && number("look_ns_loop") > 0.0);
        assert!(number("find_ratio_p5") <= number("find_ratio_p95"), "{row}");
    }
    let goals = goals(&lines);
    let released: Vec<_> = goals.iter().map(|goal| &goal["released"]).collect();
    assert_eq!(released, [0, 1, 8, 512]);
    assert!(goals.iter().all(|goal| goal["slots"] == 1024));
}
