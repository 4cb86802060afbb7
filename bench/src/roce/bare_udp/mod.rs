//! Bare UDP with the packets of RoCE: GSO, GRO, ICRC, acknowledgements and one copy.
mod end;
mod ping_pong;
mod receiver;
mod sender;

use super::{children::Running, row::Sample};
use crate::sys;
use anyhow::{Context, Result};
use catchment_netns::{Namespace, VethPair};
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, process::Command, time::Duration};

/// Bytes of an operation of the stream.
pub(crate) const MESSAGE_BYTES: usize = 1 << 20;
/// What is sent from, and written to.
const REGION_BYTES: usize = 64 << 20;
/// What the receiver prints when it may be sent to.
const READY: &str = "ready";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// As fast as it goes, one way.
    Stream,
    /// To and fro.
    PingPong,
}

/// Which of the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    /// Sends the stream, or first.
    Sender,
    /// Receives the stream, or answers.
    Receiver,
}

/// What a role process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) side: Side,
    pub(crate) what: What,
    pub(crate) path_mtu: usize,
    pub(crate) seconds: f64,
    pub(crate) window_bytes: usize,
    /// Both look so long for packets before they sleep.
    pub(crate) spin: Duration,
    pub(crate) sender: IpAddr,
    pub(crate) receiver: IpAddr,
    pub(crate) sender_core: usize,
    pub(crate) receiver_core: usize,
    /// Path of the namespace to work in.
    pub(crate) netns: String,
}

/// What the sender of a stream says at its end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Sent {
    packets: u64,
    cpu_ns: u64,
}

/// What the receiver of a stream says at its end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Received {
    packets: u64,
    payload_bytes: u64,
    wall_ns: u64,
    cpu_ns: u64,
}

/// Measures once, in two fresh processes.
///
/// # Errors
/// If one of them fails.
pub(crate) fn measure(pair: &VethPair, job: &Job) -> Result<Sample> {
    let mut receiver = start(job, Side::Receiver, &pair.right)?;
    receiver.wait_for(READY)?;
    let sender = start(job, Side::Sender, &pair.left)?;
    let said = sender.finish()?;
    match job.what {
        What::PingPong => {
            receiver.finish()?;
            Ok(Sample {
                latency_ns: Some(parse(&said)?),
                ..Sample::default()
            })
        }
        What::Stream => {
            let (sent, received): (Sent, Received) = (parse(&said)?, parse(&receiver.finish()?)?);
            Ok(stream(sent, received))
        }
    }
}

fn stream(sent: Sent, received: Received) -> Sample {
    let gigabytes = received.payload_bytes.max(1) as f64 / 1e9;
    Sample {
        bytes_per_s: Some(received.payload_bytes as f64 / (received.wall_ns.max(1) as f64 / 1e9)),
        latency_ns: None,
        cpu_s_per_gb_sender: Some(sent.cpu_ns as f64 / 1e9 / gigabytes),
        cpu_s_per_gb_receiver: Some(received.cpu_ns as f64 / 1e9 / gigabytes),
        lost_packets: sent.packets.saturating_sub(received.packets),
    }
}

fn parse<T: serde::de::DeserializeOwned>(said: &str) -> Result<T> {
    serde_json::from_str(said.trim()).with_context(|| format!("a side printed {said:?}"))
}

fn start(job: &Job, side: Side, at: &Namespace) -> Result<Running> {
    let job = Job {
        side,
        netns: at.path(),
        ..job.clone()
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("roce-role").arg(serde_json::to_string(&job)?);
    Running::start("a bare UDP side", &mut command)
}

/// Runs one side: what a child process does.
///
/// # Errors
/// Whatever stops it.
pub(crate) fn role(job: &Job) -> Result<()> {
    sys::settle(match job.side {
        Side::Sender => job.sender_core,
        Side::Receiver => job.receiver_core,
    })?;
    Namespace::open(&job.netns)?.enter()?;
    match (job.what, job.side) {
        (What::Stream, Side::Sender) => print(&sender::run(job)?),
        (What::Stream, Side::Receiver) => print(&receiver::run(job)?),
        (What::PingPong, Side::Sender) => print(&ping_pong::ask(job)?),
        (What::PingPong, Side::Receiver) => ping_pong::answer(job),
    }
}

fn print<T: Serialize>(value: &T) -> Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}
