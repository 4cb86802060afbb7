//! The program as its users run it, on the smallest cells.
use super::{Folder, errors, lines, run};
use serde_json::Value;

#[test]
fn mechanisms_are_verified_and_measured_side_by_side() {
    // Yielding, and with patience for a row, since a test shares its cores with other tests.
    let output = run(&[
        "transfer", "--json", "--quick", "--wait", "yield", "--limit", "600", "--only",
        "ours-copy,4096,3", "--only", "ours-in-place,4096,3", "--only", "memcpy,4096,3", "--only",
        "tcp,4096,3",
    ]);
    let lines = lines(&output);
    assert_eq!(lines[0]["what"], "cache-line");
    assert!(lines[0]["environment"]["cores"].as_u64().unwrap() > 0);
    let names: Vec<&str> = lines[1..].iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(names, ["ours-copy", "ours-in-place", "memcpy", "tcp"]);
    for line in &lines[1..] {
        assert_eq!((&line["bytes"], &line["blocks"]), (&4096.into(), &3.into()));
        // Nine blocks of each of two pairs of processes, compared byte by byte.
        assert_eq!(line["verified_blocks"], 18, "{line}");
        let number = |name: &str| line[name].as_f64().unwrap();
        assert!(number("latency_ns_p50") > 1.0, "{line}");
        assert!(number("latency_ns_p99") >= number("latency_ns_p50"), "{line}");
        assert!(number("cpu_s_per_gb_source") > 0.0, "{line}");
        // Both are rounded to whole numbers.
        let blocks_per_s = number("bytes_per_s") / 4096.0;
        assert!((blocks_per_s - number("blocks_per_s")).abs() < 1.0, "{line}");
    }
}

/// A row that takes longer than it may is killed and named, and the run goes on to its end.
#[test]
fn a_row_that_passes_its_limit_is_named_and_ends_nothing() {
    let only = ["--only", "ours-copy,64,3", "--only", "unix,64,3"];
    let output = run(&[&["transfer", "--json", "--quick", "--limit", "0"], &only[..]].concat());
    let lines = lines(&output);
    let passed = lines.iter().filter(|line| line["what"] == "limit");
    let passed: Vec<&str> = passed.map(|line| line["row"].as_str().unwrap()).collect();
    assert_eq!(passed, ["cache-line", "ours-copy", "unix"]);
    assert!(lines.iter().any(|line| line["environment"].is_object()), "{lines:?}");
    let errors = errors(&output);
    assert!(errors.contains("unix, shm, 64 bytes, 3 blocks: passed its limit of 0 s"), "{errors}");
}

/// The cells of one line; a quoted one may hold commas and doubled quotes, no line breaks.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cells.last_mut().unwrap().push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    cells
}

/// A cell as the JSON value that it stands for.
fn value(cell: &str) -> Value {
    match cell {
        "" => Value::Null,
        _ => serde_json::from_str(cell).unwrap_or_else(|_| cell.into()),
    }
}

#[test]
fn s1_35_the_csv_file_has_the_same_rows_as_the_json_lines() {
    let folder = Folder::new("csv");
    let file = folder.0.join("transfer.csv");
    let mut arguments = vec!["transfer", "--json", "--quick", "--wait", "yield"];
    // Beside other programs a row may take long: one that passes its limit is in no file.
    arguments.extend(["--limit", "600", "--csv", file.to_str().unwrap()]);
    let cells_measured = ["ours-copy,64,3", "paper,64,3", "memcpy,64,3", "unix,64,3"];
    for only in &cells_measured {
        arguments.extend(["--only", only]);
    }
    let output = run(&arguments);
    let mut json = lines(&output);
    let text = std::fs::read_to_string(&file).unwrap();

    let mut csv = text.lines();
    let names = cells(csv.next().unwrap());
    assert_eq!(&names[..4], ["what", "provider", "bytes", "blocks"]);
    json.retain(|line| line["what"] != "goal");
    // The first JSON line also has the machine, which is no column.
    json[0].as_object_mut().unwrap().remove("environment");
    let rows: Vec<Value> = csv
        .map(|line| {
            let values = cells(line);
            assert_eq!(values.len(), names.len(), "{line}");
            let pairs = names.iter().cloned().zip(values.iter().map(|v| value(v)));
            Value::Object(pairs.collect())
        })
        .collect();
    assert_eq!(rows, json);

    let row = |what: &str| rows.iter().find(|row| row["what"] == what).unwrap();
    let paper = row("paper");
    assert_eq!(paper["send_queue_depth_source"], 2);
    assert_eq!(paper["completion_queue_depth_source"], 1);
    for what in ["ours-copy", "paper"] {
        assert_eq!(row(what)["provider"], "shm");
        assert!(row(what)["status_read_ns_p50"].as_f64().unwrap() > 1.0);
        assert!(row(what)["status_reads_per_block"].as_f64().unwrap() > 0.0);
        assert!(row(what)["rss_bytes_peak_collector"].as_u64().unwrap() > 100_000);
    }
    assert!(row("memcpy")["rss_bytes_peak_collector"].is_null());
    assert!(row("unix")["queue_pairs_source"].is_null());
    assert_eq!(row("unix")["provider"], "kernel");
}

#[test]
fn a_filter_that_leaves_nothing_is_named() {
    let output = run(&["transfer", "--only", "memcpy,65,3"]);
    assert!(!output.status.success());
    let errors = errors(&output);
    assert!(errors.contains("--only") && errors.contains("65536"), "{errors}");
}
