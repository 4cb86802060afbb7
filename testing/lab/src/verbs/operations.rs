//! Single operations between two providers on two hosts: what arrives, and what is refused.
use crate::end::client::End;
use crate::end::{Place, Work};
use crate::lab::{Case, Lab, Site};
use crate::vm::network::IpVersion;
use anyhow::{Result, ensure};

pub(super) const SITES: [(Site, Site); 3] =
    [(Site::Host, Site::Left), (Site::Left, Site::Host), (Site::Left, Site::Right)];

/// Around packet sizes, and long messages.
const LENGTHS: [usize; 9] = [0, 1, 255, 1024, 4095, 4096, 4097, 65_537, 1_000_000];

/// Offset of the peer's data, away from our own.
const THERE: usize = 2 << 20;

pub(super) struct Pair {
    pub(super) asking: End,
    pub(super) asked: End,
}

impl Pair {
    pub(super) fn new(
        lab: &mut Lab,
        (asking, asked): (Site, Site),
        version: IpVersion,
    ) -> Result<Self> {
        Ok(Self { asking: lab.end(asking, version)?, asked: lab.end(asked, version)? })
    }

    fn connected(mut self) -> Result<Self> {
        self.asked.connect(&self.asking.card)?;
        self.asking.connect(&self.asked.card)?;
        Ok(self)
    }
}

type Run = fn(Pair) -> Result<()>;

pub(crate) fn add(cases: &mut Vec<Case>) {
    let all: [(&str, Run); 14] = [
        ("WRITEs of all lengths", writes),
        ("READs of all lengths", reads),
        ("SENDs of all lengths", sends),
        ("immediate data", immediates),
        ("atomics", atomics),
        ("a thousand small WRITEs and a READ", many),
        ("both ask at once", both),
        ("wrong key", wrong_key),
        ("revoked key", |pair| revoked_key(pair).map(drop)),
        ("a range beyond the region", beyond),
        ("a message waits for its receive", waits),
        ("no receive", |pair| no_receive(pair).map(drop)),
        ("a message longer than its receive", too_long),
        ("peer gone", gone),
    ];
    for sites in SITES {
        for version in [IpVersion::V4, IpVersion::V6] {
            for (name, run) in all {
                let (asking, asked) = sites;
                let name = format!("operations/{asking} to {asked}/{name}/{version}");
                cases.push(Case::new(name, move |lab: &mut Lab| {
                    run(Pair::new(lab, sites, version)?)
                }));
            }
        }
    }
}

fn writes(pair: Pair) -> Result<()> {
    let Pair { mut asking, mut asked } = pair.connected()?;
    for (seed, bytes) in (1..).zip(LENGTHS) {
        asked.fill(THERE - 8, bytes + 16, 0)?;
        asking.fill(0, bytes, seed)?;
        asking.run(Work::Write(asked.place(THERE)), 0, bytes)?;
        asked.see(THERE, bytes, seed)?;
        asked.see(THERE - 8, 8, 0)?;
    }
    Ok(())
}

fn reads(pair: Pair) -> Result<()> {
    let Pair { mut asking, mut asked } = pair.connected()?;
    for (seed, bytes) in (1..).zip(LENGTHS) {
        asked.fill(THERE, bytes, seed)?;
        asking.run(Work::Read(asked.place(THERE)), 0, bytes)?;
        asking.see(0, bytes, seed)?;
    }
    Ok(())
}

fn sends(pair: Pair) -> Result<()> {
    let Pair { mut asking, mut asked } = pair.connected()?;
    for (seed, bytes) in (1..).zip(LENGTHS) {
        asked.receive(seed, THERE, bytes)?;
        asking.fill(0, bytes, seed)?;
        asking.run(Work::Send, 0, bytes)?;
        let done = asked.expect(true, "Success")?;
        ensure!((done.wr_id, done.bytes, done.imm) == (seed, bytes as u64, None), "{done:?}");
        asked.see(THERE, bytes, seed)?;
    }
    Ok(())
}

