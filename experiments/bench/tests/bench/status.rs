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

/// The predictor has learned: with room it stalls no more than the oracle and reads hardly more. What the last
/// line says of it follows from the rows.
#[test]
fn s1_34_what_a_learned_prediction_gains_follows_from_its_rows() {
    let lines = lines(&run(&["reads", "--json", "--seed", "2"]));
    let rows: Vec<_> = lines.iter().filter(|line| line["what"] == "prediction").collect();
    assert_eq!(rows.len(), 18);
    let gains = rows.iter().filter(|row| {
        let number = |name: &str| row[name].as_f64().unwrap();
        let [reads, fixed] = [number("reads"), number("reads_fixed")];
        let [stall, stall_fixed] = [number("stall_ns"), number("stall_ns_fixed")];
        (reads <= 0.9 * fixed && stall <= stall_fixed)
            || (stall_fixed > 0.0 && stall <= 0.9 * stall_fixed && reads <= fixed)
    });
    let gains = gains.count();
    let verdict = lines.last().unwrap();
    assert_eq!((&verdict["what"], &verdict["id"]), (&"verdict".into(), &"S1.34".into()));
    assert_eq!(verdict["gains"], gains);
    assert_eq!(verdict["verdict"], if 2 * gains > rows.len() { "gain" } else { "no gain" });
    for row in rows.iter().filter(|row| row["slots"] != 3) {
        let oracle = lines.iter().find(|line| {
            line["policy"] == "adaptive"
                && ["times", "load", "slots"].iter().all(|key| line[key] == row[key])
        });
        let oracle = oracle.unwrap()["reads_oracle"].as_f64().unwrap();
        assert!(row["reads"].as_f64().unwrap() <= 1.15 * oracle, "{row}");
    }
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
    assert_eq!(released, [0, 0, 1, 1, 8, 8, 512, 512], "beside a loop, and by the clock");
    assert!(goals.iter().all(|goal| goal["slots"] == 1024));
}
