//! To and fro: a WRITE of 64 bytes, answered by one, with the waiting of the engine.
use super::super::job::{SMALL_BYTES, WARM_UP_TRIPS};
use super::end::End;
use super::{Job, READY, end};
use anyhow::Result;
use catchment_perf::ping_pong::time_trips;
use catchment_perf::{Amount, stats};
use catchment_roce::Psn;
use catchment_roce::wire::Opcode;

/// Asks for the time of the job; the median one-way latency in nanoseconds.
pub(super) fn ask(job: &Job) -> Result<f64> {
    let mut end = End::open(job)?;
    let amounts = (Amount::Iterations(WARM_UP_TRIPS), Amount::Seconds(job.seconds));
    let psn = |n: u64| Psn::new(n as u32 & Psn::MASK);
    let times = time_trips(amounts, 0.5, |n| {
        end.sending.push_write(psn(n), 0, SMALL_BYTES)?;
        end.sending.flush()?;
        end.receiving.demand(|region, packet| end::place(region, &packet))
    })?;
    end.sending.push_ack(psn(0), true)?;
    end.sending.flush()?;
    Ok(stats::percentile(&times, 0.5))
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
