//! Every error names the thing, the value seen and what to do, and has its exit code.

use crate::common::{Collector, Finished, INPUT, catchment, finish, run, send};
use std::net::TcpListener;

/// Words of a command, its exit code, and what stderr must contain.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

#[track_caller]
fn check(cases: &[Case<'_>], dir: &std::path::Path) {
    for (words, code, contains) in cases {
        let finished = finish(catchment().args(*words).current_dir(dir));
        check_one(words, *code, contains, &finished);
    }
}

#[track_caller]
fn check_one(words: &[&str], code: i32, contains: &[&str], finished: &Finished) {
    assert_eq!(finished.code, Some(code), "{words:?}: {finished:#?}");
    let tells = |line: &str| line.starts_with("error: ");
    assert!(
        finished.stderr.lines().any(tells),
        "{words:?}: {finished:#?}"
    );
    for text in contains {
        assert!(
            finished.stderr.contains(text),
            "{words:?} lacks {text:?}: {finished:#?}"
        );
    }
    assert!(
        !finished.stderr.contains("panicked"),
        "{words:?}: {finished:#?}"
    );
    assert_eq!(finished.stdout, "", "{words:?}");
}

#[test]
fn wrong_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let at = "127.0.0.1:1";
    let cases: &[Case<'_>] = &[
        (
            &["send", "--input", "synthetic", "nowhere"],
            2,
            &["\"nowhere\" has no port", "HOST:PORT"],
        ),
        (
            &["send", "--input", "synthetic", "--rate", "fast", at],
            2,
            &["\"fast\"", "--rate", "30000/1001", "`max`"],
        ),
        (
            &["send", "--input", "synthetic", "--format", "big", at],
            2,
            &["\"big\"", "640x480:rgb24"],
        ),
        (
            &["send", "--input", "synthetic", "--device", "../x", at],
            2,
            &["../x", "A-Z"],
        ),
        (
            &[
                "send",
                "--input",
                "synthetic",
                "--input",
                "synthetic",
                "--device",
                "x",
                at,
            ],
            2,
            &["2 --input and 1 --device", "give each"],
        ),
        (
            &["send", "--input", "a/x.mp4", "--input", "b/x.mp4", at],
            2,
            &["\"x\"", "--device"],
        ),
        (
            &["send", "--input", "-", "--input", "-", at],
            2,
            &["2 inputs are `-`", "named pipes"],
        ),
        (
            &["send", "--input", "synthetic", "--wait", "long", at],
            2,
            &["'long'", "0.5"],
        ),
        (
            &["send", "--input", "synthetic", "--cert", "c.pem", at],
            2,
            &["--key", "--ca"],
        ),
        (
            &["collect", "--listen", "127.0.0.1:0"],
            2,
            &["--out", "--sink null"],
        ),
        (
            &[
                "collect",
                "--listen",
                "127.0.0.1:0",
                "--sink",
                "null",
                "--ring-bytes",
                "huge",
            ],
            2,
            &["'huge'", "256MiB"],
        ),
        (
            &[
                "collect",
                "--listen",
                "127.0.0.1:0",
                "--sink",
                "null",
                "--require",
                "rocket",
            ],
            2,
            &["\"rocket\"", "shm"],
        ),
        (&["demo", "--devices", "0"], 2, &["'0'", "1..=4096"]),
        (
            &["cert", "--out", "certs", "--name", "two words"],
            2,
            &["two words", "A-Z"],
        ),
    ];
    check(cases, dir.path());
}

#[test]
fn no_collector() {
    let dir = tempfile::tempdir().unwrap();
    let cases: &[Case<'_>] = &[
        (
            &["send", "--input", "synthetic", "--wait", "0", "127.0.0.1:1"],
            3,
            &["127.0.0.1:1", "refused", "catchment collect"],
        ),
        (
            &[
                "send",
                "--input",
                "synthetic",
                "--wait",
                "0",
                "unix:nothing.sock",
            ],
            3,
            &["nothing.sock", "catchment collect"],
        ),
        (
            &["send", "--input", "synthetic", "192.0.2.7:7"],
            3,
            &["192.0.2.7:7", "catchment cert", "--insecure"],
        ),
    ];
    check(cases, dir.path());
}