fn immediates(pair: Pair) -> Result<()> {
    const IMM: u32 = 0x0102_a3f4;
    let Pair { mut asking, mut asked } = pair.connected()?;
    asking.fill(0, 5000, 1)?;
    asked.receive(1, 0, 5000)?;
    asking.run(Work::SendImm(IMM), 0, 5000)?;
    let done = asked.expect(true, "Success")?;
    ensure!((done.bytes, done.imm) == (5000, Some(IMM)), "{done:?}");
    asked.see(0, 5000, 1)?;
    asked.receive(2, 0, 0)?;
    let there = asked.place(THERE);
    asking.run(Work::WriteImm(there, !IMM), 0, 5000)?;
    let done = asked.expect(true, "Success")?;
    ensure!((done.wr_id, done.bytes, done.imm) == (2, 5000, Some(!IMM)), "{done:?}");
    asked.see(THERE, 5000, 1)
}

fn atomics(pair: Pair) -> Result<()> {
    let Pair { mut asking, mut asked } = pair.connected()?;
    asked.fill(0, 8, 7)?;
    let before = asked.number(0)?;
    asking.run(Work::FetchAdd(asked.place(0), u64::MAX), 64, 8)?;
    ensure!(asking.number(64)? == before, "what FETCH ADD returned");
    let added = before.wrapping_sub(1);
    ensure!(asked.number(0)? == added, "what FETCH ADD left");
    asking.run(Work::CompareSwap(asked.place(0), before, 5), 64, 8)?;
    ensure!(asked.number(0)? == added, "it compared wrongly");
    asking.run(Work::CompareSwap(asked.place(0), added, 5), 64, 8)?;
    ensure!(asking.number(64)? == added, "what COMPARE SWAP returned");
    ensure!(asked.number(0)? == 5, "what COMPARE SWAP left");
    Ok(())
}

fn many(pair: Pair) -> Result<()> {
    const BATCH: usize = 50;
    let Pair { mut asking, mut asked } = pair.connected()?;
    asking.fill(0, 64 * BATCH * 20, 3)?;
    for batch in 0..20 {
        let work: Vec<_> = (0..BATCH)
            .map(|n| {
                let at = 64 * (batch * BATCH + n);
                (Work::Write(asked.place(THERE + at)), at, 64)
            })
            .collect();
        asking.post(&work)?;
        let done = asking.wait(false, BATCH)?;
        ensure!(done.iter().all(|done| done.status == "Success"), "{done:?}");
        let order: Vec<_> = done.iter().map(|done| done.wr_id).collect();
        ensure!(order.is_sorted(), "completed in the order {order:?}");
    }
    asked.see(THERE, 64 * BATCH * 20, 3)?;
    asking.run(Work::Read(asked.place(THERE)), THERE, 64 * BATCH * 20)?;
    asking.see(THERE, 64 * BATCH * 20, 3)
}

fn both(pair: Pair) -> Result<()> {
    const BYTES: usize = 300_000;
    let Pair { mut asking, mut asked } = pair.connected()?;
    asking.fill(0, BYTES, 1)?;
    asked.fill(0, BYTES, 2)?;
    let (here, there) = (asking.place(THERE), asked.place(THERE));
    let work = |at| [(Work::Write(at), 0, BYTES), (Work::Read(at), 1 << 20, BYTES)];
    asking.post(&work(there))?;
    asked.post(&work(here))?;
    for end in [&mut asking, &mut asked] {
        let done = end.wait(false, 2)?;
        ensure!(done.iter().all(|done| done.status == "Success"), "{done:?}");
    }
    asked.see(THERE, BYTES, 1)?;
    asking.see(THERE, BYTES, 2)?;
    // Each READ was executed after the WRITE of its own side.
    asking.see(1 << 20, BYTES, 1)?;
    asked.see(1 << 20, BYTES, 2)
}

