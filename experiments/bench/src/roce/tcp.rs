//! One TCP stream that reads and writes as much memory as ours does: iperf3 sends and receives one
//! buffer of 128 KiB again and again, which stays in the cache.
use super::job;
use super::job::{Job, MESSAGE_BYTES, READY, REGION_BYTES, Side};
use super::row::Sample;
use crate::{output, sys};
use anyhow::{Context, Result, ensure};
use catchment_netns::VethPair;
use serde::{Deserialize, Serialize};
use std::io;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const PORT: u16 = 5202;
/// A silent peer has failed after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Seconds that do not count: the window grows, pages are touched.
const WARM_UP_S: f64 = 0.2;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Used {
    bytes: u64,
    wall_ns: u64,
    cpu_ns: u64,
}

pub(crate) fn measure(pair: &VethPair, job: &Job) -> Result<Sample> {
    let (said, answer) = job.run(pair)?;
    let (sent, received): (Used, Used) = (job::parse(&said)?, job::parse(&answer)?);
    ensure!(received.bytes > 0, "nothing was transferred");
    let per_gb = |used: Used| used.cpu_ns as f64 / received.bytes as f64;
    Ok(Sample {
        bytes_per_s: Some(received.bytes as f64 / (received.wall_ns.max(1) as f64 / 1e9)),
        cpu_s_per_gb_sender: Some(per_gb(sent)),
        cpu_s_per_gb_receiver: Some(per_gb(received)),
        ..Sample::default()
    })
}

pub(crate) fn role(job: &Job) -> Result<()> {
    output::json(&match job.side {
        Side::Sender => send(job),
        Side::Receiver => receive(job),
    }?)
}

fn send(job: &Job) -> Result<Used> {
    let to = SocketAddr::new(job.peer(), PORT);
    let stream = TcpStream::connect_timeout(&to, PATIENCE);
    let mut stream = stream.with_context(|| format!("connecting to {to}"))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut messages = Messages::new();
    let mut part = |seconds: f64| {
        let deadline_ns = sys::monotonic_ns() + (seconds * 1e9) as u64;
        messages.pass(|message| {
            let is_last = sys::monotonic_ns() >= deadline_ns;
            message[0] = u8::from(is_last);
            stream.write_all(message)?;
            Ok(is_last)
        })
    };
    part(WARM_UP_S)?;
    Ok(part(job.seconds)?)
}

fn receive(job: &Job) -> Result<Used> {
    let listener = TcpListener::bind(SocketAddr::new(job.own(), PORT))?;
    println!("{READY}");
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut messages = Messages::new();
    let mut part = || {
        messages.pass(|message| {
            stream.read_exact(message)?;
            Ok(message[0] != 0)
        })
    };
    part()?;
    Ok(part()?)
}

/// Messages round and round the memory. The first byte of each says whether it ends its part: the
/// warm-up, or what is measured.
struct Messages {
    memory: Vec<u8>,
    at: usize,
}

impl Messages {
    fn new() -> Self {
        Self { memory: vec![7; REGION_BYTES], at: 0 }
    }

    /// Passes one after the other on, up to the last one of a part.
    fn pass(&mut self, mut each: impl FnMut(&mut [u8]) -> io::Result<bool>) -> io::Result<Used> {
        let (start_ns, cpu_ns) = (sys::monotonic_ns(), sys::process_cpu_ns());
        let mut bytes = 0;
        loop {
            let is_last = each(&mut self.memory[self.at..self.at + MESSAGE_BYTES])?;
            bytes += MESSAGE_BYTES as u64;
            self.at = (self.at + MESSAGE_BYTES) % REGION_BYTES;
            if is_last {
                return Ok(Used {
                    bytes,
                    wall_ns: sys::monotonic_ns() - start_ns,
                    cpu_ns: sys::process_cpu_ns() - cpu_ns,
                });
            }
        }
    }
}
