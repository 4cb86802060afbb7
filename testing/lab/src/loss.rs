//! Impairments by the guest's switch: it drops chosen packets, or impairs packets at random.
use crate::vm::guest::Guest;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;

/// The traffic class that random impairments affect: RoCE packets.
const IMPAIRED_CLASS: &str = "1:2";

/// The ports of the switch: the first leads to the guest's RDMA device, the second to the host.
pub(crate) const PORTS: [&str; 2] = ["port0", "eth0"];

const LIMIT: Duration = Duration::from_secs(60);

const SOUND: &str = "nft flush ruleset; for port in port0 eth0; do
tc qdisc del dev $port root 2>/dev/null; done; true";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToGuest,
    FromGuest,
}

impl Direction {
    /// Returns the ingress port of the switch.
    fn port(self) -> &'static str {
        match self {
            Self::ToGuest => PORTS[1],
            Self::FromGuest => PORTS[0],
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) direction: Direction,
    pub(crate) psn: u32,
    pub(crate) times: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Impairment {
    pub(crate) chosen: Vec<Chosen>,
    /// Options of netem for both directions, such as `loss 5%`; empty for none.
    pub(crate) both_directions: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) chosen: u64,
    pub(crate) by_chance: u64,
}

impl Impairment {
    pub(crate) fn begin(&self, guest: &Guest) -> Result<()> {
        let mut script = format!("set -e; nft -f - <<'END'\n{}END\n", rules(&self.chosen));
        if !self.both_directions.is_empty() {
            for port in PORTS {
                // Two bands: the rules put RoCE into the second, which netem impairs.
                let bands = ["0"; 16].join(" ");
                let root = format!("dev {port} root handle 1: prio bands 2 priomap {bands}");
                let impaired = format!("dev {port} parent {IMPAIRED_CLASS} netem");
                let _ = writeln!(script, "tc qdisc add {root}");
                let _ = writeln!(script, "tc qdisc add {impaired} {}", self.both_directions);
            }
        }
        shell(guest, &script).map(drop)
    }

    pub(crate) fn end(guest: &Guest) -> Result<Lost> {
        let listed = shell(guest, "nft -j list counters; tc -s -j qdisc show")?;
        shell(guest, SOUND)?;
        let (counters, queues) = listed.split_once('\n').context("nft or tc printed nothing")?;
        let (counters, queues) = (json(counters)?, json(queues)?);
        let counters = counters["nftables"].as_array().into_iter().flatten();
        let queues = queues.as_array().into_iter().flatten();
        Ok(Lost {
            chosen: counters.filter_map(|entry| entry["counter"]["packets"].as_u64()).sum(),
            by_chance: queues
                .filter(|queue| queue["kind"] == "netem")
                .filter_map(|queue| queue["drops"].as_u64())
                .sum(),
        })
    }
}

fn shell(guest: &Guest, script: &str) -> Result<String> {
    let finished = guest.run(&["sh", "-c", script], LIMIT)?;
    Ok(finished.stdout)
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("not JSON: {text}"))
}

/// Returns rules for nft(8). The PSN follows 8 bytes of UDP and 9 of BTH.
fn rules(chosen: &[Chosen]) -> String {
    let mut lines = String::new();
    for Chosen { direction, psn, times } in chosen {
        let port = direction.port();
        // Writing to a String cannot fail. No case takes a day.
        let _ = writeln!(
            lines,
            "iifname \"{port}\" udp dport 4791 @th,136,24 {psn:#08x} \
             limit rate 1/day burst {times} packets counter name lost drop"
        );
    }
    format!(
        "flush ruleset\ntable bridge lab {{\ncounter lost {{ }}\nchain switch {{\n\
         type filter hook forward priority 0;\n\
         udp dport 4791 meta priority set {IMPAIRED_CLASS}\n{lines}}}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_packet_is_told_by_port_and_psn() {
        let text = rules(&[Chosen { direction: Direction::FromGuest, psn: 0x1f, times: 2 }]);
        assert!(text.contains("iifname \"port0\" udp dport 4791 @th,136,24 0x00001f limit"));
        assert!(text.contains("burst 2 packets counter name lost drop"));
    }
}
