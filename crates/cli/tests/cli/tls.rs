//! Certificates: made by the command, demanded off loopback, checked on both sides.
use crate::common::{Collector, INPUT, check_synthetic, run};
use std::path::Path;

fn files(dir: &Path, name: &str) -> Vec<String> {
    let files = [("cert", format!("{name}.pem")), ("key", format!("{name}.key"))];
    let files = files.into_iter().chain([("ca", "ca.pem".to_owned())]);
    files.map(|(option, file)| format!("--{option}={}", dir.join(file).display())).collect()
}

fn make(dir: &Path) {
    let out = dir.to_str().unwrap();
    let words = ["cert", "--out", out, "--name", "127.0.0.1,localhost", "--name", "camera"];
    let finished = run(words).expect(0);
    assert!(finished.stdout.contains("camera.pem"), "{finished:#?}");
}

fn start(out: &Path, words: &[String]) -> Collector {
    let mut all = vec!["--out", out.to_str().unwrap()];
    all.extend(words.iter().map(String::as_str));
    Collector::start_with("127.0.0.1:0", &all)
}

fn send(collector: &Collector, words: &[String]) -> crate::common::Finished {
    let usual = ["--wait", "3", "--frames", "20", "--rate", "max"];
    let mut command = crate::common::send(INPUT, "cam", &collector.address, &usual);
    crate::common::finish(command.args(words))
}

#[test]
fn frames_come_from_who_has_a_certificate_of_the_same_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    make(&ours);
    make(&theirs);
    let out = dir.path().join("out");
    let collector = start(&out, &files(&ours, "127.0.0.1"));
    let other = send(&collector, &files(&theirs, "camera")).expect(3);
    assert!(other.stderr.to_lowercase().contains("certificate"), "{other:#?}");
    let none = send(&collector, &[]).expect(3);
    assert!(none.stderr.contains(&collector.address), "{none:#?}");
    send(&collector, &files(&ours, "camera")).expect(0);
    check_synthetic(&out, "cam", 0, INPUT, 20);
}

/// Keys go over the encrypted session; a side that does not authenticate gets no path to one that does.
#[test]
fn packets_are_authenticated_between_two_that_ask_for_it() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let out = dir.path().join("out");
    let with = |files: Vec<String>, more: &[&str]| {
        files.into_iter().chain(more.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
    };
    let authenticated = ["--require", "roce", "--authenticate"];
    let collector = start(&out, &with(files(dir.path(), "127.0.0.1"), &authenticated));
    let plain = with(files(dir.path(), "camera"), &["--require", "roce"]);
    let refused = send(&collector, &plain).expect(3);
    assert!(refused.stderr.contains("authenticated packets only"), "{refused:#?}");
    send(&collector, &with(files(dir.path(), "camera"), &authenticated)).expect(0);
    check_synthetic(&out, "cam", 0, INPUT, 20);
    let summary = collector.end();
    assert_eq!((&summary["provider"], &summary["frames_lost"]), (&"roce".into(), &0.into()));
    let in_clear = run(["collect", "--out", out.to_str().unwrap(), "--authenticate"]).expect(2);
    assert!(in_clear.stderr.contains("--cert"), "{in_clear:#?}");
}

#[test]
fn certificates_are_not_overwritten_and_the_authority_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let out = dir.path().to_str().unwrap();
    let again = run(["cert", "--out", out, "--name", "camera"]).expect(5);
    assert!(again.stderr.contains("camera.pem exists"), "{again:#?}");
    let authority = std::fs::read(dir.path().join("ca.pem")).unwrap();
    let more = run(["cert", "--json", "--out", out, "--name", "camera2"]).expect(0);
    assert_eq!(more.last_json()["names"][0], "camera2");
    assert_eq!(std::fs::read(dir.path().join("ca.pem")).unwrap(), authority);
}

/// An address of this machine that is not loopback, if it has one.
fn other_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only looks up its route.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn off_loopback_only_with_certificates_or_an_explicit_word() {
    let Some(address) = other_address() else {
        eprintln!("this machine has only loopback: nothing to test");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let listen = format!("{address}:0");
    let out = dir.path().to_str().unwrap();
    let refused = run(["collect", "--listen", &listen, "--out", out]).expect(5);
    assert!(refused.stderr.contains("catchment cert"), "{refused:#?}");
    let collector = Collector::start_with(&listen, &["--out", out, "--insecure"]);
    let unsaid = send(&collector, &[]).expect(3);
    assert!(unsaid.stderr.contains("--insecure"), "{unsaid:#?}");
    send(&collector, &["--insecure".to_owned()]).expect(0);
    check_synthetic(dir.path(), "cam", 0, INPUT, 20);
}
