//! Part 3: packets of a third host that sees neither stream.
//!
//! What it would have to guess (queue pair numbers, PSNs, keys, addresses) it is told, as far as a case
//! says so: each case stands for the attacker that has guessed so much.
use super::{Case, quick, slow};
use crate::host::place::{COLLECTOR, SOURCE, STRANGER, User};
use crate::host::process::pass;
use crate::learned::{RingPlace, learn, told};
use crate::scene::{Check, Scene, Setup, attacked};
use crate::wire::http;
use crate::wire::roce::{NAK_ACCESS, NAK_SEQUENCE, PORT};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick("3.rkeys", "The key of an own session tells nothing of others' keys", |h, n| {
        attacked(h, n, &Setup::over("roce"), |scene| sample(scene, "keys"))
    }),
    quick("3.qpns", "The queue pair number of an own session tells nothing of others'", |h, n| {
        attacked(h, n, &Setup::over("roce"), |scene| sample(scene, "numbers"))
    }),
    quick("3.early-packets", "Blind packets ahead of their turn end no session", |h, n| {
        attacked(h, n, &Setup::lan(), early)
    }),
    quick("3.early-counted", "A packet that cannot be legal is counted", |h, n| {
        attacked(h, n, &Setup::lan(), early_counted)
    }),
    quick(
        "3.early-kept",
        "Packets ahead of their turn take no more memory than a window",
        |h, n| attacked(h, n, &Setup::lan(), kept),
    ),
    quick(
        "3.wrong-key",
        "A WRITE of a wrong key from a UDP port that nobody told ends no session",
        |h, n| attacked(h, n, &Setup::lan(), wrong_key),
    ),
    slow("3.nak-access", "A spoofed NAK remote access error ends no session", |h, n| {
        attacked(h, n, &large(), |scene| naks(scene, NAK_ACCESS))
    }),
    slow("3.nak-sequence", "Spoofed NAKs for sequence errors do not slow a stream", |h, n| {
        attacked(h, n, &large(), |scene| naks(scene, NAK_SEQUENCE))
    }),
    slow("3.cnp-flood", "25,000 CNPs a second do not slow a stream", |h, n| {
        attacked(h, n, &large(), cnps)
    }),
    quick(
        "3.source-port-checked",
        "Between two of ours a packet from another UDP port is dropped",
        |h, n| attacked(h, n, &Setup::lan(), wrong_port),
    ),
    quick(
        "3.unknown-peer",
        "A packet from another address than the peer's changes nothing",
        |h, n| attacked(h, n, &Setup::lan(), unknown_peer),
    ),
];

/// Frames as large as those of cameras.
fn large() -> Setup {
    Setup { input: "synthetic:640x480:rgb24", rate: 25, ..Setup::lan() }
}

/// What a bystander's session was told, with where its packets go.
fn facts(scene: &Scene<'_>) -> Result<Value> {
    let relay = &scene.relays[0];
    let number = |kind, pointer| told(relay, kind, pointer);
    let port = number("hello", "/providers/0/net/udp_port").unwrap_or(json!(PORT));
    Ok(json!({
        "from": SOURCE, "to": COLLECTOR, "from_port": port, "to_port": number("welcome", "/endpoint/net/udp_port")?,
        "qpn": number("welcome", "/endpoint/qpn")?,
        "source_qpn": number("connect", "/endpoint/qpn")?,
        "psn": number("connect", "/endpoint/psn")?,
        "key": number("welcome", "/ring/rkey")?,
        "addr": RingPlace::of(relay)?.addr,
    }))
}

fn with(mut args: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        args[name] = value.clone();
    }
    args
}

/// Own sessions whose keys and numbers are looked at: enough to see a rule of halves of 16 bits.
const SAMPLES: usize = 3600;

/// Takes keys and numbers of own sessions, and looks for a rule in them.
fn sample(scene: &mut Scene<'_>, what: &str) -> Result<Check> {
    let learned = learn(scene.host, "roce")?;
    let args = json!({
        "address": scene.address, "model": learned.hello, "instance": 0x5a5a, "names": 1, "count": SAMPLES,
    });
    let found = scene.attack(User::Other, "sample", &args)?;
    let values: Vec<u64> =
        found[what].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let mut steps: Vec<i64> =
        values.windows(2).map(|pair| pair[1].cast_signed() - pair[0].cast_signed()).collect();
    steps.sort_unstable();
    steps.dedup();
    let rule = pairs_under_a_rule(&values);
    let text = format!("{} of own sessions, {} different steps", values.len(), steps.len());
    let held = steps.len() > SAMPLES / 2;
    if what != "keys" {
        return Ok((held, text));
    }
    let text =
        format!("{text}, {rule} pairs as a permutation of counted slots has them, 99 by chance");
    Ok((held && rule < 160, text))
}

/// Pairs of keys whose upper halves differ as the numbers of their sessions do. A permutation of four
/// rounds over two halves (Feistel) gives twice as many as chance for a slot that is used again and again:
/// whenever two third rounds have the same input, the halves differ as the inputs of the first do.
fn pairs_under_a_rule(keys: &[u64]) -> usize {
    let pairs = |first: u64| {
        let rest = keys.iter().zip(first..).map(|(key, number)| key >> 16 ^ number & 0xffff);
        let mut rest: Vec<u64> = rest.collect();
        rest.sort_unstable();
        let same = rest.chunk_by(|one, other| one == other).map(<[u64]>::len);
        same.map(|count| count * (count - 1) / 2).sum::<usize>()
    };
    (0..8).map(pairs).max().unwrap_or(0)
}

