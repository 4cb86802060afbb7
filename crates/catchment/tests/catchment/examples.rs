//! The examples work together, the README shows them, and a program without the default features
//! builds no web server, no picture codec and no maker of certificates.
use std::path::Path;
use std::process::Command;

#[path = "../../examples/collect.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod collect;
#[path = "../../examples/send.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod send;

/// The lines of a text without what rustfmt decides: white space, and where lines end.
fn squeezed(text: &str) -> String {
    let all: String = text.split_whitespace().collect();
    all.replace(",)", ")")
}

#[test]
fn what_one_example_sends_the_other_collects() {
    let collector = collect::collect("127.0.0.1:0").unwrap();
    let camera = (0..100).map(|grey| vec![grey; 640 * 480 * 3]);
    send::send(&collector.local_addr().to_string(), camera).unwrap();
    let report = collector.stop();
    let totals = &report.totals;
    assert_eq!((totals.frames_received, totals.frames_lost), (100, 0));
}

#[test]
fn the_readme_shows_the_examples() {
    let examples =
        [include_str!("../../examples/collect.rs"), include_str!("../../examples/send.rs")]
            .map(squeezed);
    let mut snippets = include_str!("../../../../README.md").split("```rust\n").skip(1);
    let mut shown = 0;
    for snippet in snippets.by_ref() {
        let code = snippet.split("```").next().unwrap();
        for part in code.split("\n\n") {
            let part = squeezed(part);
            let found = examples.iter().any(|example| example.contains(&part));
            assert!(found, "README shows what no example has: {part}");
        }
        shown += 1;
    }
    assert_eq!(shown, 2);
}

/// Asks cargo, which reads the lock file and builds nothing.
#[test]
fn without_default_features_nothing_optional_is_built() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--no-default-features", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}", "--offline", "--locked"])
        .arg("--manifest-path")
        .arg(manifest)
        .output()
        .unwrap();
    let text = String::from_utf8(tree.stdout).unwrap();
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success() && text.contains("catchment-session"), "{errors}");
    for line in text.lines() {
        let package = line.split(' ').next().unwrap();
        let heavy = ["axum", "hyper", "png", "rcgen", "zune-jpeg"];
        assert!(!heavy.contains(&package), "{line}");
    }
}
