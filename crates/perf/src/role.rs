//! The two roles: the active side measures, the passive one does its part.
use crate::PerfError;
use crate::blocks::{self, Active, BlockMechanism, BlockPlan, Passive};
use crate::control::{Control, PATIENCE};
use crate::endpoint::{Endpoint, LocalDevice};
use crate::flow::{self, Flow};
use crate::message::{Reply, Request};
use crate::meter::Usage;
use crate::operation::{Figure, Operation};
use crate::ping_pong::{PingPong, time_trips};
use crate::plan::{Amount, Plan};
use crate::row::{Bandwidth, Latency, Row};
use crate::span::{Measured, Span, over};
use std::time::{Duration, Instant};

/// A side that failed says so in this time.
const LAST_WORD: Duration = Duration::from_secs(1);
/// An active side that plans nothing for so long is sent away.
const IDLE: Duration = Duration::from_secs(60);

/// Carries out one plan as the active side. Blocks.
///
/// # Errors
/// [`PerfError`]; after anything but [`PerfError::Plan`] and [`PerfError::Refused`] the connection is of
/// no use any more.
pub fn measure(
    control: &mut Control,
    device: &LocalDevice,
    plan: &Plan,
) -> Result<Measured, PerfError> {
    let mut end = connect(control, device, plan)?;
    run(control, device, plan, &mut end).map_err(|error| cause(control, error))
}

/// Carries out a plan for bandwidth with one request outstanding as the active side. Returns the times
/// from posting each request until it is complete, in nanoseconds, beside what was measured. Blocks.
///
/// # Errors
/// As [`measure`].
pub fn time_requests(
    control: &mut Control,
    device: &LocalDevice,
    plan: &Plan,
) -> Result<(Measured, Vec<f64>), PerfError> {
    if (plan.test.figure, plan.depth) != (Figure::Bandwidth, 1) {
        let test = plan.test.name();
        return Err(PerfError::Plan(format!(
            "requests are timed one at a time, in a bandwidth test of depth 1, not in {test} of depth {}",
            plan.depth
        )));
    }
    let mut end = connect(control, device, plan)?;
    time_each(control, device, plan, &mut end).map_err(|error| cause(control, error))
}

/// Makes a queue pair and memory for a plan, and connects them with those of the passive side.
fn connect(
    control: &mut Control,
    device: &LocalDevice,
    plan: &Plan,
) -> Result<Endpoint, PerfError> {
    plan.check()?;
    let mut end = Endpoint::open(&device.context, plan)?;
    control.send(&Request::Run { plan: *plan, place: end.place() })?;
    let reply: Reply = control.recv("ready", PATIENCE)?;
    let Reply::Ready { place } = reply else { return Err(reply.unexpected("ready")) };
    end.connect(&place, device)?;
    end.limit(plan.rate_bps)?;
    Ok(end)
}

