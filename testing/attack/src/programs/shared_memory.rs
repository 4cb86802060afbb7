//! What other processes of the host try with the shared memory of a session.
use super::Args;
use crate::host::process::pass;
use crate::wire::shm::{self, HELLO_REPLY, Link, REGION_REPLY};
use anyhow::Result;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Versions of the handshake that are tried.
const VERSIONS: std::ops::RangeInclusive<u16> = 1..=6;

/// Connects to every context and says Hello with what it can read in /proc.
pub(super) fn strangers(_: &Args) -> Result<Value> {
    let names = shm::listeners();
    let mut let_in = 0;
    let tries = names.iter().flat_map(|name| VERSIONS.map(move |v| (name, v)));
    for (name, version) in tries.cycle().take(names.len() * 18) {
        let shown = name.rsplit('-').next().and_then(|hex| shm::gid(hex).ok()).unwrap_or_default();
        let Ok(link) = Link::connect(name) else { continue };
        let reply = link.ask(&shm::hello(version, [7; 16], shown));
        let_in += usize::from(reply.is_ok_and(|(reply, _)| shm::kind(&reply) == HELLO_REPLY));
    }
    Ok(json!({ "contexts": names.len(), "let_in": let_in }))
}

/// Says Hello in a version that nobody has; returns the versions of the answers, 0 for none.
pub(super) fn versions(_: &Args) -> Result<Value> {
    let answer = |link: Link| {
        let (reply, _) = link.ask(&shm::hello(99, [7; 16], [7; 16])).ok()?;
        reply.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes)
    };
    // Listeners of other cases may be gone by now.
    let links = shm::listeners().into_iter().filter_map(|name| Link::connect(&name).ok());
    let answers: Vec<u16> = links.map(|link| answer(link).unwrap_or(0)).collect();
    Ok(json!({ "answers": answers }))
}

/// Asks for the ring of another session, with its queue pair and key, and what an own session was told.
/// `callers` are GIDs to claim, `secrets` those to show.
pub(super) fn foreign_ring(args: &Args) -> Result<Value> {
    let gids = |name: &str| -> Vec<[u8; 16]> {
        let told = args.value(name).as_array().cloned().unwrap_or_default();
        told.iter().filter_map(|gid| shm::gid(gid.as_str()?).ok()).collect()
    };
    let listed: Vec<[u8; 16]> = shm::listeners()
        .iter()
        .filter_map(|name| shm::gid(name.rsplit('-').next()?).ok())
        .collect();
    let callers = [gids("callers"), listed.clone()].concat();
    let secrets = [gids("secrets"), listed].concat();
    let (qpn, rkey) = (args.number("qpn")? as u32, args.number("rkey")? as u32);
    let (mut tries, mut got) = (0, Vec::new());
    for (name, version) in shm::listeners().iter().flat_map(|n| VERSIONS.map(move |v| (n, v))) {
        // Old versions ask for no secret.
        let asked = if version < 3 { 1 } else { secrets.len() };
        for (caller, secret) in
            callers.iter().flat_map(|c| secrets.iter().take(asked).map(move |s| (c, s)))
        {
            tries += 1;
            if let Some(ring) = ring(name, version, *caller, *secret, (qpn, rkey)) {
                got.push(name.clone());
                spoil(&ring);
            }
        }
    }
    Ok(json!({ "tries": tries, "rings": got }))
}

fn ring(
    name: &str,
    version: u16,
    caller: [u8; 16],
    secret: [u8; 16],
    (qpn, rkey): (u32, u32),
) -> Option<OwnedFd> {
    let link = Link::connect(name).ok()?;
    let (reply, _) = link.ask(&shm::hello(version, caller, secret)).ok()?;
    (shm::kind(&reply) == HELLO_REPLY).then_some(())?;
    let (reply, descriptors) = link.ask(&shm::resolve(version, qpn, rkey)).ok()?;
    (shm::kind(&reply) == REGION_REPLY).then_some(())?;
    descriptors.into_iter().next()
}

/// Shows that it can write there: over a payload, which no commit word protects.
fn spoil(ring: &OwnedFd) {
    let _ = rustix::io::pwrite(ring, &[0x5a; 64], 3 * 4096);
}

