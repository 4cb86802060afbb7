//! The sender of a stream: WRITEs round and round a region, a window of them on their way.
use super::end::End;
use super::{Job, MESSAGE_BYTES, REGION_BYTES, Sent};
use crate::sys;
use anyhow::{Result, bail};
use catchment_roce::Psn;
use std::time::Duration;

/// Bytes handed to the kernel in one call: four trains.
const BURST_BYTES: usize = 4 * 61_440;
/// Without an acknowledgement for so long, what is on its way counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// How often the receiver is told something before it counts as gone.
const ATTEMPTS_MAX: usize = 100;

pub(super) fn run(job: &Job) -> Result<Sent> {
    let mut end = End::open(job)?;
    let mut flow = Flow::new(job);
    exchange(&mut end, false)?;
    let cpu_ns = sys::process_cpu_ns();
    let deadline_ns = sys::monotonic_ns() + (job.seconds * 1e9) as u64;
    while sys::monotonic_ns() < deadline_ns {
        flow.take_acks(&mut end)?;
        flow.send_burst(&mut end)?;
    }
    let cpu_ns = sys::process_cpu_ns() - cpu_ns;
    exchange(&mut end, true)?;
    Ok(Sent { packets: flow.sent, cpu_ns })
}

struct Flow {
    path_mtu: usize,
    window_packets: u64,
    burst_packets: u64,
    sent: u64,
    acknowledged: u64,
}

impl Flow {
    fn new(job: &Job) -> Self {
        let burst_packets = (BURST_BYTES / job.path_mtu) as u64;
        Self {
            path_mtu: job.path_mtu,
            window_packets: ((job.window_bytes / job.path_mtu) as u64).max(burst_packets),
            burst_packets,
            sent: 0,
            acknowledged: 0,
        }
    }

    /// Looks for acknowledgements; waits for one while the window is full.
    fn take_acks(&mut self, end: &mut End) -> Result<()> {
        let full = self.sent + self.burst_packets > self.acknowledged + self.window_packets;
        let timeout = if full { LOST_AFTER } else { Duration::ZERO };
        let mut newest = self.acknowledged;
        let sent = self.sent;
        let came = end.receiving.receive(timeout, |_, packet| {
            // The newest packet is the one sent before `sent`.
            let behind = Psn::new(sent as u32).distance_from(packet.headers.bth.psn.next());
            newest = newest.max(sent.saturating_sub(behind.max(0) as u64));
            Ok(())
        })?;
        self.acknowledged = if came || !full { newest } else { sent };
        Ok(())
    }

    fn send_burst(&mut self, end: &mut End) -> Result<()> {
        if self.sent + self.burst_packets > self.acknowledged + self.window_packets {
            return Ok(());
        }
        for _ in 0..self.burst_packets {
            let offset = (self.sent as usize * self.path_mtu) % REGION_BYTES;
            end.sending.push_write(Psn::new(self.sent as u32), offset, self.path_mtu)?;
            self.sent += 1;
        }
        end.sending.flush()
    }
}

/// Tells the receiver that the measurement begins, or is over, until it says that it knows. The
/// first packets also make the kernel look for the neighbour, which would cost a window.
fn exchange(end: &mut End, over: bool) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        end.sending.push_ack(Psn::new(0), over)?;
        end.sending.flush()?;
        let mut known = false;
        while !known
            && end.receiving.receive(LOST_AFTER, |_, packet| {
                known |= packet.headers.bth.solicited == over;
                Ok(())
            })?
        {}
        if known {
            return Ok(());
        }
    }
    bail!("the receiver does not answer")
}

const _: () = assert!(REGION_BYTES.is_multiple_of(MESSAGE_BYTES));
