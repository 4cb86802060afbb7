//! Both roles in one process, over memory of this host: every test, every mechanism of the product, and
//! what a side is told when the other one fails.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use catchment_perf::blocks::{BlockPlan, STATUS_BYTE};
use catchment_perf::{
    Amount, Control, Figure, LocalDevice, Measured, Operation, PATIENCE, PerfError, Plan, Row,
    Test, Waiting, measure, measure_blocks, serve, time_requests,
};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Provider, QpInit};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

fn device() -> LocalDevice {
    LocalDevice {
        counters: Box::new(|| vec![7]),
        ..LocalDevice::new(ShmProvider::new().open("shm0").unwrap())
    }
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Runs `active` beside a passive side; returns what it returned, and what the passive side served.
fn beside_passive<T>(active: impl FnOnce(&mut Control) -> T) -> (T, Result<u64, PerfError>) {
    let (ours, theirs) = connection();
    let passive = thread::spawn(move || {
        let mut control = Control::over_tcp(theirs).unwrap();
        serve(&mut control, &device(), STATUS_BYTE)
    });
    let mut control = Control::over_tcp(ours).unwrap();
    let result = active(&mut control);
    drop(control);
    (result, passive.join().unwrap())
}

#[track_caller]
fn is_sound(measured: &Measured, figure: Figure, bytes: u64, iterations: u64) {
    match measured.row {
        Row::Bandwidth(row) => {
            assert_eq!(figure, Figure::Bandwidth);
            assert_eq!((row.bytes, row.iterations), (bytes, iterations));
            assert!(row.average_bytes_per_s > 0.0, "{row:?}");
            let peak = row.peak_bytes_per_s;
            assert!(peak.is_none_or(|peak| peak >= row.average_bytes_per_s), "{row:?}");
        }
        Row::Latency(row) => {
            assert_eq!(figure, Figure::Latency);
            assert_eq!((row.bytes, row.iterations), (bytes, iterations));
            assert!(
                row.min_ns > 0.0 && row.min_ns <= row.typical_ns && row.typical_ns <= row.max_ns,
                "{row:?}"
            );
        }
    }
    assert!(measured.active.cpu_s > 0.0, "{measured:?}");
    assert_eq!(measured.passive.counters, [0], "{measured:?}");
}

#[test]
fn every_test_and_every_way_to_wait_over_one_control_connection() {
    let ((), served) = beside_passive(|control| {
        let device = device();
        for (_, test) in Test::ALL {
            for waiting in [Waiting::Yield, Waiting::Sleep] {
                for bytes in [1, 70_000] {
                    let plan = Plan::new(test, bytes, Amount::Iterations(100), 8, waiting);
                    if plan.check().is_err() {
                        assert_eq!(test.operation, Operation::Write);
                        continue;
                    }
                    is_sound(&measure(control, &device, &plan).unwrap(), test.figure, bytes, 100);
                }
            }
        }
    });
    assert_eq!(served.unwrap(), 30);
}

/// As many times as requests, none longer than the whole; and a plan of several at once is refused.
#[test]
fn requests_are_timed_until_they_are_complete() {
    for operation in [Operation::Write, Operation::Send] {
        let test = Test::new(operation, Figure::Bandwidth);
        let one = Plan::new(test, 64, Amount::Iterations(50), 1, Waiting::Yield);
        let (ran, served) = beside_passive(|control| {
            let several = Plan { depth: 2, ..one };
            let refused = time_requests(control, &device(), &several).unwrap_err().to_string();
            assert!(refused.contains("depth 2"), "{refused}");
            time_requests(control, &device(), &one)
        });
        let (measured, times) = ran.unwrap();
        is_sound(&measured, Figure::Bandwidth, 64, 50);
        assert_eq!((times.len(), served.unwrap()), (50, 1));
        assert!(times.iter().all(|ns| *ns > 0.0));
        assert!(times.iter().sum::<f64>() <= measured.time.as_nanos() as f64, "{measured:?}");
    }
}

#[test]
fn both_forms_of_the_status_bytes_move_blocks() {
    let ((), served) = beside_passive(|control| {
        let device = device();
        for mechanism in STATUS_BYTE {
            for figure in [Figure::Bandwidth, Figure::Latency] {
                let plan = BlockPlan {
                    mechanism: mechanism.name().to_owned(),
                    blocks: 4,
                    bytes: 3000,
                    figure,
                    amount: Amount::Iterations(100),
                    waiting: Waiting::Sleep,
                };
                let measured = measure_blocks(control, &device, STATUS_BYTE, &plan).unwrap();
                is_sound(&measured, figure, 3000, 100);
            }
        }
    });
    assert_eq!(served.unwrap(), 4);
}

#[test]
fn a_passive_side_checks_plans_itself_and_serves_on() {
    let (mut ours, theirs) = connection();
    let passive = thread::spawn(move || {
        let mut control = Control::over_tcp(theirs).unwrap();
        serve(&mut control, &device(), STATUS_BYTE)
    });
    let test = "write_bw".parse().unwrap();
    let plan =
        Plan { places: 1 << 60, ..Plan::new(test, 64, Amount::Iterations(1), 1, Waiting::Yield) };
    let plan = serde_json::to_string(&plan).unwrap();
    let place = r#"{"endpoint":"","addr":0,"rkey":0}"#;
    for _ in 0..2 {
        writeln!(ours, r#"{{"type":"run","plan":{plan},"place":{place}}}"#).unwrap();
    }
    writeln!(ours, r#"{{"type":"here"}}"#).unwrap();
    let mut said = String::new();
    ours.read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("refused").count(), 2, "{said}");
    assert!(said.contains("places") && said.contains("failed"), "{said}");
    let error = passive.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("here") && error.contains("a plan"), "{error}");
}

#[test]
fn an_active_side_that_is_gone_ends_the_passive_one() {
    let test = "send_bw".parse().unwrap();
    let (ours, theirs) = connection();
    let passive = thread::spawn(move || {
        let mut control = Control::over_tcp(theirs).unwrap();
        serve(&mut control, &device(), STATUS_BYTE)
    });
    let plan = Plan::new(test, 64, Amount::Iterations(1), 1, Waiting::Sleep);
    let place = ShmProvider::new().open("shm0").unwrap();
    let pd = place.alloc_pd().unwrap();
    let qp = pd.create_qp(QpInit::rc(&place.create_cq(1, None).unwrap(), 1, 1)).unwrap();
    let mut control = Control::new(ours);
    let endpoint = qp.endpoint().to_string();
    control
        .send(&serde_json::json!({
            "type": "run",
            "plan": plan,
            "place": {"endpoint": endpoint, "addr": 0, "rkey": 0},
        }))
        .unwrap();
    let ready: serde_json::Value = control.recv("ready", PATIENCE).unwrap();
    assert_eq!(ready["type"], "ready");
    drop(control);
    assert!(passive.join().unwrap().is_err());
}
