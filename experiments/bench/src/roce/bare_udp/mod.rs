//! Bare UDP with the packets of RoCE: GSO, GRO, ICRC, acknowledgements and one copy.
mod end;
mod ping_pong;
mod receiver;
mod sender;
mod two_threads;

use super::job;
use super::job::{Job, MESSAGE_BYTES, READY, REGION_BYTES, Side, What};
use super::row::Sample;
use crate::output;
use anyhow::Result;
use catchment_netns::VethPair;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Sent {
    packets: u64,
    cpu_ns: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Received {
    packets: u64,
    payload_bytes: u64,
    wall_ns: u64,
    cpu_ns: u64,
}

pub(crate) fn measure(pair: &VethPair, job: &Job) -> Result<Sample> {
    let (said, answer) = job.run(pair)?;
    if matches!(job.what, What::BarePingPong { .. }) {
        return Ok(Sample { latency_ns: Some(job::parse(&said)?), ..Sample::default() });
    }
    Ok(stream(job::parse(&said)?, job::parse(&answer)?))
}

fn stream(sent: Sent, received: Received) -> Sample {
    let gigabytes = received.payload_bytes.max(1) as f64 / 1e9;
    Sample {
        bytes_per_s: Some(received.payload_bytes as f64 / (received.wall_ns.max(1) as f64 / 1e9)),
        cpu_s_per_gb_sender: Some(sent.cpu_ns as f64 / 1e9 / gigabytes),
        cpu_s_per_gb_receiver: Some(received.cpu_ns as f64 / 1e9 / gigabytes),
        lost_packets: sent.packets.saturating_sub(received.packets),
        ..Sample::default()
    }
}

pub(crate) fn role(job: &Job) -> Result<()> {
    match (job.what, job.side) {
        (What::BarePingPong { threads: false }, Side::Sender) => {
            output::json(&ping_pong::ask(job)?)
        }
        (What::BarePingPong { threads: false }, Side::Receiver) => ping_pong::answer(job),
        (What::BarePingPong { threads: true }, Side::Sender) => {
            output::json(&two_threads::ask(job)?)
        }
        (What::BarePingPong { threads: true }, Side::Receiver) => two_threads::answer(job),
        (_, Side::Sender) => output::json(&sender::run(job)?),
        (_, Side::Receiver) => output::json(&receiver::run(job)?),
    }
}
