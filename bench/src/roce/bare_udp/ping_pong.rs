//! To and fro: a WRITE of 64 bytes, answered by one, with the waiting of the engine.
use super::{
    super::job::SMALL_BYTES,
    Job, READY,
    end::{self, End},
};
use crate::{stats, sys};
use anyhow::Result;
use catchment_roce::{Psn, wire::Opcode};

/// Round trips that do not count.
const WARM_UP: usize = 1000;

/// Asks for the time of the job; the median one-way latency in nanoseconds.
pub(super) fn ask(job: &Job) -> Result<f64> {
    let ticks = sys::Ticks::calibrate();
    let mut end = End::open(job)?;
    let mut samples = Vec::new();
    let deadline_ns = sys::monotonic_ns() + (job.seconds * 1e9) as u64;
    let mut psn = Psn::new(0);
    while sys::monotonic_ns() < deadline_ns || samples.len() <= WARM_UP {
        let start = sys::Ticks::now();
        end.sending.push_write(psn, 0, SMALL_BYTES)?;
        end.sending.flush()?;
        end.receiving
            .demand(|region, packet| end::place(region, &packet))?;
        samples.push(ticks.ns(start, sys::Ticks::now()) / 2.0);
        psn = psn.next();
    }
    end.sending.push_ack(psn, true)?;
    end.sending.flush()?;
    Ok(stats::percentile(&samples[WARM_UP..], 0.5))
}

/// Answers until the other side says that this was all.
pub(super) fn answer(job: &Job) -> Result<()> {
    let mut end = End::open(job)?;
    println!("{READY}");
    let mut over = false;
    while !over {
        let mut asked = None;
        end.receiving.demand(|region, packet| {
            let bth = packet.headers.bth;
            if bth.opcode == Opcode::RcAcknowledge {
                over = true;
                return Ok(());
            }
            asked = Some(bth.psn);
            end::place(region, &packet)
        })?;
        if let Some(psn) = asked {
            end.sending.push_write(psn, 0, SMALL_BYTES)?;
            end.sending.flush()?;
        }
    }
    Ok(())
}