/// Posts a request that the peer's memory does not allow: both sides fail, and nothing changes.
fn forbidden(mut pair: Pair, place: Place) -> Result<()> {
    pair.asked.fill(THERE, 100, 5)?;
    pair.asking.fill(0, 100, 6)?;
    pair.asking.post(&[(Work::Write(place), 0, 100)])?;
    let done = pair.asking.expect(false, "RemoteAccess")?;
    ensure!(done.reason.contains("rkey"), "{done:?}");
    ensure!(pair.asking.state()? == "Err", "the requester did not go to the error state");
    Ok(())
}

fn wrong_key(pair: Pair) -> Result<()> {
    let pair = pair.connected()?;
    let mut place = pair.asked.place(THERE);
    place.rkey ^= 0x0101_0100;
    forbidden(pair, place)
}

fn beyond(pair: Pair) -> Result<()> {
    let pair = pair.connected()?;
    let place = pair.asked.place(crate::end::MEMORY_BYTES - 50);
    forbidden(pair, place)
}

/// Returns the end whose request failed.
pub(super) fn revoked_key(pair: Pair) -> Result<End> {
    let Pair { mut asking, mut asked } = pair.connected()?;
    let place = asked.place(THERE);
    asking.run(Work::Write(place), 0, 100)?;
    asked.revoke()?;
    asking.post(&[(Work::Write(place), 0, 100)])?;
    let done = asking.expect(false, "RemoteAccess")?;
    ensure!(done.reason.contains("rkey"), "{done:?}");
    Ok(asking)
}

fn waits(pair: Pair) -> Result<()> {
    let Pair { mut asking, mut asked } = pair.connected()?;
    asking.fill(0, 100, 8)?;
    asking.post(&[(Work::Send, 0, 100)])?;
    // The message is underway while the peer has no receive; how far does not matter.
    asked.fill(THERE, 1 << 20, 9)?;
    asked.receive(1, THERE, 100)?;
    asking.expect(false, "Success")?;
    asked.expect(true, "Success")?;
    asked.see(THERE, 100, 8)
}

pub(super) fn no_receive(mut pair: Pair) -> Result<End> {
    pair.asked.connect(&pair.asking.card)?;
    pair.asking.connect_with(&pair.asked.card, 7, 1)?;
    pair.asking.post(&[(Work::Send, 0, 100)])?;
    let done = pair.asking.expect(false, "RnrRetryExceeded")?;
    ensure!(done.reason.contains("no receive"), "{done:?}");
    Ok(pair.asking)
}

fn too_long(pair: Pair) -> Result<()> {
    let Pair { mut asking, mut asked } = pair.connected()?;
    asked.receive(1, 0, 50)?;
    asking.post(&[(Work::Send, 0, 100)])?;
    // The standard has the first of each, the kernel's stack the other.
    for (end, receives, known) in [
        (&mut asked, true, ["LocalLength", "LocalQpOperation"]),
        (&mut asking, false, ["RemoteInvalidRequest", "RemoteOperation"]),
    ] {
        let done = end.wait(receives, 1)?;
        ensure!(done.iter().all(|done| known.contains(&done.status.as_str())), "{done:?}");
    }
    Ok(())
}

fn gone(mut pair: Pair) -> Result<()> {
    pair.asked.connect(&pair.asking.card)?;
    pair.asking.connect_with(&pair.asked.card, 2, 7)?;
    let place = pair.asked.place(THERE);
    pair.asking.run(Work::Write(place), 0, 100)?;
    pair.asked.leave()?;
    pair.asking.post(&[(Work::Write(place), 0, 100)])?;
    let done = pair.asking.expect(false, "TransportRetryExceeded")?;
    ensure!(done.reason.contains("does not answer"), "{done:?}");
    let event = pair.asking.event()?;
    ensure!(event.contains("QpFatal"), "{event}");
    Ok(())
}
