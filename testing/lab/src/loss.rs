//! What the guest's switch does to packets: loses chosen ones, or impairs them by chance.

use crate::agent::Agent;
use anyhow::Result;
use std::fmt::Write as _;

/// The class of packets that chance may impair, in `guest/agent.py` too: those of RoCE, and not
/// those of the agent.
const IMPAIRED_CLASS: &str = "1:2";

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the guest's RDMA device.
    ToGuest,
    /// From the guest's RDMA device to the host.
    FromGuest,
}

impl Direction {
    /// The port of the switch on which they come in.
    fn port(self) -> &'static str {
        match self {
            Self::ToGuest => "eth0",
            Self::FromGuest => "port0",
        }
    }
}

/// A packet that is lost, once or several times.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Which way it goes.
    pub direction: Direction,
    /// Its PSN.
    pub psn: u32,
    /// How often it is lost.
    pub times: u32,
}

/// Everything that the switch does to packets.
#[derive(Clone, Debug, Default)]
pub struct Impairment {
    /// Chosen packets are lost.
    pub chosen: Vec<Chosen>,
    /// Options of netem for packets to the guest, such as `loss 5%`; empty for none.
    pub to_guest: &'static str,
    /// The same for packets from the guest.
    pub from_guest: &'static str,
}

impl Impairment {
    /// Tells the switch; the former impairment ends.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn begin(&self, agent: &mut Agent) -> Result<()> {
        agent.impair(&rules(&self.chosen), self.to_guest, self.from_guest)
    }
}

/// Rules in the language of nft. The PSN lies behind 8 bytes of UDP and 9 of BTH.
fn rules(chosen: &[Chosen]) -> String {
    let mut lines = String::new();
    for Chosen {
        direction,
        psn,
        times,
    } in chosen
    {
        let port = direction.port();
        // Writing to a String cannot fail. A day is longer than any case.
        let _ = writeln!(
            lines,
            "iifname \"{port}\" udp dport 4791 @th,136,24 {psn:#08x} \
             limit rate 1/day burst {times} packets counter name lost drop"
        );
    }
    format!(
        "table bridge lab {{\ncounter lost {{ }}\nchain switch {{\n\
         type filter hook forward priority 0;\n\
         udp dport 4791 meta priority set {IMPAIRED_CLASS}\n{lines}}}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_packet_is_told_by_port_and_psn() {
        let text = rules(&[Chosen {
            direction: Direction::FromGuest,
            psn: 0x1f,
            times: 2,
        }]);
        assert!(text.contains("iifname \"port0\" udp dport 4791 @th,136,24 0x00001f limit"));
        assert!(text.contains("burst 2 packets counter name lost drop"));
    }
}
