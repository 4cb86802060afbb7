//! Closed outputs, processes with nothing to do, and the live page beside them.
use crate::common::{INPUT, Running, Service, catchment, collecting, send, wait_for_frames};
use catchment::observe::cpu::usage_of;
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

/// With nothing to send a source sleeps, and so does its collector (S1.30).
#[test]
fn idle_processes_sleep() {
    let (dir, collector) = collecting();
    let words = ["--json", "--rate", "1"];
    let source = Running::start(&mut send(INPUT, "cam", &collector.address, &words));
    wait_for_frames(dir.path(), "cam", 1);
    let cpu_s = |id| usage_of(id).unwrap().cpu_s;
    let before = [collector.id(), source.id()].map(cpu_s);
    // The thing measured is what happens while nothing happens.
    std::thread::sleep(WATCHED);
    let after = [collector.id(), source.id()].map(cpu_s);
    let percent = |i: usize| (after[i] - before[i]) / WATCHED.as_secs_f64() * 100.0;
    drop(source);
    let summary = collector.end();
    println!(
        "1 frame/s: collector {:.1} % CPU, source {:.1} %; from waking up to delivery p50 {} us, most {} us",
        percent(0),
        percent(1),
        summary["latency_us_p50"],
        summary["latency_us_max"]
    );
    // No figure is demanded of a loaded machine; a thread that turns in circles has 100 %.
    assert!(percent(0) < 20.0 && percent(1) < 20.0);
}
