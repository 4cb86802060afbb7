//! The files to deploy: what they start begins to work, and what they ask for is there.
use crate::common::{Running, catchment};
use catchment_netns::wait_until;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Starts what a unit starts, with these words in place of others, and waits until it says that it works.
fn start(unit: &str, instead: &[(&str, &str)], works: &str) -> Running {
    let text = fs::read_to_string(root().join("deploy/systemd").join(unit)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=catchment ")).unwrap();
    let line = instead.iter().fold(line.to_owned(), |line, (word, by)| {
        assert!(line.contains(word), "{unit} does not say {word}: {line}");
        line.replace(word, by)
    });
    let running = Running::start(catchment().args(line.split_whitespace()));
    wait_until(works, || running.said().contains(works));
    running
}

#[test]
fn units_start_what_works() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let name = format!("unit-{}", std::process::id());
    let policy = format!(r#"{{"name": "{name}", "applications": [{{"name": "a"}}]}}"#);
    fs::write(at("policy.json"), policy).unwrap();
    let port = ("127.0.0.1:7180", "127.0.0.1:0");
    let file = at("policy.json");
    start("catchment-agent.service", &[("%E/catchment/policy.json", &file), port], "live page: ");
    let control = "listen = \"127.0.0.1:0\"\n[[link]]\nname = \"up\"\ncapacity = \"1Gbit\"\n";
    fs::write(at("control.toml"), control).unwrap();
    let (file, socket) = (at("control.toml"), at("control.sock"));
    let instead = [
        ("/etc/catchment/control.toml", &*file),
        ("/run/catchment/control.sock", &*socket),
        ("127.0.0.1:7181", "127.0.0.1:0"),
    ];
    start("catchment-control.service", &instead, "granting at ");
}

#[test]
fn alerts_ask_for_metrics_that_there_are() {
    let alerts = fs::read_to_string(root().join("deploy/prometheus/alerts.yml")).unwrap();
    let known = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let words = alerts.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_'));
    let metrics: Vec<&str> = words.filter(|word| word.starts_with("catchment_")).collect();
    assert!(metrics.len() > 8, "{metrics:?}");
    for metric in metrics {
        assert!(
            known.contains(&format!("`{metric}`")),
            "{metric} is not in docs/reference/metrics.md"
        );
    }
}
