//! Packets of a third host that sees neither stream.
use super::Args;
use super::sessions::{devices, peer};
use crate::host::process::pass;
use crate::wire::roce::{
    ACKNOWLEDGE, Bth, CNP, PORT, Raw, Route, WRITE_ONLY, aeth, reth, transport,
};
use crate::wire::session::forge;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
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
            if sent.is_multiple_of(64) && start.elapsed() > time {
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

/// Holds a session of its own, and sends all but its first packets.
pub(super) fn leave_a_gap(args: &Args) -> Result<Value> {
    let (mut peer, hello) = (peer(args)?, args.value("model"));
    let from: Ipv4Addr = args.text("from")?.parse()?;
    let mut hello = forge(hello, args.number("instance")?, &devices(args, 0)?)?;
    let gid: String = from.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    hello["providers"][0]["gid"] = json!(format!("00000000000000000000ffff{gid}"));
    let mut connect = args.value("connect").clone();
    connect["endpoint"]["psn"] = json!(0);
    let welcome = peer.hello(&hello)?;
    let ready = peer.ready(&welcome, &connect, 0)?;
    ensure!(ready["type"] == "ready", "answered {ready}");
    let number = |pointer| welcome.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let addr = u64::from_str_radix(welcome["ring"]["addr"].as_str().unwrap_or_default(), 16)?;
    let bytes = 1024;
    let header = reth(addr + 8192, number("/ring/rkey") as u32, bytes);
    let rest = [header, vec![0; bytes as usize]].concat();
    let to = (args.text("to")?.parse()?, number("/endpoint/net/udp_port") as u16);
    let own = number_of(&hello, "/providers/0/net/udp_port");
    let (raw, route) = (Raw::open()?, Route { from: (from, own), to });
    let count = args.number("packets")?;
    for psn in 0..count as u32 {
        let bth = Bth {
            opcode: WRITE_ONLY,
            qpn: number("/endpoint/qpn") as u32,
            psn: psn + 8,
            ack: false,
        };
        raw.send(route, &transport(bth, &rest))?;
        if psn.is_multiple_of(64) {
            // Its buffer is not what is tried here.
            pass(Duration::from_millis(1));
        }
    }
    pass(args.time()?);
    Ok(json!({ "sent": count }))
}

fn number_of(value: &Value, pointer: &str) -> u16 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(u64::from(PORT)) as u16
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
