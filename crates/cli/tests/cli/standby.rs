//! Two transmission controllers and an etcd: the death of whoever leads, and of the store.
use crate::common::{
    Collector, Running, catchment, check_synthetic, frames, signal, wait_for_frames,
};
use catchment_netns::{Namespace, wait_until, with_privilege};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// 230,400 bytes: 31 ms of the link.
const INPUT: &str = "synthetic:320x240:rgb24";

const CONFIG: &str = "[[link]]\nname = \"narrow\"\ncapacity = \"60Mbit\"\n\n\
    [leader]\netcd = [\"http://127.0.0.1:2379\"]\n";

/// An etcd as packaged, on the ports that it has without configuration.
fn etcd(data: &Path) -> Running {
    let mut command = Command::new("etcd");
    let etcd = Running::start(command.arg("--data-dir").arg(data));
    wait_until("etcd answers", || etcd.said().contains("ready to serve client requests"));
    etcd
}

fn controller(config: &Path, port: u16) -> Running {
    let mut command = catchment();
    let listen = format!("127.0.0.1:{port}");
    Running::start(command.args(["control", "--listen", &listen, "--config"]).arg(config))
}

fn leads(controller: &Running) {
    wait_until("it leads", || controller.said().contains("granting at"));
}

/// Waits until a controller that stands by has heard of the source.
fn knows_the_source(port: u16) {
    let controller = format!("127.0.0.1:{port}");
    wait_until("the standby knows the source", || {
        let words = ["control", "status", "--json", &controller];
        let said = catchment().args(words).output().unwrap().stdout;
        let status: serde_json::Value = serde_json::from_slice(&said).unwrap_or_default();
        status["term"] == 0 && status["sources"][0]["devices"][0] == "cam0"
    });
}

fn source(collector: &str, frames: &str, fallback: &str) -> Running {
    let mut command = catchment();
    let controllers = ["--controller", "127.0.0.1:7118,127.0.0.1:7119", "--fallback", fallback];
    let input = ["--input", INPUT, "--device", "cam0", "--rate", "5", "--frames", frames];
    // Through its sockets, as over a network.
    let words = ["--provider", "roce", collector];
    Running::start(command.arg("send").args(controllers).args(input).args(words))
}

#[test]
fn a_standby_takes_over_from_a_leader_that_dies_and_from_one_that_ends() {
    let name = "standby::a_standby_takes_over_from_a_leader_that_dies_and_from_one_that_ends";
    with_privilege(name, || {
        let (host, dir) = (Namespace::new().unwrap(), tempfile::tempdir().unwrap());
        host.run(|| {
            let (out, config) = (dir.path().join("out"), dir.path().join("control.toml"));
            fs::write(&config, CONFIG).unwrap();
            let etcd = etcd(&dir.path().join("etcd"));
            let first = controller(&config, 7118);
            leads(&first);
            let second = controller(&config, 7119);
            wait_until("it stands by", || {
                second.said().contains("standing by: the controller at 127.0.0.1:7118 leads")
            });
            let collector = Collector::start(&out);
            // Without a controller it sends nothing: whatever comes was granted.
            let source = source(&collector.address, "60", "stop");
            wait_for_frames(&out, "cam0", 2);
            knows_the_source(7119);
            first.kill();
            leads(&second);
            let before = frames(&out.join("cam0")).len();
            wait_for_frames(&out, "cam0", before + 2);
            let third = controller(&config, 7118);
            wait_until("it stands by", || {
                third.said().contains("standing by: the controller at 127.0.0.1:7119 leads")
            });
            knows_the_source(7118);
            signal(second.id(), Signal::INT);
            second.finish().expect(0);
            leads(&third);
            let said = source.finish().expect(0).stderr;
            assert_eq!(said.matches("another controller leads").count(), 2, "{said}");
            assert_eq!(collector.end()["frames_lost"], 0);
            check_synthetic(&out, "cam0", 0, INPUT, 60);
            signal(third.id(), Signal::INT);
            third.finish().expect(0);
            etcd.kill();
        })
        .unwrap();
    });
}

#[test]
fn a_leader_goes_on_while_the_store_is_away_and_says_so() {
    let name = "standby::a_leader_goes_on_while_the_store_is_away_and_says_so";
    with_privilege(name, || {
        let (host, dir) = (Namespace::new().unwrap(), tempfile::tempdir().unwrap());
        host.run(|| {
            let (config, data) = (dir.path().join("control.toml"), dir.path().join("etcd"));
            fs::write(&config, CONFIG).unwrap();
            let store = etcd(&data);
            let holds = controller(&config, 7118);
            leads(&holds);
            store.kill();
            wait_until("it says so", || holds.said().contains("the store does not answer"));
            // One that never reached the store leads nobody.
            let other = controller(&config, 7119);
            wait_until("it says why", || other.said().contains("who leads is not known"));
            let store = etcd(&data);
            wait_until("it is back", || holds.said().contains("the store answers again"));
            wait_until("the other knows who leads", || {
                other.said().contains("the controller at 127.0.0.1:7118 leads")
            });
            assert!(!other.said().contains("granting at"), "{}", other.said());
            assert!(!holds.said().contains("does not lead any more"), "{}", holds.said());
            signal(other.id(), Signal::INT);
            other.finish().expect(0);

            fs::write(&config, format!("{CONFIG}unreachable = \"step-down\"\n")).unwrap();
            signal(holds.id(), Signal::INT);
            holds.finish().expect(0);
            let steps_down = controller(&config, 7118);
            leads(&steps_down);
            store.kill();
            wait_until("its lease is over", || {
                steps_down.said().contains("does not lead any more")
            });
            signal(steps_down.id(), Signal::INT);
            steps_down.finish().expect(0);
        })
        .unwrap();
    });
}
