//! `catchment agent`: it serves by its policy, and says what is wrong with one.
use crate::common::{Collector, Running, catchment, finish, run, signal};
use catchment_netns::wait_until;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::path::PathBuf;

fn policy(dir: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("policy.json");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn an_agent_serves_under_its_name_until_it_is_told_to_end() {
    let tmp = tempfile::tempdir().unwrap();
    let name = format!("cli-{}", std::process::id());
    let file = policy(&tmp, &format!(r#"{{"name": "{name}", "applications": [{{"name": "a"}}]}}"#));
    let status = || run(["agent", "status", &name, "--json"]);
    let none = status().expect(3);
    assert!(none.stderr.contains("no agent of the name"), "{none:#?}");
    let agent =
        Collector::start_command(catchment().args(["agent", "--json", "--policy"]).arg(&file));
    assert_eq!(agent.listening["agent"], *name);
    assert_eq!(agent.listening["applications"], 1);
    let lines = status().expect(0).json_lines();
    assert_eq!(lines.len(), 1, "nobody is connected: {lines:#?}");
    assert!(lines[0]["engine_ns"].as_u64() > Some(0), "{lines:#?}");
    let text = run(["agent", "status", &name]).expect(0);
    assert!(text.stdout.contains("engine: take "), "{text:#?}");
    let unknown = run(["agent", "explain", "a", "--agent", &name, "--seconds", "0"]).expect(1);
    assert!(unknown.stderr.contains("none is"), "{unknown:#?}");
    let metrics = run(["agent", "status", &name, "--prometheus"]).expect(0);
    for name in ["bytes_total", "look_seconds_total"] {
        let line = format!("# TYPE catchment_agent_{name} counter");
        assert!(metrics.stdout.contains(&line), "{metrics:#?}");
    }
    let second = run(["agent".as_ref(), "--policy".as_ref(), file.as_os_str()]).expect(5);
    assert!(second.stderr.contains("in use"), "{second:#?}");
    assert_eq!(agent.end()["applications"], serde_json::json!([]));
    status().expect(3);
}

#[test]
fn fairness_of_the_command_line_takes_the_place_of_the_policys() {
    let tmp = tempfile::tempdir().unwrap();
    let name = format!("cli-alpha-{}", std::process::id());
    let file = policy(&tmp, &format!(r#"{{"name": "{name}", "alpha": 5, "applications": []}}"#));
    let command = |alpha: &str| {
        let mut command = catchment();
        command.args(["agent", "--json", "--alpha", alpha, "--policy"]).arg(&file);
        command
    };
    let agent = Collector::start_command(&mut command("0.5"));
    let top = Running::start(catchment().args(["agent", "top", &name, "--json"]));
    wait_until("it is told", || top.printed().contains(r#""alpha":0.5"#));
    signal(top.id(), Signal::INT);
    top.finish().expect(0);
    agent.end();
    let refused = finish(&mut command("0")).expect(2);
    assert!(refused.stderr.contains("0 is not above 0"), "{refused:#?}");
}

/// On SIGHUP: the numbers of applications say which policy holds.
#[test]
fn a_changed_policy_is_taken_over_and_a_bad_one_changes_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let name = format!("cli-hup-{}", std::process::id());
    let text = |rest: &str| {
        format!("{{\"name\": \"{name}\", \"applications\": [{{\"name\": \"a\"}}\n{rest}")
    };
    let file = policy(&tmp, &text("]}"));
    let agent = Running::start(catchment().args(["agent", "--policy"]).arg(&file));
    wait_until("it serves", || agent.said().contains("serves 1 applications"));
    let reload = |rest: &str, says: &str| {
        policy(&tmp, &text(rest));
        signal(agent.id(), Signal::HUP);
        wait_until(says, || agent.said().contains(says));
    };
    reload(
        ", {\"name\": \"b\", \"wait\": 3}]}",
        "nothing has changed: the policy: unknown field `wait`",
    );
    reload("], \"mode\": \"raw\"}", "nothing has changed: the policy: mode cannot change");
    reload(", {\"name\": \"b\"}]}", "read again: 2 applications");
    signal(agent.id(), Signal::INT);
    agent.finish().expect(0);
}

/// A process with several devices: an agent for each.
#[test]
fn each_policy_has_an_agent_of_its_own() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let names = ["one", "two"].map(|name| format!("cli-{name}-{}", std::process::id()));
    let files: Vec<_> = folders
        .iter()
        .zip(&names)
        .map(|(folder, name)| {
            policy(folder, &format!(r#"{{"name": "{name}", "applications": [{{"name": "a"}}]}}"#))
        })
        .collect();
    let mut command = catchment();
    command.arg("agent");
    for file in &files {
        command.arg("--policy").arg(file);
    }
    let agents = Running::start(&mut command);
    for name in &names {
        wait_until("it serves", || agents.said().contains(&format!("agent {name:?} serves")));
        run(["agent", "status", name]).expect(0);
    }
    signal(agents.id(), Signal::INT);
    agents.finish().expect(0);
    let both = files.iter().flat_map(|file| [OsStr::new("--policy"), file.as_os_str()]);
    let page = ["agent", "--dashboard", "127.0.0.1:0"].map(OsStr::new);
    let refused = run(page.into_iter().chain(both)).expect(2);
    assert!(refused.stderr.contains("are for one agent"), "{refused:#?}");
}

#[test]
fn a_bad_policy_is_refused_with_the_line() {
    let tmp = tempfile::tempdir().unwrap();
    let file = policy(&tmp, "{\"applications\": [\n  {\"name\": \"a\", \"wait\": 3}]}");
    let refused = run(["agent".as_ref(), "--policy".as_ref(), file.as_os_str()]).expect(5);
    assert!(refused.stderr.contains("line 2") && refused.stderr.contains("wait"), "{refused:#?}");
    run(["agent"]).expect(2);
}

/// What was measured stands when the policy is read again: it cannot change.
#[test]
fn a_device_is_measured_at_start_where_that_is_asked_for() {
    let tmp = tempfile::tempdir().unwrap();
    let name = format!("cli-measured-{}", std::process::id());
    let text =
        |rest: &str| format!(r#"{{"name": "{name}", "applications": [{{"name": "a"}}{rest}]}}"#);
    let file = policy(&tmp, &text(""));
    let agent = Running::start(catchment().args(["agent", "--calibrate", "--policy"]).arg(&file));
    wait_until("it serves", || agent.said().contains("serves 1 applications"));
    let said = agent.said();
    assert!(said.contains("the device moves") && said.contains("bytes at least"), "{said}");
    policy(&tmp, &text(r#", {"name": "b"}"#));
    signal(agent.id(), Signal::HUP);
    wait_until("it reads it again", || agent.said().contains("read again: 2 applications"));
    signal(agent.id(), Signal::INT);
    agent.finish().expect(0);
}