fn early(scene: &mut Scene<'_>) -> Result<Check> {
    let more = json!({
        "psn": 0, "step": 2000, "packets": 8389, "once": true, "seconds": 5.0, "key": 0xdead_beef_u32, "addr": 4096,
    });
    let args = with(facts(scene)?, &more);
    let found = scene.attack(User::Router, "blind_writes", &args)?;
    // Until the stream has come to where one was kept.
    pass(Duration::from_millis(800));
    Ok((true, format!("{} packets, told the queue pair number", found["sent"])))
}

fn metrics(scene: &Scene<'_>) -> Result<String> {
    // The page listens on loopback of the collector's host.
    let page = scene.page.context("no page")?;
    let get = || http::get(page, "/metrics").map(|(_, text)| text);
    crate::scene::inside(scene.lan.as_ref().map(|lan| &lan.collector), get)
}

/// Packets dropped so far, with their reasons.
fn dropped(text: &str) -> (f64, String) {
    let lines =
        text.lines().filter(|line| line.starts_with("catchment_roce_packets_dropped_total"));
    let lines: Vec<_> = lines.filter(|line| !line.ends_with(" 0")).collect();
    let sum = lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    let reasons = lines.iter().filter_map(|line| line.split("reason=").nth(1));
    (sum, reasons.collect::<Vec<_>>().join(" "))
}

fn early_counted(scene: &mut Scene<'_>) -> Result<Check> {
    let (before, _) = dropped(&metrics(scene)?);
    let (_, text) = early(scene)?;
    pass(Duration::from_millis(300));
    let (now, reasons) = dropped(&metrics(scene)?);
    let counted = now - before;
    Ok((counted > 400.0, format!("{counted} counted as dropped ({reasons}); {text}")))
}

/// The peer itself leaves a gap and sends whole packets behind it, as far as a window reaches.
fn kept(scene: &mut Scene<'_>) -> Result<Check> {
    let learned = learn(scene.host, "roce")?;
    let peak = scene.collector.usage().peak_kib;
    let args = json!({
        "address": scene.address, "model": learned.hello, "connect": learned.connect, "instance": 99,
        "names": 1, "from": STRANGER, "to": COLLECTOR, "packets": 16_000, "seconds": 0.3,
    });
    let found = scene.attack(User::Router, "leave_a_gap", &args)?;
    let grown = scene.collector.usage().peak_kib.saturating_sub(peak) >> 10;
    let text =
        format!("{grown} MiB more for {} packets of 1,024 bytes behind a gap", found["sent"]);
    Ok((grown <= 8 && found["sent"] != 0, text))
}

fn wrong_key(scene: &mut Scene<'_>) -> Result<Check> {
    let more = json!({ "step": 1, "packets": 40_000, "key": 0x1234_5678, "seconds": 1.0 });
    let args = with(facts(scene)?, &more);
    let found = scene.attack(User::Router, "blind_writes", &args)?;
    Ok((true, format!("{} packets, told number and first PSN", found["sent"])))
}

fn wrong_port(scene: &mut Scene<'_>) -> Result<Check> {
    // Over the payload of a slot, where no commit word tells; the PSN takes the turn of the source's.
    let mut args = facts(scene)?;
    let addr = RingPlace::of(&scene.relays[0])?.payloads(20_000).next().context("no slot")?;
    let more =
        json!({ "step": 1, "packets": 40_000, "addr": addr, "from_port": 5555, "seconds": 1.0 });
    args = with(args, &more);
    let found = scene.attack(User::Router, "blind_writes", &args)?;
    Ok((true, format!("{} packets, told number, key, address and first PSN", found["sent"])))
}

fn unknown_peer(scene: &mut Scene<'_>) -> Result<Check> {
    let more = json!({ "step": 1, "packets": 40_000, "from": "10.98.0.77", "seconds": 1.0 });
    let args = with(facts(scene)?, &more);
    let found = scene.attack(User::Router, "blind_writes", &args)?;
    Ok((true, format!("{} packets, told all but the address", found["sent"])))
}

/// NAKs to the source, for all PSNs that may be in flight.
fn naks(scene: &mut Scene<'_>, syndrome: u8) -> Result<Check> {
    let args = facts(scene)?;
    let more = json!({
        "from": args["to"], "to": args["from"], "from_port": args["to_port"], "to_port": args["from_port"],
        "qpn": args["source_qpn"], "syndrome": syndrome, "step": 32, "packets": 1 << 14, "seconds": 3.0,
    });
    let found = scene.attack(User::Router, "naks", &with(args, &more))?;
    Ok((
        true,
        format!("{} NAKs over half a million PSNs, told number and first PSN", found["sent"]),
    ))
}

fn cnps(scene: &mut Scene<'_>) -> Result<Check> {
    let args = facts(scene)?;
    let more = json!({
        "from": args["to"], "to": args["from"], "from_port": args["to_port"], "to_port": args["from_port"],
        "qpn": args["source_qpn"], "rate": 25_000.0, "seconds": 3.0,
    });
    let found = scene.attack(User::Router, "cnps", &with(args, &more))?;
    Ok((true, format!("{} CNPs, told the queue pair number", found["sent"])))
}
