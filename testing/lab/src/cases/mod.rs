//! The cases: the rules of RoCEv2, checked against the kernel's stack.
//!
//! In the first three modules a case is the peer and speaks packet by packet: [`framing`],
//! [`responder`] (the kernel answers) and [`requester`] (the kernel asks). In the others, our queue
//! pair is: [`ours`] (all operations), [`refusals`] (errors and waiting), [`losses`].
mod framing;
mod losses;
mod ours;
mod refusals;
mod requester;
mod responder;

use crate::end::Options;
use crate::lab::{Case, Lab};
use crate::peer::pair::{Ours, Pair};
use crate::peer::rig::Rig;
use crate::vm::network::IpVersion;
use anyhow::Result;

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let mut collector = Collector { version, cases: &mut cases };
        framing::add(&mut collector);
        responder::add(&mut collector);
        requester::add(&mut collector);
        ours::add(&mut collector);
        refusals::add(&mut collector);
        losses::add(&mut collector);
    }
    cases
}

pub(crate) struct Collector<'a> {
    version: IpVersion,
    cases: &'a mut Vec<Case>,
}

impl Collector<'_> {
    pub(crate) fn by_hand(
        &mut self,
        name: &str,
        options: Options,
        run: impl Fn(&mut Rig<'_>) -> Result<()> + 'static,
    ) {
        let version = self.version;
        self.add(name, move |lab| {
            let (_, guest, wire) = lab.peer(version)?;
            let mut rig = Rig::connect(guest, wire, version, &options)?;
            let outcome = run(&mut rig);
            // An error of the case takes precedence over one of cleaning up.
            outcome.and(rig.guest.leave())
        });
    }

    pub(crate) fn pair(
        &mut self,
        name: &str,
        ours: Ours,
        run: impl Fn(&mut Pair<'_>) -> Result<()> + 'static,
    ) {
        let version = self.version;
        self.add(name, move |lab| {
            let (machine, guest, wire) = lab.peer(version)?;
            let mut pair = Pair::connect(machine, guest, wire, version, &ours)?;
            let outcome = run(&mut pair);
            outcome.and(pair.guest.leave())
        });
    }

    fn add(&mut self, name: &str, run: impl Fn(&mut Lab) -> Result<()> + 'static) {
        self.cases.push(Case::new(format!("{name}/{}", self.version), run));
    }
}
