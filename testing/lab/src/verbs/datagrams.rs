//! Datagrams between two providers on two hosts, and SEND with invalidate.
use super::operations::SITES;
use crate::end::{Card, Datagram, Kind, Work};
use crate::lab::{Case, Lab, Site};
use crate::vm::network::IpVersion;
use anyhow::{Result, bail, ensure};
use catchment_verbs::GRH_BYTES;

const OURS: u32 = 0x11;
const THEIRS: u32 = 0x22;

/// Without payload, with pad, and a whole packet of the smallest path MTU of all pairs.
const LENGTHS: [usize; 4] = [0, 1, 255, 1024];

/// Offset of receive buffers: network header, then payload.
const THERE: usize = 1 << 20;

pub(crate) fn add(cases: &mut Vec<Case>) {
    for (from, to) in SITES {
        for version in [IpVersion::V4, IpVersion::V6] {
            let name = |what| format!("datagrams/{from} to {to}/{what}/{version}");
            cases.push(Case::new(name("with their sender"), move |lab| {
                arrive(lab, from, to, version)
            }));
            cases.push(Case::new(name("a wrong Q_Key"), move |lab| {
                wrong_qkey(lab, from, to, version)
            }));
        }
        let name = format!("invalidation/{from} to {to}");
        cases.push(Case::new(name, move |lab| invalidate(lab, from, to)));
    }
}

fn datagram(peer: &Card, qkey: u32, bytes: usize, imm: Option<u32>) -> Datagram {
    Datagram { endpoint: peer.endpoint.clone(), qkey, offset: 0, bytes, imm }
}

/// Checks payload, immediate data, the sender's QPN and, in the network header, its address.
fn arrive(lab: &mut Lab, from: Site, to: Site, version: IpVersion) -> Result<()> {
    let mut sender = lab.end_of_kind(from, version, Kind::Datagrams(OURS))?;
    let mut receiver = lab.end_of_kind(to, version, Kind::Datagrams(THEIRS))?;
    let peer = receiver.card.clone();
    let endpoint: catchment_verbs::Endpoint = sender.card.endpoint.parse()?;
    for (seed, bytes) in (1..).zip(LENGTHS) {
        for imm in [None, Some(0x0102_a3f4)] {
            receiver.receive(seed, THERE, GRH_BYTES + bytes)?;
            sender.fill(0, bytes, seed)?;
            sender.send_to(datagram(&peer, THEIRS, bytes, imm))?;
            let done = receiver.expect(true, "Success")?;
            let seen = (done.wr_id, done.bytes, done.imm, done.source_qpn);
            let all = (GRH_BYTES + bytes) as u64;
            ensure!(seen == (seed, all, imm, Some(endpoint.qpn)), "{done:?}");
            receiver.see(THERE + GRH_BYTES, bytes, seed)?;
            let source = receiver.source(THERE)?;
            let expected = from.address(version).to_string();
            ensure!(source == expected, "from {source}, not {expected}");
        }
    }
    Ok(())
}

/// A datagram with a wrong Q_Key consumes no receive: the next one does.
fn wrong_qkey(lab: &mut Lab, from: Site, to: Site, version: IpVersion) -> Result<()> {
    const BYTES: usize = 100;
    let mut sender = lab.end_of_kind(from, version, Kind::Datagrams(OURS))?;
    let mut receiver = lab.end_of_kind(to, version, Kind::Datagrams(THEIRS))?;
    let peer = receiver.card.clone();
    let places = [THERE, THERE + 4096];
    for (wr_id, place) in (1..).zip(places) {
        receiver.receive(wr_id, place, GRH_BYTES + BYTES)?;
    }
    for (seed, place) in (1..).zip(places) {
        sender.fill(0, BYTES, 100 + seed)?;
        sender.send_to(datagram(&peer, THEIRS + 1, BYTES, None))?;
        sender.fill(0, BYTES, seed)?;
        sender.send_to(datagram(&peer, THEIRS, BYTES, None))?;
        let done = receiver.expect(true, "Success")?;
        ensure!(done.wr_id == seed, "{done:?}");
        receiver.see(place + GRH_BYTES, BYTES, seed)?;
    }
    ensure!(receiver.state()? == "Rts", "the receiver left RTS");
    Ok(())
}

/// The kernel's stack can invalidate a region of ours. The kernel's devices do not allow that for
/// regions, and the provider's error says so.
fn invalidate(lab: &mut Lab, from: Site, to: Site) -> Result<()> {
    let version = IpVersion::V4;
    let asked = lab.end_of_kind(to, version, Kind::Invalidable);
    if to != Site::Host {
        let Err(error) = asked else {
            bail!("a region of {to} that peers may invalidate");
        };
        let said = format!("{error:#}");
        ensure!(said.contains("REMOTE_INVALIDATE"), "{said}");
        return Ok(());
    }
    let (mut asked, mut asking) = (asked?, lab.end(from, version)?);
    asked.connect(&asking.card)?;
    asking.connect(&asked.card)?;
    asking.fill(0, 100, 1)?;
    asking.run(Work::Write(asked.place(0)), 0, 100)?;
    let rkey = asked.card.rkey;
    asked.receive(7, THERE, 100)?;
    asking.run(Work::SendInvalidate(rkey), 0, 100)?;
    let done = asked.expect(true, "Success")?;
    ensure!((done.wr_id, done.bytes, done.invalidated) == (7, 100, Some(rkey)), "{done:?}");
    asked.see(THERE, 100, 1)?;
    asking.post(&[(Work::Write(asked.place(0)), 0, 100)])?;
    asking.expect(false, "RemoteAccess")?;
    Ok(())
}