/// Opens `count` connections to a context, or as many as it gets, and identifies itself on each.
pub(super) fn flood(args: &Args) -> Result<Value> {
    let (own, secret) = (shm::gid(args.text("own")?)?, shm::gid(args.text("secret")?)?);
    let (start, time) = (Instant::now(), args.time()?);
    let names = shm::names_of(secret);
    let name = names.iter().find(|name| shm::listeners().contains(name));
    let Some(name) = name else { return Ok(json!({ "open": 0 })) };
    let mut version = 0;
    let mut links = Vec::new();
    while (links.len() as u64) < args.number("count")? && start.elapsed() < time {
        let Ok(link) = Link::connect(name) else { break };
        if args.value("silent") != true {
            let fits = |v: &u16| {
                let link = Link::connect(name).ok()?;
                let (reply, _) = link.ask(&shm::hello(*v, own, secret)).ok()?;
                (shm::kind(&reply) == HELLO_REPLY).then_some(())
            };
            if version == 0 {
                version = VERSIONS.rev().find(|v| fits(v).is_some()).unwrap_or(1);
            }
            let _ = link.send(&shm::hello(version, own, secret), &[]);
        }
        links.push(link);
    }
    let made = links.len();
    pass(time.saturating_sub(start.elapsed()).max(Duration::from_millis(100)));
    Ok(json!({ "open": made, "version": version }))
}

/// Asks to be woken at an own region, many times, with a descriptor each time.
pub(super) fn watches(args: &Args) -> Result<Value> {
    let (own, secret) = (shm::gid(args.text("own")?)?, shm::gid(args.text("secret")?)?);
    let (qpn, rkey) = (args.number("qpn")? as u32, args.number("rkey")? as u32);
    let mut asked = 0;
    for (name, version) in shm::names_of(secret).iter().flat_map(|n| VERSIONS.map(move |v| (n, v)))
    {
        let Ok(link) = Link::connect(name) else { continue };
        let hello = link.ask(&shm::hello(version, own, secret));
        if !hello.is_ok_and(|(reply, _)| shm::kind(&reply) == HELLO_REPLY) {
            continue;
        }
        for _ in 0..args.number("count")? {
            let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
            let watch = shm::message(version, 4, &[qpn.to_le_bytes(), rkey.to_le_bytes()].concat());
            if link.send(&watch, &[bell.as_fd()]).and_then(|()| link.receive()).is_err() {
                break;
            }
            asked += 1;
        }
        pass(args.time()?);
        break;
    }
    Ok(json!({ "asked": asked }))
}

/// Offers an inbox of memory that its reader may not survive, as the source of an own session.
pub(super) fn inbox(args: &Args) -> Result<Value> {
    let (own, secret) = (shm::gid(args.text("own")?)?, shm::gid(args.text("secret")?)?);
    let names = shm::names_of(secret);
    let huge = args.value("huge") == true;
    let mut replies = Vec::new();
    for (name, version) in names.iter().flat_map(|name| VERSIONS.map(move |v| (name, v))) {
        let Ok(link) = Link::connect(name) else { continue };
        let hello = link.ask(&shm::hello(version, own, secret));
        if !hello.is_ok_and(|(reply, _)| shm::kind(&reply) == HELLO_REPLY) {
            continue;
        }
        let memory = bad_memory(huge)?;
        let target = args.number("qpn")? as u32;
        let open = shm::open_qp(version, target, args.number("own_qpn")? as u32, 65_536);
        link.send(&open, &[memory.as_fd()])?;
        let reply = link.receive().map(|(reply, _)| shm::kind(&reply));
        if !huge {
            // What was checked is taken away while it is in use.
            let _ = rustix::fs::ftruncate(&memory, 0);
        }
        replies.push(reply.unwrap_or(0));
        pass(Duration::from_millis(200));
    }
    Ok(json!({ "replies": replies }))
}

fn bad_memory(huge: bool) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let flags = if huge { flags | MemfdFlags::HUGETLB } else { flags };
    let memory = rustix::fs::memfd_create("catchment", flags)?;
    rustix::fs::ftruncate(&memory, 4 << 20)?;
    if huge {
        rustix::fs::fcntl_add_seals(
            &memory,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
    }
    Ok(memory)
}
