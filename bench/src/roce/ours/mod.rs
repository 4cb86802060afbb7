//! Our provider, as a program uses it: verbs in two processes that tell each other over TCP where
//! to write.
//!
//! The side that posts is the active one: the sender of the data, or with READ its receiver. The
//! other one sleeps until it is told that all is over, and its engine's thread does the work; with
//! SEND it also posts receives again. Waiting for completions is sleeping on a channel.
mod control;
mod end;
mod ping_pong;
mod stream;

use super::{
    job::{self, Job, Op, Side},
    row::Sample,
};
use crate::output;
use anyhow::{Result, bail};
use catchment_netns::VethPair;
use control::Control;
use end::End;
use serde::{Deserialize, Serialize};

/// What the active side prints at its end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Outcome {
    bytes: u64,
    wall_ns: u64,
    latency_ns: Option<f64>,
    active: Used,
    passive: Used,
}

/// What a side used from the beginning of a measurement to its end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Used {
    cpu_ns: u64,
    packets_sent: u64,
    messages_sent: u64,
    packets_received: u64,
    messages_received: u64,
    retransmitted: u64,
}

impl Used {
    fn since(self, before: Used) -> Used {
        Used {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            packets_sent: self.packets_sent - before.packets_sent,
            messages_sent: self.messages_sent - before.messages_sent,
            packets_received: self.packets_received - before.packets_received,
            messages_received: self.messages_received - before.messages_received,
            retransmitted: self.retransmitted - before.retransmitted,
        }
    }
}

/// Measures once, in two fresh processes.
///
/// # Errors
/// If one of them fails.
pub(crate) fn measure(pair: &VethPair, job: &Job, op: Op) -> Result<Sample> {
    let (sender, receiver) = job.run(pair)?;
    // The active side printed something.
    Ok(sample(op, &job::parse(&(sender + &receiver))?))
}

fn sample(op: Op, outcome: &Outcome) -> Sample {
    if let Some(latency_ns) = outcome.latency_ns {
        return Sample {
            latency_ns: Some(latency_ns),
            lost_packets: outcome.active.retransmitted + outcome.passive.retransmitted,
            ..Sample::default()
        };
    }
    let (sender, receiver) = match op {
        Op::Read => (outcome.passive, outcome.active),
        Op::Write | Op::WriteAgain | Op::Send | Op::Messages | Op::PingPong { .. } => {
            (outcome.active, outcome.passive)
        }
    };
    let bytes = outcome.bytes.max(1) as f64;
    let per_gb = |used: Used| used.cpu_ns as f64 / bytes;
    let ratio = |packets: u64, messages: u64| packets as f64 / messages.max(1) as f64;
    Sample {
        bytes_per_s: Some(bytes / (outcome.wall_ns.max(1) as f64 / 1e9)),
        latency_ns: None,
        cpu_s_per_gb_sender: Some(per_gb(sender)),
        cpu_s_per_gb_receiver: Some(per_gb(receiver)),
        packets_per_send: Some(ratio(sender.packets_sent, sender.messages_sent)),
        packets_per_receive: Some(ratio(receiver.packets_received, receiver.messages_received)),
        lost_packets: sender.retransmitted,
    }
}

/// Runs one side.
///
/// # Errors
/// Whatever stops it.
pub(crate) fn role(job: &Job, op: Op) -> Result<()> {
    let mut control = control::connect(job)?;
    let mut end = End::open(job, op, &mut control)?;
    let sends = job.side == Side::Sender;
    let outcome = match op {
        Op::PingPong { .. } if sends => ping_pong::ask(job, &mut end, &mut control)?,
        Op::PingPong { .. } => return ping_pong::answer(end, &mut control),
        Op::Write | Op::WriteAgain | Op::Read | Op::Send | Op::Messages
            if sends == (op != Op::Read) =>
        {
            stream::post(job, op, &mut end, &mut control)?
        }
        Op::Send => return stream::take_messages(end, &mut control),
        Op::Write | Op::WriteAgain | Op::Read | Op::Messages => {
            return stream::sleep(&end, &mut control);
        }
    };
    if outcome.bytes == 0 && outcome.latency_ns.is_none() {
        bail!("nothing was transferred in {} s", job.seconds);
    }
    output::json(&outcome)
}
