//! Packets of a third host that sees neither stream.
use super::Args;
use crate::host::process::pass;
use crate::wire::roce::{
    ACKNOWLEDGE, Bth, CNP, PORT, Raw, Route, WRITE_ONLY, aeth, reth, transport,
};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn route(args: &Args) -> Result<Route> {
    let port = |name: &str| args.number(name).map_or(PORT, |port| port as u16);
    Ok(Route {
        from: (args.text("from")?.parse()?, port("from_port")),
        to: (args.text("to")?.parse()?, port("to_port")),
    })
}

/// Sends a packet for each PSN of a range, over and over until the time is up.
fn sweep(args: &Args, bth: Bth, rest: &[u8]) -> Result<Value> {
    let (raw, route, start, time) = (Raw::open()?, route(args)?, Instant::now(), args.time()?);
    let (first, step) = (args.number("psn")? as u32, args.number("step")? as u32);
    let mut sent = 0_u64;
    'all: loop {
        for number in 0..args.number("packets")? as u32 {
            let psn = first.wrapping_add(number.wrapping_mul(step)) & 0xff_ffff;
            raw.send(route, &transport(Bth { psn, ..bth }, rest))?;
            sent += 1;
            if sent % 64 == 0 && start.elapsed() > time {
                break 'all;
            }
        }
        if args.value("once") == true {
            break;
        }
    }
    Ok(json!({ "sent": sent }))
}

/// WRITEs of the peer, with the key and address that it was told or made up.
pub(super) fn blind_writes(args: &Args) -> Result<Value> {
    let bytes = args.number("bytes").unwrap_or(64) as usize;
    let header = reth(args.number("addr")?, args.number("key")? as u32, bytes as u32);
    let bth = Bth { opcode: WRITE_ONLY, qpn: args.number("qpn")? as u32, psn: 0, ack: true };
    sweep(args, bth, &[header, vec![0xee; bytes]].concat())
}

/// Acknowledgements with this syndrome.
pub(super) fn naks(args: &Args) -> Result<Value> {
    let bth = Bth { opcode: ACKNOWLEDGE, qpn: args.number("qpn")? as u32, psn: 0, ack: false };
    sweep(args, bth, &aeth(args.number("syndrome")? as u8))
}

/// Congestion notifications, so many a second.
pub(super) fn cnps(args: &Args) -> Result<Value> {
    let (raw, route, start, time) = (Raw::open()?, route(args)?, Instant::now(), args.time()?);
    let bth = Bth { opcode: CNP, qpn: args.number("qpn")? as u32, psn: 0, ack: false };
    let (rate, packet) = (args.real("rate")?, transport(bth, &[0; 16]));
    let mut sent = 0_u64;
    while start.elapsed() < time {
        while (sent as f64) < rate * start.elapsed().as_secs_f64() {
            raw.send(route, &packet)?;
            sent += 1;
        }
        pass(Duration::from_micros(100));
    }
    Ok(json!({ "sent": sent }))
}