#[test]
fn bad_inputs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    std::fs::write(dir.path().join("junk.mp4"), "no video").unwrap();
    std::fs::write(dir.path().join("some.raw"), "1234").unwrap();
    let at = "127.0.0.1:1";
    let cases: &[Case<'_>] = &[
        (
            &["send", "--input", "missing.mp4", at],
            4,
            &["missing.mp4", "no such file", "synthetic"],
        ),
        (
            &["send", "--input", "empty", at],
            4,
            &["empty", "no .png", "convert"],
        ),
        (&["send", "--input", "junk.mp4", at], 4, &["junk.mp4", "ff"]),
        (
            &["send", "--input", "some.raw", at],
            4,
            &["some.raw", "--format 640x480:rgb24"],
        ),
        (&["send", "--input", "-", at], 4, &["YUV4MPEG2", "--format"]),
    ];
    check(cases, dir.path());
}

#[test]
fn things_of_this_host() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    std::fs::write(dir.path().join("junk.pem"), "no certificate").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let any = "127.0.0.1:0";
    let cases: &[Case<'_>] = &[
        (
            &["collect", "--listen", any, "--out", "file/sub"],
            5,
            &["file/sub", "Not a directory", "--out"],
        ),
        (
            &["collect", "--listen", &taken, "--sink", "null"],
            5,
            &[&taken, "in use", "free?"],
        ),
        (
            &["collect", "--listen", "0.0.0.0:0", "--sink", "null"],
            5,
            &["0.0.0.0:0", "catchment cert", "--insecure"],
        ),
        (
            &[
                "collect",
                "--listen",
                any,
                "--sink",
                "null",
                "--dashboard",
                &taken,
            ],
            5,
            &[&taken, "in use", "port 0"],
        ),
        (
            &[
                "collect",
                "--listen",
                any,
                "--sink",
                "null",
                "--dashboard",
                "0.0.0.0:0",
            ],
            5,
            &["0.0.0.0:0", "127.0.0.1"],
        ),
        (
            &[
                "collect", "--listen", any, "--sink", "null", "--cert", "no.pem", "--key",
                "no.key", "--ca", "no.ca",
            ],
            5,
            &["no.", "No such file", "catchment cert"],
        ),
        (
            &[
                "send",
                "--input",
                "synthetic",
                "--cert",
                "junk.pem",
                "--key",
                "junk.pem",
                "--ca",
                "junk.pem",
                any,
            ],
            5,
            &["junk.pem", "certificate", "catchment cert"],
        ),
    ];
    check(cases, dir.path());
}

#[test]
fn a_foreign_file_among_the_frames_is_told_to_the_source() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("cam")).unwrap();
    std::fs::write(dir.path().join("cam/notes.txt"), "mine").unwrap();
    let collector = Collector::start(dir.path());
    let words = ["--wait", "3"];
    let finished = finish(&mut send(INPUT, "cam", &collector.address, &words)).expect(3);
    assert!(finished.stderr.contains("notes.txt"), "{finished:#?}");
    assert_eq!(
        std::fs::read(dir.path().join("cam/notes.txt")).unwrap(),
        b"mine"
    );
}

#[test]
fn help_lists_the_exit_codes_and_version_is_told() {
    let help = run(["--help"]).expect(0).stdout;
    for line in [
        "0  done",
        "1  frames",
        "2  the arg",
        "3  the coll",
        "4  an inp",
        "5  a file",
    ] {
        assert!(help.contains(line), "{help}");
    }
    let version = run(["--version"]).expect(0).stdout;
    assert_eq!(
        version.trim(),
        format!("catchment {}", env!("CARGO_PKG_VERSION"))
    );
}