/// Carries out one plan for blocks as the active side, by the mechanism of that name. Blocks.
///
/// # Errors
/// As [`measure`].
pub fn measure_blocks(
    control: &mut Control,
    device: &LocalDevice,
    mechanisms: &[&'static dyn BlockMechanism],
    plan: &BlockPlan,
) -> Result<Measured, PerfError> {
    let mechanism = blocks::find_mechanism(plan, mechanisms)?;
    if mechanism.fills_in_place() && !device.context.caps().direct {
        let name = mechanism.name();
        let text = format!(
            "{name} fills the peer's memory in place, which needs both ends on one host: use {} \
             over a network",
            name.trim_end_matches("-in-place")
        );
        return Err(PerfError::Plan(text));
    }
    match mechanism.measure(plan.shape(), Active { control, device, plan }) {
        Err(error @ PerfError::Plan(_)) => Err(error),
        ran => ran.map_err(|error| cause(control, error)),
    }
}

/// Returns what the passive side says of the end of a measurement, which may be why this side failed.
fn cause(control: &mut Control, error: PerfError) -> PerfError {
    match control.recv("why it failed", LAST_WORD) {
        Ok(reply @ Reply::Failed { .. }) => reply.unexpected("used"),
        _ => error,
    }
}

fn run(
    control: &mut Control,
    device: &LocalDevice,
    plan: &Plan,
    end: &mut Endpoint,
) -> Result<Measured, PerfError> {
    let connection = end.connection(plan);
    match plan.test.figure {
        Figure::Latency => {
            let mut ping_pong = PingPong::new(connection, plan.test.operation);
            if plan.test.operation.takes_receive() {
                ping_pong.post_receives()?;
            }
            let mut span = Span::begin(control, device)?;
            let times = ping_pong.ask(plan.warm_up, plan.amount)?;
            let requests = times.len() as u64;
            let row = Row::Latency(Latency::of(plan.bytes, times));
            span.stop(device);
            span.end(control, requests, row)
        }
        Figure::Bandwidth => {
            let mut flow = Flow::new(connection, plan);
            let (limit, most) = plan.warm_up.limits();
            flow.run(limit, most)?;
            let mut span = Span::begin(control, device)?;
            let (limit, most) = plan.amount.limits();
            let sent = flow.run(limit, most)?;
            span.stop(device);
            let peak = Some(sent.peak_per_s * plan.bytes as f64);
            let row = Row::Bandwidth(Bandwidth::of(plan.bytes, sent.requests, sent.time, peak));
            let strays = flow.strays();
            Ok(Measured { strays, ..span.end(control, flow.posted(), row)? })
        }
    }
}

fn time_each(
    control: &mut Control,
    device: &LocalDevice,
    plan: &Plan,
    end: &mut Endpoint,
) -> Result<(Measured, Vec<f64>), PerfError> {
    let mut flow = Flow::new(end.connection(plan), plan);
    let (limit, most) = plan.warm_up.limits();
    flow.run(limit, most)?;
    let mut span = Span::begin(control, device)?;
    let start = Instant::now();
    let times = time_trips((Amount::Iterations(0), plan.amount), 1.0, |_| flow.request())?;
    let time = start.elapsed();
    span.stop(device);
    let row = Row::Bandwidth(Bandwidth::of(plan.bytes, times.len() as u64, time, None));
    let strays = flow.strays();
    Ok((Measured { strays, ..span.end(control, flow.posted(), row)? }, times))
}

/// Does the passive side's part of all that the other side plans until it leaves; returns how many plans
/// there were. `mechanisms` are those that can move blocks. Blocks.
///
/// # Errors
/// What ended it, which the other side is told too.
pub fn serve(
    control: &mut Control,
    device: &LocalDevice,
    mechanisms: &[&'static dyn BlockMechanism],
) -> Result<u64, PerfError> {
    let served = serve_all(control, device, mechanisms);
    if let Err(error) = &served {
        // It may be gone, or know already.
        let _ = control.send(&Reply::Failed { error: error.to_string() });
    }
    served
}

fn serve_all(
    control: &mut Control,
    device: &LocalDevice,
    mechanisms: &[&'static dyn BlockMechanism],
) -> Result<u64, PerfError> {
    let mut plans = 0;
    while let Some(request) = control.next::<Request>("a plan", IDLE)? {
        match request {
            Request::Run { plan, place } => {
                let opened = plan.check().and_then(|()| {
                    let mut end = Endpoint::open(&device.context, &plan)?;
                    end.connect(&place, device)?;
                    Ok(end)
                });
                match opened {
                    Ok(mut end) => answer(control, device, &plan, &mut end)?,
                    Err(error) => refuse(control, &error)?,
                }
            }
            Request::Blocks { plan, ports } => match blocks::find_mechanism(&plan, mechanisms) {
                Ok(mechanism) => {
                    let side = Passive { control, device, plan: &plan, ports: &ports };
                    mechanism.serve(plan.shape(), side)?;
                }
                Err(error) => refuse(control, &error)?,
            },
            Request::Here | Request::Begin | Request::Over { .. } => {
                return Err(request.unexpected("a plan"));
            }
        }
        plans += 1;
    }
    Ok(plans)
}

fn refuse(control: &mut Control, error: &PerfError) -> Result<(), PerfError> {
    control.send(&Reply::Refused {
        reason: error.to_string(),
        remedy: "change the plan, or the server's limits".to_owned(),
    })
}

/// The passive side's part of one plan.
fn answer(
    control: &mut Control,
    device: &LocalDevice,
    plan: &Plan,
    end: &mut Endpoint,
) -> Result<(), PerfError> {
    let ready = Reply::Ready { place: end.place() };
    let mut connection = end.connection(plan);
    let before = match (plan.test.operation, plan.test.figure) {
        (Operation::Write | Operation::WriteImm | Operation::Send, Figure::Latency) => {
            let mut ping_pong = PingPong::new(connection, plan.test.operation);
            if plan.test.operation.takes_receive() {
                ping_pong.post_receives()?;
            }
            control.send(&ready)?;
            let before = begin(control, device, PATIENCE)?;
            ping_pong.answer(&mut || control.check_alive())?;
            over(control, PATIENCE)?;
            before
        }
        (Operation::WriteImm | Operation::Send, Figure::Bandwidth) => {
            flow::post_receives(&mut connection, plan)?;
            control.send(&ready)?;
            let mut before = Usage::default();
            flow::take(connection, plan, &mut || {
                if !control.has_more(Duration::ZERO)? {
                    return Ok(None);
                }
                match control.recv::<Request>("begin or over", PATIENCE)? {
                    Request::Begin => {
                        before = begun(control, device)?;
                        Ok(None)
                    }
                    Request::Over { requests } => Ok(Some(requests)),
                    other @ (Request::Run { .. } | Request::Blocks { .. } | Request::Here) => {
                        Err(other.unexpected("begin or over"))
                    }
                }
            })?;
            before
        }
        (Operation::Write | Operation::Read, _) => {
            control.send(&ready)?;
            // The device does it all.
            let before = begin(control, device, PATIENCE + plan.warm_up.longest())?;
            over(control, PATIENCE + plan.amount.longest() + plan.warm_up.longest())?;
            before
        }
    };
    control.send(&Reply::Used { usage: Usage::now(&*device.counters).since(&before) })
}

fn begin(
    control: &mut Control,
    device: &LocalDevice,
    within: Duration,
) -> Result<Usage, PerfError> {
    let request = control.recv::<Request>("begin", within)?;
    if !matches!(request, Request::Begin) {
        return Err(request.unexpected("begin"));
    }
    begun(control, device)
}

/// Reads the meters, and lets the other side begin.
fn begun(control: &mut Control, device: &LocalDevice) -> Result<Usage, PerfError> {
    let before = Usage::now(&*device.counters);
    control.send(&Reply::Begun)?;
    Ok(before)
}
