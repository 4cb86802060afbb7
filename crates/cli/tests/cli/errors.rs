//! Every error names the thing, the value seen and what to do, and has its exit code.
use crate::common::{Collector, INPUT, catchment, finish, run, send};
use std::net::TcpListener;

/// Checks a table: the exit code, the words of the command, and what stderr must contain.
#[track_caller]
fn check(cases: &str, dir: &std::path::Path) {
    for row in cases.trim().lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [code, words, contains] = cells[..] else {
            panic!("three cells: {row}");
        };
        let words: Vec<&str> = words.split(' ').collect();
        let contains: Vec<&str> = contains.split(" & ").collect();
        check_one(&words, code.parse().unwrap(), &contains, dir);
    }
}

#[track_caller]
fn check_one(words: &[&str], code: i32, contains: &[&str], dir: &std::path::Path) {
    let finished = finish(catchment().args(words).current_dir(dir));
    assert_eq!(finished.code, Some(code), "{words:?}: {finished:#?}");
    let tells = |line: &str| line.starts_with("error: ");
    assert!(finished.stderr.lines().any(tells), "{words:?}: {finished:#?}");
    for text in contains {
        assert!(finished.stderr.contains(text), "{words:?} lacks {text:?}: {finished:#?}");
    }
    assert!(!finished.stderr.contains("panicked"), "{words:?}: {finished:#?}");
    assert_eq!(finished.stdout, "", "{words:?}");
}

#[test]
fn wrong_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let cases = r#"
2 | send --input synthetic nowhere | "nowhere" has no port & HOST:PORT
2 | send --input synthetic --rate fast 127.0.0.1:1 | "fast" & --rate & 30000/1001 & `max`
2 | send --input synthetic --rate 1e9 127.0.0.1:1 | "1e9" has an exponent
2 | send --input synthetic --rate 99999999999 127.0.0.1:1 | "99999999999" has more digits & 4294967295
2 | send --input synthetic http://127.0.0.1:1 | "http://127.0.0.1:1" is a URL & HOST:PORT
2 | send --input synthetic --device=-x 127.0.0.1:1 | "-x" starts with a hyphen
2 | send --loop --input - --format 64x48:rgb24 127.0.0.1:1 | --loop with --input - & standard input cannot be read again
2 | send --input synthetic --fault drop=0.1 127.0.0.1:1 | --fault would do nothing & --provider roce
2 | send --input synthetic --fault drop=0.1 --require shm 10.0.0.1:1 | --fault would do nothing & leave roce out
2 | demo --fault drop=0.1 | --fault would do nothing & shared memory & --provider roce
2 | demo --sink null --out frames | --out does nothing with --sink null
2 | collect --listen 127.0.0.1:0 --sink null --out frames | --out does nothing with --sink null & omit
2 | collect --listen 127.0.0.1:0 --sink null --keep-frames 3 | --keep-frames does nothing with --sink null
2 | collect --listen 127.0.0.1:0 --sink null --dashboard localhost:1 | localhost:1 & its host is a name & 127.0.0.1:9117
2 | collect --listen 127.0.0.1:0 --sink null --dashboard http://127.0.0.1:1 | http://127.0.0.1:1 & a URL
2 | collect --listen http://127.0.0.1:1 --sink null | is a URL
2 | collect --listen 127.0.0.1:0 --sink null --ring-bytes 3 | '3' & less than the smallest ring & 4KiB
2 | collect --listen 127.0.0.1:0 --sink null --ring-bytes 9999TiB | '9999TiB' & more than the memory of this host
2 | explain http://10.0.0.1:7117 | is a URL
2 | bench write_bw --connect http://10.0.0.1 | a URL
2 | send --input synthetic --format big 127.0.0.1:1 | "big" & 640x480:rgb24
2 | send --input synthetic --device ../x 127.0.0.1:1 | ../x & A-Z
2 | send --input synthetic --input synthetic --device x 127.0.0.1:1 | 2 --input and 1 --device & give each
2 | send --input a/x.mp4 --input b/x.mp4 127.0.0.1:1 | "x" & --device
2 | send --input - --input - 127.0.0.1:1 | 2 inputs are `-` & named pipes
2 | send --input synthetic --wait long 127.0.0.1:1 | 'long' & 0.5
2 | send --input synthetic --cert c.pem 127.0.0.1:1 | --key & --ca
2 | collect --listen 127.0.0.1:0 | --out & --sink null
2 | collect --listen 127.0.0.1:0 --sink null --ring-bytes huge | 'huge' & 256MiB
2 | collect --listen 127.0.0.1:0 --sink null --require rocket | "rocket" & shm
2 | demo --devices 0 | '0' & 1..=4096
"#;
    check(cases, dir.path());
    let words = ["cert", "--out", "certs", "--name", "two words"];
    check_one(&words, 2, &["two words", "A-Z"], dir.path());
}

#[test]
fn no_collector() {
    let dir = tempfile::tempdir().unwrap();
    let cases = r#"
3 | send --input synthetic --wait 0 127.0.0.1:1 | 127.0.0.1:1 & refused & catchment collect
3 | send --input synthetic --wait 0 unix:nothing.sock | nothing.sock & catchment collect
3 | send --input synthetic 192.0.2.7:7 | 192.0.2.7:7 & catchment cert & --insecure
"#;
    check(cases, dir.path());
}

#[test]
fn bad_inputs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    std::fs::write(dir.path().join("junk.mp4"), "no video").unwrap();
    std::fs::write(dir.path().join("some.raw"), "1234").unwrap();
    let cases = r#"
4 | send --input missing.mp4 127.0.0.1:1 | missing.mp4 & no such file & synthetic
4 | send --input empty 127.0.0.1:1 | empty & no .png & convert
4 | send --input junk.mp4 127.0.0.1:1 | junk.mp4 & ff
4 | send --input some.raw 127.0.0.1:1 | some.raw & --format 640x480:rgb24
4 | send --input - 127.0.0.1:1 | YUV4MPEG2 & --format
"#;
    check(cases, dir.path());
}

#[test]
fn things_of_this_host() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    std::fs::write(dir.path().join("junk.pem"), "no certificate").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let cases = r#"
5 | collect --listen 127.0.0.1:0 --out file/sub | file/sub & Not a directory & --out
5 | collect --listen TAKEN --sink null | TAKEN & in use & free?
5 | collect --listen 0.0.0.0:0 --sink null | 0.0.0.0:0 & catchment cert & --insecure
5 | collect --listen 127.0.0.1:0 --sink null --dashboard TAKEN | TAKEN & in use & port 0
5 | collect --listen 127.0.0.1:0 --sink null --dashboard 0.0.0.0:0 | 0.0.0.0:0 & 127.0.0.1
5 | collect --listen 127.0.0.1:0 --sink null --cert no.pem --key no.key --ca no.ca | no. & No such file & catchment cert
5 | send --input synthetic --cert junk.pem --key junk.pem --ca junk.pem 127.0.0.1:0 | junk.pem & certificate & catchment cert
"#;
    check(&cases.replace("TAKEN", &taken), dir.path());
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
    assert_eq!(std::fs::read(dir.path().join("cam/notes.txt")).unwrap(), b"mine");
}

#[test]
fn help_lists_the_exit_codes_and_version_is_told() {
    let help = run(["--help"]).expect(0).stdout;
    for line in ["0  done", "1  frames", "2  the arg", "3  the coll", "4  an inp", "5  a file"] {
        assert!(help.contains(line), "{help}");
    }
    let version = run(["--version"]).expect(0).stdout;
    assert_eq!(version.trim(), format!("catchment {}", env!("CARGO_PKG_VERSION")));
}
