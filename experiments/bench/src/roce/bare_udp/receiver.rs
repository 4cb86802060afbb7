//! The receiver of a stream: checks, copies into place, acknowledges once for what came together.
use super::end::End;
use super::{Job, READY, Received, end};
use crate::sys;
use anyhow::Result;
use catchment_roce::Psn;
use catchment_roce::wire::Opcode;

/// Receives until the sender says that this was all.
pub(super) fn run(job: &Job) -> Result<Received> {
    let mut end = End::open(job)?;
    println!("{READY}");
    let mut seen = Seen::default();
    let mut begun = None;
    let mut last = (0, 0);
    while !seen.over {
        let before = seen.packets;
        end.receiving.demand(|region, packet| {
            let bth = packet.headers.bth;
            if bth.opcode == Opcode::RcAcknowledge {
                seen.over = bth.solicited;
                return Ok(());
            }
            end::place(region, &packet)?;
            seen.packets += 1;
            seen.payload_bytes += packet.payload.len() as u64;
            seen.newest = Some(bth.psn);
            Ok(())
        })?;
        if seen.packets > before {
            last = (sys::monotonic_ns(), sys::process_cpu_ns());
            begun.get_or_insert(last);
        }
        // Before the first packet: all up to the one before it.
        let newest = seen.newest.unwrap_or(Psn::new(Psn::MASK));
        end.sending.push_ack(newest, seen.over)?;
        end.sending.flush()?;
    }
    let (wall_ns, cpu_ns) = begun.unwrap_or(last);
    Ok(Received {
        packets: seen.packets,
        payload_bytes: seen.payload_bytes,
        wall_ns: last.0.saturating_sub(wall_ns),
        cpu_ns: last.1.saturating_sub(cpu_ns),
    })
}

#[derive(Default)]
struct Seen {
    packets: u64,
    payload_bytes: u64,
    newest: Option<Psn>,
    over: bool,
}
