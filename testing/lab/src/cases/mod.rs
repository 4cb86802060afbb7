//! The cases: what the checklist of RoCEv2 rules says, tried against the kernel's stack.
//!
//! In the first three modules a case is the peer and speaks packet by packet: [`framing`],
//! [`responder`] (the kernel answers) and [`requester`] (the kernel asks). In the others, our queue
//! pair is: [`ours`] (all operations), [`refusals`] (errors and waiting), [`losses`].

pub mod framing;
pub mod losses;
pub mod ours;
pub mod refusals;
pub mod requester;
pub mod responder;

use crate::agent::Agent;
use crate::peer::pair::{Ours, Pair};
use crate::peer::rig::{Options, Rig};
use crate::peer::wire::Wire;
use crate::vm::network::IpVersion;
use anyhow::Result;

/// What a case works with.
pub struct Lab {
    /// The guest's agent.
    pub agent: Agent,
    wire_v4: Wire,
    wire_v6: Wire,
}

impl Lab {
    /// Takes the UDP ports.
    ///
    /// # Errors
    /// When they are taken.
    pub fn new(agent: Agent) -> Result<Self> {
        Ok(Self {
            agent,
            wire_v4: Wire::open(IpVersion::V4)?,
            wire_v6: Wire::open(IpVersion::V6)?,
        })
    }

    /// The agent, and our end of the wire for this version of IP.
    pub fn ends(&mut self, version: IpVersion) -> (&mut Agent, &mut Wire) {
        let wire = match version {
            IpVersion::V4 => &mut self.wire_v4,
            IpVersion::V6 => &mut self.wire_v6,
        };
        (&mut self.agent, wire)
    }

    /// Packets that the guest has sent, all with the right ICRC.
    #[must_use]
    pub fn packets_checked(&self) -> u64 {
        self.wire_v4.received + self.wire_v6.received
    }
}

/// A case of this part of the lab.
pub type Case = crate::report::Case<Lab>;

/// All cases.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let mut collector = Collector {
            version,
            cases: &mut cases,
        };
        framing::add(&mut collector);
        responder::add(&mut collector);
        requester::add(&mut collector);
        ours::add(&mut collector);
        refusals::add(&mut collector);
        losses::add(&mut collector);
    }
    cases
}

/// Collects cases over one version of IP.
pub struct Collector<'a> {
    version: IpVersion,
    cases: &'a mut Vec<Case>,
}

impl Collector<'_> {
    /// Adds a case that speaks packet by packet with a queue pair of the guest.
    pub fn by_hand(
        &mut self,
        name: &str,
        options: Options,
        run: impl Fn(&mut Rig<'_>) -> Result<()> + 'static,
    ) {
        let version = self.version;
        let name = format!("{name}/{version}");
        let case = Case::new(name, move |lab| {
            let (agent, wire) = lab.ends(version);
            let mut rig = Rig::connect(agent, wire, version, &options)?;
            let outcome = run(&mut rig);
            // What the case says comes first, also when the guest cannot clean up after it.
            let cleaned = rig.guest.destroy(rig.agent);
            outcome.and(cleaned)
        });
        self.cases.push(case);
    }

    /// Adds a case of our queue pair and one of the guest.
    pub fn pair(
        &mut self,
        name: &str,
        ours: Ours,
        run: impl Fn(&mut Pair<'_>) -> Result<()> + 'static,
    ) {
        let version = self.version;
        let name = format!("{name}/{version}");
        let case = Case::new(name, move |lab| {
            let (agent, wire) = lab.ends(version);
            let mut pair = Pair::connect(agent, wire, version, &ours)?;
            let outcome = run(&mut pair);
            let cleaned = pair.guest.destroy(pair.agent);
            outcome.and(cleaned)
        });
        self.cases.push(case);
    }
}
