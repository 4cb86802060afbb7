//! Closed outputs, processes with nothing to do, and the live page beside them.
use crate::common::{INPUT, Running, Service, catchment, collecting, send, wait_for_frames};
use catchment::observe::cpu::usage_of;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const COLLECT: [&str; 6] = ["collect", "--listen", "127.0.0.1:0", "--sink", "null", "--json"];

/// As `catchment WORDS | head -1` does: reads a line, then closes the pipe.
fn read_one_line(command: &mut Command) -> (String, i32, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (line, output.status.code().unwrap_or(-1), said)
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (line, code, said) = read_one_line(catchment().args(COLLECT));
    assert!(line.contains("\"listening\""), "{line}");
    assert_eq!((code, said.as_str()), (0, ""));
    // More than a pipe holds, so that the command is still writing.
    let sums = ["checksums", "--input", INPUT, "--frames", "20000"];
    let (line, code, said) = read_one_line(catchment().args(sums));
    assert_eq!(line.trim().len(), 8, "{line}");
    assert_eq!((code, said.as_str()), (0, ""));
}

#[test]
fn a_source_goes_on_when_nobody_reads_its_progress() {
    let (_dir, collector) = collecting();
    let words = ["--json", "--rate", "100", "--frames", "150"];
    let (line, code, said) = read_one_line(&mut send(INPUT, "cam", &collector.address, &words));
    assert!(line.contains("\"connected\""), "{line}");
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(collector.end()["frames_received"], 150);
}

#[test]
fn the_live_page_is_on_by_default() {
    let collector = Service::start_command(catchment().args(COLLECT));
    let url = collector.listening["dashboard"].as_str().unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut page = TcpStream::connect(address).unwrap();
    write!(page, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_lowercase().contains("<!doctype html>"), "{answer}");
}

const WATCHED: Duration = Duration::from_secs(3);

/// Most processor time of an idle process (S1.30). Other processes do not add to it.
const CPU_PERCENT_MOST: f64 = 2.0;

/// Most times in a second that the threads of an idle process may wake: with one frame a second they wake
/// for it, for the lease of the session and for looking at its stop; a poll each millisecond has 1,000.
const WAKE_UPS_MOST: f64 = 100.0;

/// What a process has used so far: processor time in seconds, and how often its threads went to sleep,
/// which is how often they woke.
fn used(pid: u32) -> (f64, u64) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let sleeps = tasks.filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    (usage_of(pid).unwrap().cpu_s, sleeps.sum())
}

/// With nothing to send a source sleeps and looks again now and then, and so does its collector (S1.30).
#[test]
fn idle_processes_sleep() {
    let (dir, collector) = collecting();
    let words = ["--json", "--rate", "1"];
    let source = Running::start(&mut send(INPUT, "cam", &collector.address, &words));
    wait_for_frames(dir.path(), "cam", 1);
    let ids = [collector.id(), source.id()];
    let before = ids.map(used);
    // The thing measured is what happens while nothing happens.
    std::thread::sleep(WATCHED);
    let after = ids.map(used);
    drop(source);
    let summary = collector.end();
    let latency = [&summary["latency_us_p50"], &summary["latency_us_max"]];
    println!("from waking up to delivery p50 {} us, most {} us", latency[0], latency[1]);
    for (who, (before, after)) in ["collector", "source"].iter().zip(before.iter().zip(after)) {
        let seconds = WATCHED.as_secs_f64();
        let percent = (after.0 - before.0) / seconds * 100.0;
        let wake_ups = (after.1 - before.1) as f64 / seconds;
        println!(
            "{who}, 1 frame/s: {percent:.2} % of a processor, {wake_ups:.0} wake-ups a second"
        );
        assert!(percent < CPU_PERCENT_MOST, "{who}: {percent:.2} %");
        assert!(wake_ups < WAKE_UPS_MOST, "{who}: {wake_ups:.0} wake-ups a second");
    }
    assert!(latency.iter().all(|us| us.is_number()), "wake-up latency is reported: {summary}");
}
