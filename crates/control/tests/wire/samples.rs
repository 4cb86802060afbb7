//! Records and roots for the tests.
use catchment_control::admission::wire::*;
use proptest::prelude::*;

pub(crate) const ROOT: [u8; ROOT_BYTES] = {
    let mut root = [0; ROOT_BYTES];
    let mut at = 0;
    while at < ROOT_BYTES {
        root[at] = at as u8;
        at += 1;
    }
    root
};

pub(crate) const RUNNING: SourceRecord = SourceRecord {
    device: 7,
    number: 0x0102_0304_0506_0708,
    revision: 3,
    seen: 2,
    ask: true,
    obeys: true,
    finish: false,
    state: SourceState::Running {
        left_bytes: 24_883_200,
        rate_bps: 10_000_000_000,
        until_ns: 5_200_000_000,
    },
    age_ns: 1_500_000,
};

pub(crate) const GRANTED: ControllerRecord = ControllerRecord {
    device: 7,
    number: 0x0102_0304_0506_0708,
    revision: 3,
    seen: 3,
    ask: true,
    told: Told::Granted {
        rate_bps: 20_000_000_000,
        from_ns: 5_100_000_000,
        until_ns: 5_300_000_000,
    },
    missed_ns: Some(6_000_000_000),
};

pub(crate) fn any_source_record() -> impl Strategy<Value = SourceRecord> {
    let state = (0..7_u8, 1..u64::MAX, 1..u64::MAX, any::<u64>()).prop_map(
        |(state, left_bytes, rate_bps, until_ns)| match state {
            0 => SourceState::Waiting { left_bytes },
            1 => SourceState::Running { left_bytes, rate_bps, until_ns },
            2 => SourceState::Done,
            3 => SourceState::Cancelled,
            4 if until_ns % 4 == 0 => {
                SourceState::Periodic { bytes: 0, period_ns: 0, held_bps: until_ns }
            }
            4 => SourceState::Periodic {
                bytes: left_bytes,
                period_ns: rate_bps,
                held_bps: until_ns % 2 * until_ns,
            },
            5 => SourceState::Renewing { devices: until_ns as u32 | 1, rate_bps },
            _ => SourceState::Delivered { acknowledged_bytes: left_bytes, resent_bytes: until_ns },
        },
    );
    let ids = (any::<u32>(), any::<u64>(), 1..u32::MAX, any::<u32>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (ids, flags, state, any::<u64>()).prop_map(
        |((device, number, revision, seen), (ask, obeys, may_finish), state, age_ns)| {
            let lives = matches!(state, SourceState::Waiting { .. } | SourceState::Running { .. });
            let finish = may_finish && lives;
            let record =
                SourceRecord { device, number, revision, seen, ask, obeys, finish, state, age_ns };
            let none = SourceRecord { number: 0, seen: 0, obeys: false, age_ns: 0, ..record };
            match state {
                SourceState::Periodic { .. } => none,
                SourceState::Renewing { .. } => SourceRecord { device: 0, ..none },
                SourceState::Delivered { .. } => SourceRecord { device: 0, ask: false, ..none },
                SourceState::Waiting { .. }
                | SourceState::Running { .. }
                | SourceState::Done
                | SourceState::Cancelled => record,
            }
        },
    )
}

pub(crate) fn any_controller_record() -> impl Strategy<Value = ControllerRecord> {
    let times = (any::<u64>(), any::<u64>());
    let told =
        (0..13_u8, 1..u64::MAX, times).prop_map(|(told, rate_bps, (one, other))| match told {
            0 => Told::Waiting,
            1 => Told::Granted { rate_bps, from_ns: one.min(other), until_ns: one.max(other) },
            2 => Told::Paused,
            3 => Told::Ended,
            4 => Told::Dropped,
            5 => Told::Refused(Reason::UnknownDevice),
            6 => Told::Refused(Reason::TooManyTransfers),
            7 => Told::Refused(Reason::Size),
            8 => Told::Refused(Reason::NotAllowed),
            9 => Told::Rate { rate_bps, could_bps: 0, lasts_ns: one | 1 },
            10 => Told::Rate { rate_bps: 0, could_bps: other, lasts_ns: 0 },
            11 => Told::Renewed { devices: other as u32 | 1, rate_bps, lasts_ns: one | 1 },
            _ => Told::Renewed { devices: 0, rate_bps: 0, lasts_ns: 0 },
        });
    let ids = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>());
    (ids, any::<bool>(), told, any::<Option<u64>>()).prop_map(
        |((device, number, revision, seen), ask, told, missed_ns)| {
            let record = ControllerRecord { device, number, revision, seen, ask, told, missed_ns };
            let none =
                ControllerRecord { number: 0, revision: 0, ask: false, missed_ns: None, ..record };
            match told {
                Told::Rate { .. } => none,
                Told::Renewed { .. } => ControllerRecord { device: 0, ..none },
                Told::Waiting
                | Told::Granted { .. }
                | Told::Paused
                | Told::Ended
                | Told::Dropped
                | Told::Refused(_) => record,
            }
        },
    )
}
