//! Certificates: made by the command, demanded off loopback, checked on both sides.
use crate::common::{
    Collector, INPUT, Kept, Running, catchment, check_synthetic, run, signal, wait_for_frames,
};
use catchment_netns::wait_until;
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

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

/// Puts certificates, keys and authority of one folder in the places of those in another, as programs
/// that renew them do.
fn renew(live: &Path, new: &Path) {
    for name in ["127.0.0.1.pem", "127.0.0.1.key", "camera.pem", "camera.key", "ca.pem"] {
        fs::copy(new.join(name), live.join("beside")).unwrap();
        fs::rename(live.join("beside"), live.join(name)).unwrap();
    }
}

#[test]
fn changed_certificates_hold_for_new_sessions_and_end_no_stream() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    let (live, first, second) = (folder("live"), folder("first"), folder("second"));
    for out in [&live, &first, &second] {
        make(out);
    }
    renew(&live, &first);
    let out = folder("out");
    let collector = start(&out, &files(&live, "127.0.0.1"));
    let words = ["--json", "--rate", "50"];
    let mut stream = crate::common::send(INPUT, "stream", &collector.address, &words);
    let stream = Running::start(stream.args(files(&live, "camera")));
    wait_for_frames(&out, "stream", 5);
    // By themselves.
    renew(&live, &second);
    send(&collector, &files(&first, "camera")).expect(3);
    send(&collector, &files(&second, "camera")).expect(0);
    // When asked to, and what is no certificate changes nothing.
    fs::write(live.join("camera.pem"), "broken").unwrap();
    fs::write(live.join("127.0.0.1.pem"), "broken").unwrap();
    let hang_up = |says: &str| {
        for process in [collector.id(), stream.id()] {
            signal(process, Signal::HUP);
        }
        wait_until(&format!("the source says {says:?}"), || stream.said().contains(says));
    };
    hang_up("stay as they were");
    send(&collector, &files(&second, "camera")).expect(0);
    renew(&live, &first);
    hang_up("are read again");
    send(&collector, &files(&second, "camera")).expect(3);
    send(&collector, &files(&first, "camera")).expect(0);
    let so_far = crate::common::frames(&out.join("stream")).len();
    wait_for_frames(&out, "stream", so_far + 5);
    signal(stream.id(), Signal::TERM);
    let finished = stream.finish().expect(0);
    assert_eq!(finished.last_json()["reconnects"], 0, "{finished:#?}");
    assert_eq!(collector.end()["frames_lost"], 0);
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_chmod_to_make() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let key = dir.path().join("camera.key");
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let chmod = format!("chmod 600 {}", key.display());
    let words = ["collect", "--listen", "127.0.0.1:0", "--sink", "null"].map(str::to_owned);
    let collect = run(words.into_iter().chain(files(dir.path(), "camera"))).expect(5);
    assert!(collect.stderr.contains(&chmod), "{collect:#?}");
    let words = ["send", "--input", INPUT, "127.0.0.1:1"].map(str::to_owned);
    let send = run(words.into_iter().chain(files(dir.path(), "camera"))).expect(5);
    assert!(send.stderr.contains(&chmod), "{send:#?}");
    let ca = dir.path().join("ca.key");
    fs::set_permissions(&ca, Permissions::from_mode(0o604)).unwrap();
    let out = dir.path().to_str().unwrap();
    let cert = run(["cert", "--out", out, "--name", "more"]).expect(5);
    assert!(cert.stderr.contains(&format!("chmod 600 {}", ca.display())), "{cert:#?}");
    // As it says.
    assert!(Command::new("sh").args(["-c", &chmod]).status().unwrap().success());
    let words = ["send", "--input", INPUT, "--wait", "0", "127.0.0.1:1"].map(str::to_owned);
    run(words.into_iter().chain(files(dir.path(), "camera"))).expect(3);
}

/// Starts `catchment collect` in words; returns what it says until it works.
fn talking(words: &[String]) -> (Kept, String) {
    let mut command = catchment();
    command.args(["collect", "--no-dashboard"]).args(words).stderr(Stdio::piped());
    let mut process = Kept(command.spawn().unwrap());
    let mut said = String::new();
    let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
    while !said.contains("Ctrl-C ends it") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    // Kept open: the process may have more to say.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (process, said)
}

/// Runs a command as a user pastes it into a shell.
fn paste(command: &str) -> crate::common::Finished {
    crate::common::finish(&mut pasted(command))
}

fn pasted(command: &str) -> Command {
    let folder = Path::new(env!("CARGO_BIN_EXE_catchment")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).stdin(Stdio::null());
    shell
}

#[test]
fn the_printed_command_of_a_collector_works() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let mut source = crate::common::send(INPUT, "cam", &free.to_string(), &["--frames", "3"]);
    let source = Running::start(source.args(files(dir.path(), "camera")));
    wait_until("the source says how to start one", || {
        source.said().contains("if none runs there: ")
    });
    let said = source.said();
    let command = said.lines().find_map(|line| line.split_once("if none runs there: ")).unwrap().1;
    let mut shell = pasted(&format!("exec {command}"));
    let _collector = Kept(shell.current_dir(dir.path()).spawn().unwrap());
    source.finish().expect(0);
    check_synthetic(&dir.path().join("frames"), "cam", 0, INPUT, 3);
}

#[test]
fn the_printed_command_of_a_source_works_and_insecure_warns_once() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let out = dir.path().join("out").to_str().unwrap().to_owned();
    let tls = files(dir.path(), "127.0.0.1");
    let with = |listen: &str, more: &[String]| {
        let words = ["--listen", listen, "--out", &out].map(str::to_owned);
        words.into_iter().chain(more.iter().cloned()).collect::<Vec<_>>()
    };
    let insecure = ["--insecure".to_owned()];
    for (words, warnings) in [
        (with("127.0.0.1:0", &[]), 0),
        (with("127.0.0.1:0", &insecure), 0),
        (with("0.0.0.0:0", &insecure), 1),
        (with("[::]:0", &insecure), 1),
        // The certificate is not for an address of the network: `localhost` is what fits.
        (with("0.0.0.0:0", &tls), 0),
        (with("127.0.0.1:0", &tls), 0),
    ] {
        if words[1].contains("[::]") && std::net::TcpListener::bind("[::]:0").is_err() {
            continue;
        }
        let (_collector, said) = talking(&words);
        let warned = |text: &str| text.matches("warning: --insecure").count();
        assert_eq!(warned(&said), warnings, "{words:?}: {said}");
        let hint = said.lines().find_map(|line| line.split_once("sources: ")).unwrap().1;
        let finished = paste(&format!("{hint} --frames 3 --wait 30")).expect(0);
        let insecure = usize::from(hint.contains("--insecure"));
        assert_eq!(warned(&finished.stderr), insecure, "{hint}: {finished:#?}");
    }
}
