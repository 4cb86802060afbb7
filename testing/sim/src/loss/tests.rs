//! A part of the table as a snapshot, so that a reviewer judges every change of it.
use super::*;
use catchment_roce::Recovery;
use catchment_roce::wire::PathMtu;
use std::time::Duration;

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/loss.txt");

fn table() -> String {
    let mut lines = vec![report::HEAD.to_owned()];
    for recovery in [Recovery::SelectiveRepeat, Recovery::GoBackN] {
        for burst in [1, 8] {
            for loss in [0.0, 0.01, 0.05] {
                let cell = Cell {
                    recovery,
                    rate_bps: 1_000_000_000,
                    rtt_ms: 2,
                    path_mtu: PathMtu::Mtu1024,
                    burst,
                    loss,
                };
                lines.push(report::line(&cell.run(Duration::from_millis(200), 1)));
            }
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn throughput_by_loss_is_as_it_was() {
    let table = table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(SNAPSHOT, &table).unwrap();
    }
    let snapshot = std::fs::read_to_string(SNAPSHOT).unwrap();
    assert!(
        table == snapshot,
        "the table has changed; if for the better, UPDATE_SNAPSHOTS=1 cargo test -p catchment-sim\n\
         was:\n{snapshot}is:\n{table}"
    );
}

#[test]
fn selective_repeat_reaches_its_goals_in_a_short_transfer() {
    for (burst, loss) in [(1, 0.01), (8, 0.01), (1, 0.05), (8, 0.05)] {
        let cell = Cell {
            recovery: Recovery::SelectiveRepeat,
            rate_bps: 2_000_000_000,
            rtt_ms: 10,
            path_mtu: PathMtu::Mtu2048,
            burst,
            loss,
        };
        let row = cell.run(Duration::from_millis(500), 1);
        // Loss varies in a short span: allow 0.01 for that.
        let goal = cell.goal().unwrap() - 0.01;
        assert!(row.goodput_fraction >= goal, "{row:?}");
        assert_eq!(row.broken, None);
    }
}

/// Without a window that follows the path, 4 MiB every 200 ms would be a third of the link.
#[test]
fn the_window_follows_a_long_path_whether_or_not_it_loses_packets() {
    for loss in [0.0, 0.01] {
        let cell = Cell { loss, ..Cell::long(500_000_000, 200) };
        let row = cell.run(Duration::from_secs(2), 1);
        assert!(row.goodput_fraction >= 0.9, "{row:?}");
        assert_eq!((row.timeouts, &row.broken), (0, &None));
    }
}
