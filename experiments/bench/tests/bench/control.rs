//! What the transmission controller's service takes.
use super::{lines, run};
use serde_json::Value;

/// The service really grants what is asked for, and a goal that nothing was measured for is neither held nor missed.
#[test]
fn control_says_what_a_grant_takes_and_which_goals_it_did_not_measure() {
    let lines = lines(&run(&["control", "--json", "--what", "paper-rate", "--seconds", "1"]));
    assert_eq!(lines[0]["what"], "run");
    let [bare, row] = &lines[1..3] else { panic!("{lines:?}") };
    // What sockets take without a controller.
    assert_eq!((&bare["what"], &bare["offered"]), (&"bare".into(), &"paper-rate".into()));
    assert!(bare["cpu_us_per_grant"].as_f64().unwrap() > 0.0, "{bare}");
    assert_eq!((&row["what"], &row["sources"]), (&"paper-rate".into(), &12.into()));
    assert!(row["begins_us_p50"].as_f64() >= row["answer_us_p50"].as_f64(), "{row}");
    assert!(row["transfers"].as_u64().unwrap() > 0, "{row}");
    for name in ["grants_per_s", "cpu_us_per_grant", "answer_us_p50", "answer_us_p99", "rss_bytes"]
    {
        assert!(row[name].as_f64().unwrap() > 0.0, "{row}");
    }
    for name in ["first_grant_ms", "frames_lost", "rate_error_p95"] {
        assert_eq!(row[name], Value::Null, "{row}");
    }
    let goals: Vec<_> = lines.iter().filter(|line| line["what"] == "goal").collect();
    let measured = goals.iter().filter(|goal| goal["held"] != Value::Null);
    assert_eq!(measured.count(), 1, "{goals:?}");
    for goal in &goals {
        assert_eq!(goal["held"].is_null(), goal["value"].is_null(), "{goal}");
        assert_eq!(goal["held"] != true, goal["why_not"].is_string(), "{goal}");
    }
    let last = lines.last().unwrap();
    assert_eq!((&last["what"], &last["of"]), (&"goals".into(), &goals.len().into()));
    assert_eq!(last["not_measured"], goals.len() - 1);
}

/// All devices get a rate from the service, and keep it as long as they are measured.
#[test]
fn control_says_what_rates_take_that_are_renewed() {
    let options = ["control", "--json", "--what", "leases", "--sources", "2", "--seconds", "1"];
    let lines = lines(&run(&options));
    let row = &lines[1];
    assert_eq!((&row["what"], &row["devices"]), (&"leases".into(), &200.into()));
    assert!(row["renewals_per_s"].as_f64().unwrap() > 0.0, "{row}");
    assert_eq!(lines.last().unwrap()["of"], lines.len() - 3, "{lines:?}");
}
