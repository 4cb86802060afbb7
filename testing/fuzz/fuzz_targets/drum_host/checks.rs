//! What must hold for any messages to a host of DRUM. The fuzz target and the ordinary test that
//! replays its corpus share this file.
//!
//! An input is a list of steps: who sends (u8, from 1 to 3), ms that pass (u8), bytes of the message
//! (u16, big-endian), the message; where the sender is 128 or more, what data carry: two applications (u8 each), a stamp (u16),
//! numbers.
use catchment_control::drum::{Application, Destination, Host, HostConfig, Input, Message, Output};

const CAPACITY: f64 = 10.0;

fn host() -> Host {
    let config = HostConfig {
        host: 0,
        incarnation: 1,
        alpha: 1.0,
        beta: 0.01,
        send_capacity: CAPACITY,
        completion_capacity: 8.0,
        round_ns: 1_000_000,
        lease_ns: 40_000_000,
        restarted: false,
    };
    let mut host = Host::new(config, 0).expect("good values");
    for application in 0..3 {
        let to = |host| Destination { host, application, completions: 0.5 };
        let destinations = vec![to(0), to(application + 1)];
        let new = Application { application, weight: 2.0, limit: None, destinations };
        host.handle(0, Input::Join(new)).expect("good values");
    }
    host
}

/// Panics when something does not hold.
pub(crate) fn check(mut script: &[u8]) {
    let (mut host, mut now) = (host(), 0);
    while let Some((&[from, wait, high, low], rest)) = script.split_first_chunk::<4>() {
        let (bytes, rest) =
            rest.split_at(usize::from(u16::from_be_bytes([high, low])).min(rest.len()));
        script = rest;
        if let Ok(message) = Message::decode(bytes) {
            assert_eq!(message.encode(), bytes);
        }
        now += 1_000_000 * u64::from(wait);
        host.handle(now, Input::Tick).expect("a tick is always possible");
        let (is_data, from) = (from >= 128, u32::from(from % 3) + 1);
        let input = match bytes.first_chunk::<12>() {
            Some(&[there, here, high, low, ref numbers @ ..]) if is_data => Input::Carried {
                from,
                ends: (there.into(), here.into()),
                stamp: u16::from_be_bytes([high, low]),
                numbers: *numbers,
            },
            _ => Input::Packet { from, bytes },
        };
        host.handle(now, input).expect("a packet is always possible");
        // At most offers and answers for each neighbour, twice.
        let outputs = (0..40).find(|_| matches!(host.poll(now), Output::Timeout(_)));
        assert!(outputs.is_some());
        let rates = host.rates().iter().map(|rate| rate.1);
        assert!(rates.clone().all(|rate| rate >= 0.0 && rate.is_finite()));
        assert!(rates.sum::<f64>() <= CAPACITY * (1.0 + 1e-9));
    }
}
