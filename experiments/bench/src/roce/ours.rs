//! Our provider, as a program uses it: verbs in two processes, measured by the engine.
//!
//! The side that posts is the active one: the sender of the data, or with READ its receiver. The
//! other one sleeps until it is told that all is over, and its engine's thread does the work; with
//! SEND it also posts receives again. Waiting for completions is sleeping on a channel.
use super::iperf3::CHUNK_BYTES;
use super::job;
use super::job::{Job, MESSAGE_BYTES, Op, READY, REGION_BYTES, SMALL_BYTES, Side, WARM_UP_TRIPS};
use super::row::Sample;
use crate::link::device::patient;
use crate::output;
use anyhow::{Context as _, Result};
use catchment_netns::VethPair;
use catchment_perf::{
    Amount, Control, Figure, LocalDevice, Measured, Operation, PATIENCE, Plan, Row, Test, Usage,
    Waiting,
};
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_roce::wire::PathMtu;
use std::net::{TcpListener, TcpStream};

/// Where the receiver listens: the port of RDMA's own measuring tools.
const PORT: u16 = 18515;
/// Seconds that do not count: neighbours are found, pages are touched.
const WARM_UP: Amount = Amount::Seconds(0.2);
const LARGE_BYTES_OUTSTANDING: usize = 16 << 20;
const SMALL_OUTSTANDING: u32 = 1024;
const SMALL_BATCH: u32 = 32;
/// Receives posted: the region, in messages.
const RECEIVES: u32 = (REGION_BYTES / MESSAGE_BYTES) as u32;

pub(crate) fn measure(pair: &VethPair, job: &Job) -> Result<Sample> {
    let (sender, receiver) = job.run(pair)?;
    // The active side printed something.
    job::parse(&(sender + &receiver))
}

pub(crate) fn role(job: &Job, op: Op) -> Result<()> {
    let (mut control, device) = (connect(job)?, open(job, op)?);
    if (job.side == Side::Sender) != (op == Op::Read) {
        let measured = catchment_perf::measure(&mut control, &device, &plan(job, op))?;
        output::json(&sample(op, &measured))
    } else {
        catchment_perf::serve(&mut control, &device, &[])?;
        Ok(())
    }
}

fn connect(job: &Job) -> Result<Control> {
    let stream = match job.side {
        Side::Receiver => {
            let listener = TcpListener::bind((job.own(), PORT))?;
            println!("{READY}");
            listener.accept()?.0
        }
        Side::Sender => {
            let to = (job.peer(), PORT).into();
            TcpStream::connect_timeout(&to, PATIENCE).context("connecting to the other side")?
        }
    };
    Ok(Control::over_tcp(stream)?)
}

/// Opens the device, with the counters that [`sample`] reads.
fn open(job: &Job, op: Op) -> Result<LocalDevice> {
    let path_mtu = PathMtu::from_bytes(job.path_mtu).context("not a RoCE path MTU")?;
    let provider = RoceProvider::new(RoceOptions {
        path_mtu: Some(path_mtu),
        inline_polling: op == Op::PingPong { inline: true },
        spin: job.spin,
        ..RoceOptions::default()
    });
    let context = provider.open_device(&job.own().to_string())?;
    let counted = context.clone();
    Ok(LocalDevice {
        rts: patient(),
        counters: Box::new(move || {
            let counters = counted.counters();
            let (sent, received) = (counters.sent, counters.received);
            vec![
                sent.packets,
                sent.messages,
                received.packets,
                received.messages,
                counters.protocol.retransmitted,
            ]
        }),
        ..LocalDevice::new(context)
    })
}

fn plan(job: &Job, op: Op) -> Plan {
    let (operation, bytes, outstanding, batch, ring) = match op {
        Op::PingPong { inline } => return ping_pong(job, inline),
        Op::Messages => {
            (Operation::Write, SMALL_BYTES, SMALL_OUTSTANDING, SMALL_BATCH, REGION_BYTES)
        }
        Op::WriteAgain => large(Operation::Write, CHUNK_BYTES, CHUNK_BYTES),
        Op::Write => large(Operation::Write, MESSAGE_BYTES, REGION_BYTES),
        Op::Read => large(Operation::Read, MESSAGE_BYTES, REGION_BYTES),
        Op::Send => large(Operation::Send, MESSAGE_BYTES, REGION_BYTES),
    };
    let test = Test::new(operation, Figure::Bandwidth);
    let amount = Amount::Seconds(job.seconds);
    Plan {
        warm_up: WARM_UP,
        batch,
        receives: RECEIVES,
        places: (ring / bytes) as u64,
        ..Plan::new(test, bytes as u64, amount, outstanding, Waiting::Sleep)
    }
}

fn large(operation: Operation, bytes: usize, ring: usize) -> (Operation, usize, u32, u32, usize) {
    let outstanding = (LARGE_BYTES_OUTSTANDING / bytes) as u32;
    (operation, bytes, outstanding, 1, ring)
}

fn ping_pong(job: &Job, inline: bool) -> Plan {
    let test = Test::new(Operation::Write, Figure::Latency);
    let amount = Amount::Seconds(job.seconds);
    Plan {
        warm_up: Amount::Iterations(WARM_UP_TRIPS),
        // Where the engine's thread does the work, programs look at memory only.
        polls: inline,
        ..Plan::new(test, SMALL_BYTES as u64, amount, 1, Waiting::Yield)
    }
}

fn sample(op: Op, measured: &Measured) -> Sample {
    let row = match measured.row {
        Row::Latency(row) => {
            return Sample {
                latency_ns: Some(row.typical_ns),
                lost_packets: retransmitted(&measured.active) + retransmitted(&measured.passive),
                ..Sample::default()
            };
        }
        Row::Bandwidth(row) => row,
    };
    let (sender, receiver) = match op {
        Op::Read => (&measured.passive, &measured.active),
        Op::Write | Op::WriteAgain | Op::Send | Op::Messages | Op::PingPong { .. } => {
            (&measured.active, &measured.passive)
        }
    };
    let gigabytes = (row.iterations * row.bytes).max(1) as f64 / 1e9;
    let ratio = |usage: &Usage, packets: usize| {
        usage.counters[packets] as f64 / usage.counters[packets + 1].max(1) as f64
    };
    Sample {
        bytes_per_s: Some(row.average_bytes_per_s),
        latency_ns: None,
        cpu_s_per_gb_sender: Some(sender.cpu_s / gigabytes),
        cpu_s_per_gb_receiver: Some(receiver.cpu_s / gigabytes),
        packets_per_send: Some(ratio(sender, 0)),
        packets_per_receive: Some(ratio(receiver, 2)),
        lost_packets: retransmitted(sender),
    }
}

fn retransmitted(usage: &Usage) -> u64 {
    usage.counters[4]
}
