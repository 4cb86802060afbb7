//! What sockets take without a controller behind them: a process that sends datagrams back, as long as those of a grant with one
//! record. It is the least that a service takes on the same machine.
use super::row::Row;
use crate::stats::{Spread, decimals, percentile};
use crate::{output, sys};
use anyhow::{Context as _, Result, bail};
use catchment_perf::ChildProcess;
use catchment_session::datagrams::wake_on_time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A header and a record.
const BYTES: usize = 96;
/// A grant is a request and its answer, an end and its answer.
const ROUNDS_A_GRANT: f64 = 2.0;
/// Datagrams that are received before one is sent back.
const BATCH: usize = 32;
/// On their way at most, where they leave at a rate.
const ON_WAY_MAX: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);

/// The process: says where it listens, and ends when it is killed.
pub(crate) fn role() -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    output::line(&socket.local_addr()?.to_string())?;
    socket.set_nonblocking(true)?;
    let (mut buffer, mut came) = ([0; BYTES], Vec::<SocketAddr>::with_capacity(BATCH));
    loop {
        // A signal ends it early.
        let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], None);
        while came.len() < BATCH
            && let Ok((_, from)) = socket.recv_from(&mut buffer)
        {
            came.push(from);
        }
        for to in came.drain(..) {
            socket.send_to(&buffer, to)?;
        }
    }
}

/// How datagrams are sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Offered {
    /// So many are on their way.
    Always(usize),
    /// As many as so many grants a second take, evenly.
    Grants(f64),
}

/// Measures for a time; what is counted as a grant are two datagrams in each direction.
pub(super) fn measure(offered: Offered, time: Duration) -> Result<Row> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bare-role").stdin(Stdio::null());
    let mut child = ChildProcess::start("the echo", &mut command)?;
    let at = child.wait_for(|_| true)?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(at.trim())?;
    socket.set_nonblocking(true)?;
    wake_on_time();
    let mut answers_us = Vec::new();
    round_trips(&socket, offered, time / 10, &mut answers_us)?;
    answers_us.clear();
    let (start, cpu_before) = (Instant::now(), sys::cpu_ns_of(child.id())?);
    round_trips(&socket, offered, time, &mut answers_us)?;
    let (wall, cpu_ns) = (start.elapsed(), sys::cpu_ns_of(child.id())? - cpu_before);
    let grants = answers_us.len() as f64 / ROUNDS_A_GRANT;
    Ok(Row {
        what: "bare",
        records_per_datagram: Some(1),
        sources: Some(1),
        grants_per_s: Some(decimals(grants / wall.as_secs_f64(), 1)),
        cpu_us_per_grant: Some(decimals(cpu_ns as f64 / 1e3 / grants, 2)),
        service_cores: Some(decimals(cpu_ns as f64 / wall.as_nanos() as f64, 3)),
        answer_us_p50: Some(decimals(Spread::of(&answers_us).p50, 1)),
        answer_us_p99: Some(decimals(percentile(&answers_us, 0.99), 1)),
        ..Row::default()
    })
}

/// Sends datagrams for a time, waits for each, and notes how long it took.
fn round_trips(
    socket: &UdpSocket,
    offered: Offered,
    time: Duration,
    answers_us: &mut Vec<f64>,
) -> Result<()> {
    let (most, every) = match offered {
        Offered::Always(most) => (most, Duration::ZERO),
        Offered::Grants(a_second) => {
            (ON_WAY_MAX, Duration::from_secs_f64(1.0 / (a_second * ROUNDS_A_GRANT)))
        }
    };
    let start = Instant::now();
    let (mut due, mut on_way) = (Duration::ZERO, 0);
    let mut buffer = [0; BYTES];
    while start.elapsed() < time || on_way > 0 {
        while on_way < most && start.elapsed() >= due && start.elapsed() < time {
            let sent = start.elapsed().as_nanos() as u64;
            buffer[..8].copy_from_slice(&sent.to_ne_bytes());
            socket.send(&buffer)?;
            (on_way, due) = (on_way + 1, due + every);
        }
        let is_full = on_way == most;
        let left = if is_full { PATIENCE } else { due.saturating_sub(start.elapsed()) };
        let mut ready = [PollFd::new(socket, PollFlags::IN)];
        poll(&mut ready, Timespec::try_from(left).ok().as_ref())?;
        if is_full && ready[0].revents().is_empty() {
            bail!("no datagram came back within {} s", PATIENCE.as_secs());
        }
        while let Ok(bytes) = socket.recv(&mut buffer) {
            let sent = buffer[..bytes].first_chunk().context("a short datagram")?;
            let took = start.elapsed().as_nanos() as u64 - u64::from_ne_bytes(*sent);
            answers_us.push(took as f64 / 1e3);
            on_way -= 1;
        }
    }
    Ok(())
}
