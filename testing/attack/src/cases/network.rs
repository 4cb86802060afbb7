//! Part 3: what goes over the network, and what is said about it.
use super::{Case, Host, quick};
use crate::host::place::{COLLECTOR, SOURCE, User};
use crate::report::Verdict;
use crate::scene::{Check, Scene, Setup, attacked};
use anyhow::{Context as _, Result};
use rustix::net::{AddressFamily, Protocol, RawProtocol, RecvFlags, SocketFlags, SocketType};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    quick(
        "3.source-port-spreads",
        "Queue pairs send from UDP ports that spread over paths",
        |h, n| attacked(h, n, &Setup { bystanders: 2, ..Setup::lan() }, ports),
    ),
    quick(
        "3.authenticate",
        "With --authenticate a spoofed packet changes nothing at all",
        authenticated,
    ),
    quick("3.authenticate-cost", "What --authenticate costs stands in docs/results", |h, _| {
        cost(h)
    }),
    quick(
        "3.security-cases",
        "SECURITY.md says what on-path and off-path attackers can do",
        security,
    ),
];

/// UDP source ports of packets that arrive at the collector's host.
fn ports_seen(time: Duration) -> Result<BTreeSet<u16>> {
    // ETH_P_IP, in network order.
    let protocol = NonZeroU32::new(u32::from(0x0800_u16.to_be())).context("a protocol")?;
    let socket = rustix::net::socket_with(
        AddressFamily::PACKET,
        SocketType::DGRAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        Some(Protocol::from_raw(RawProtocol::from(protocol))),
    )?;
    let (start, mut ports, mut bytes) = (Instant::now(), BTreeSet::new(), [0; 128]);
    while start.elapsed() < time {
        let Ok((_, read)) = rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty()) else {
            std::thread::yield_now();
            continue;
        };
        let from_source = read >= 28 && bytes[9] == 17 && bytes[12..16] == SOURCE.octets();
        if from_source && bytes[16..20] == COLLECTOR.octets() {
            ports.insert(u16::from_be_bytes([bytes[20], bytes[21]]));
        }
    }
    Ok(ports)
}

fn ports(scene: &mut Scene<'_>) -> Result<Check> {
    let lan = scene.lan.as_ref().context("no network")?;
    let ports = lan.collector.run(|| ports_seen(Duration::from_millis(500)))??;
    let spread = ports.iter().filter(|port| **port >= 0xc000).count();
    Ok((spread >= 2, format!("packets of two queue pairs came from {ports:?}")))
}

fn has_option(host: &Host, command: &str, option: &str) -> Result<bool> {
    let output = host.catchment().args([command, "--help"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(option))
}

/// The attacker is told everything but the key.
fn authenticated(host: &Host, name: &str) -> Result<Verdict> {
    if !has_option(host, "send", "--authenticate")? {
        return Ok(Verdict::new(false, "there is no option --authenticate"));
    }
    let certificates = super::identity::certificates(host, &format!("{name}-certs"))?;
    let words = |who| certificates.words(who);
    let strings =
        |words: Vec<String>| words.into_iter().chain(["--authenticate".to_owned()]).collect();
    let setup = Setup {
        collect: strings(words("collector")),
        send: strings(words("source")),
        relay: false,
        ..Setup::lan()
    };
    attacked(host, name, &setup, |scene| {
        let session = scene.sources[0].event("session").context("no session")?;
        let args = json!({
            "from": SOURCE, "to": COLLECTOR, "qpn": session["collector_qpn"], "psn": 0, "step": 4000,
            "packets": 4200, "key": 1, "addr": 4096, "seconds": 1.5,
        });
        let found = scene.attack(User::Router, "blind_writes", &args)?;
        Ok((true, format!("{} packets", found["sent"])))
    })
}

fn cost(host: &Host) -> Result<Verdict> {
    let mut named = Vec::new();
    for entry in fs::read_dir(host.docs.join("docs/results"))?.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        if text.contains("--authenticate") && text.contains("GB") {
            named.push(entry.file_name());
        }
    }
    Ok(Verdict::new(!named.is_empty(), format!("pages with its cost: {named:?}")))
}

fn security(host: &Host, _: &str) -> Result<Verdict> {
    let page = fs::read_to_string(host.docs.join("SECURITY.md")).unwrap_or_default().to_lowercase();
    let needed = ["off the path", "on the path", "wireguard", "--authenticate", "cnp", "nak"];
    let missing: Vec<_> = needed.iter().filter(|word| !page.contains(**word)).collect();
    Ok(Verdict::new(missing.is_empty(), format!("SECURITY.md does not name {missing:?}")))
}
