//! Refusals that do not go away end a source with the reason and the remedy. None of these sources has a
//! limit for its waiting.
use crate::common::{
    Collector, Finished, INPUT, Running, catchment, finish, run, send, wait_for_frames,
};
use catchment::session::cert::Authority;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A source that must end by itself with exit code 3 and these words.
#[track_caller]
fn refused(collector: &str, words: &[String], says: &[&str]) -> Finished {
    let mut command = send(INPUT, "cam", collector, &["--rate", "50"]);
    let finished = finish(command.args(words)).expect(3);
    for text in says {
        assert!(finished.stderr.contains(text), "{text:?} is not said: {finished:#?}");
    }
    finished
}

fn certificates(dir: &Path) -> Vec<String> {
    let out = dir.to_str().unwrap();
    run(["cert", "--out", out, "--name", "127.0.0.1,localhost", "--name", "camera"]).expect(0);
    files(dir, "camera")
}

fn files(dir: &Path, name: &str) -> Vec<String> {
    let file = |option: &str, file: &str| format!("--{option}={}", dir.join(file).display());
    let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
    vec![file("cert", &cert), file("key", &key), file("ca", "ca.pem")]
}

fn collector(words: &[String]) -> Collector {
    let mut all = vec!["--sink", "null"];
    all.extend(words.iter().map(String::as_str));
    Collector::start_with("127.0.0.1:0", &all)
}

#[test]
fn certificates_that_do_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let (good, other) = (certificates(&ours), certificates(&theirs));
    let collector = collector(&files(&ours, "127.0.0.1"));
    let authority = ["another certificate authority", "use certificates of one authority"];
    refused(&collector.address, &other, &authority);
    // This one accepts the collector, which does not accept it: the source learns that later.
    let mut stranger = other;
    stranger[2].clone_from(&good[2]);
    refused(&collector.address, &stranger, &authority);
    let past = SystemTime::now() - 2 * YEAR;
    let authority = Authority::open(&ours).unwrap();
    authority.issue("old", &["localhost", "127.0.0.1"], past, YEAR).unwrap();
    let old = files(&ours, "old");
    refused(&collector.address, &old, &["our certificate", "has expired", "catchment cert"]);
    let expired = self::collector(&old);
    let says = ["the peer's certificate has expired", "catchment cert"];
    refused(&expired.address, &good, &says);
}

#[test]
fn tls_on_one_side_only() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = certificates(dir.path());
    let plain = collector(&[]);
    refused(&plain.address, &certificates, &["does not speak TLS", "--cert", "or on neither"]);
    let protected = collector(&files(dir.path(), "127.0.0.1"));
    refused(&protected.address, &[], &["TLS", "--cert", "--ca"]);
}

#[test]
fn a_provider_that_one_side_requires_and_cannot_have() {
    let ibverbs = ["--require".to_owned(), "ibverbs".to_owned()];
    let shm = ["--require".to_owned(), "shm".to_owned()];
    let any = collector(&[]);
    refused(&any.address, &ibverbs, &["ibverbs"]);
    let strict = collector(&["--require".to_owned(), "roce".to_owned()]);
    refused(&strict.address, &shm, &["no_path", "roce", "shm"]);
}

#[test]
fn a_name_that_another_live_source_has() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(dir.path());
    let words = ["--rate", "50"];
    let _first = Running::start(&mut send(INPUT, "cam", &collector.address, &words));
    wait_for_frames(dir.path(), "cam", 1);
    let says = ["another live source sends device cam", "give this device another name"];
    refused(&collector.address, &[], &says);
}

/// What a collector answers to this text.
fn answer(collector: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(collector).unwrap();
    stream.write_all(&framed(text)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn framed(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat()
}

#[test]
fn sources_of_other_versions_are_told_both_and_which_side_to_update() {
    let collector = collector(&[]);
    let ours = format!("catchment {} and speaks session protocol 3", env!("CARGO_PKG_VERSION"));
    for (protocol, theirs, update) in [
        (r#"{"min":2,"max":2}"#, "catchment 0.0.1 and speaks session protocol 2", "the source"),
        (
            r#"{"min":4,"max":5}"#,
            "catchment 0.0.1 and speaks session protocols 4 to 5",
            "the collector",
        ),
    ] {
        // Nothing else of it need be as this version knows it.
        let hello = format!(
            r#"{{"type":"hello","protocol":{protocol},"software":"catchment 0.0.1","mood":"good"}}"#
        );
        let answer = answer(&collector.address, &hello);
        for text in ["protocol_version", theirs, &ours, &format!("update {update}")] {
            assert!(answer.contains(text), "{text:?} is not in {answer}");
        }
    }
}

#[test]
fn a_collector_of_another_version_ends_the_source() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // As the version before this one refuses.
    let refusal = r#"{"type":"refused","code":"protocol_version","reason":"the source speaks protocol versions 3 to 3, this side 2 to 2","remedy":"update the collector","retry_after_ms":null}"#;
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(&framed(refusal)).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    });
    let ours = format!("this source is catchment {}", env!("CARGO_PKG_VERSION"));
    refused(&address, &[], &["2 to 2", "update the collector", &ours, "session protocol 3"]);
    serving.join().unwrap();
}

#[test]
fn a_collector_without_descriptors_says_so_and_keeps_its_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap().to_owned();
    // Both limits, so that raising the soft one gains nothing.
    let binary = catchment().get_program().to_str().unwrap().to_owned();
    let script = format!(
        "ulimit -n 160; exec {binary} collect --json --no-dashboard --listen 127.0.0.1:0 --out {out}"
    );
    let collector =
        Collector::start_command(std::process::Command::new("sh").args(["-c", &script]));
    let frames = ["--rate", "100", "--frames", "1000"];
    let first = Running::start(send(INPUT, "first", &collector.address, &frames).arg("--json"));
    wait_for_frames(dir.path(), "first", 1);
    let more = |i: usize| {
        let words = ["--rate", "10", "--frames", "50"];
        Running::start(&mut send(INPUT, &format!("more{i}"), &collector.address, &words))
    };
    let more: Vec<_> = (0..20).map(more).collect();
    let waited = more.into_iter().map(|source| source.finish().expect(0)).filter(|finished| {
        let says = ["no file descriptors for another session", "of the 160", "ulimit -n"];
        says.iter().all(|text| finished.stderr.contains(text))
    });
    assert!(waited.count() > 0, "none had to wait");
    let first = first.finish().expect(0).last_json();
    assert_eq!((&first["reconnects"], &first["frames_sent"]), (&0.into(), &1000.into()));
    let summary = collector.end();
    assert_eq!(summary["frames_received"], 1000 + 20 * 50, "{summary:#}");
    assert_eq!((&summary["frames_lost"], &summary["sink_errors"]), (&0.into(), &0.into()));
}
