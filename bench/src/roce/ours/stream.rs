//! One way, as fast as it goes: round and round the region.
use super::{
    super::{
        iperf3::CHUNK_BYTES,
        job::{Job, MESSAGE_BYTES, Op, REGION_BYTES, SMALL_BYTES},
    },
    Control, Outcome,
    end::{End, RECEIVES, SEND_REQUESTS, used},
};
use crate::sys;
use anyhow::{Result, anyhow, bail};
use catchment_provider_roce::RoceContext;
use catchment_verbs::{Payload, RecvWr, SendOp, SendWr};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Seconds that do not count: neighbours are found, pages are touched.
const WARM_UP_S: f64 = 0.2;
/// Bytes of large requests outstanding: a quarter of the region.
const LARGE_BYTES_OUTSTANDING: usize = 16 << 20;
/// Small requests posted together; the last one is signaled.
const SMALL_BATCH: usize = 32;
/// The receiver of messages looks so often whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// What the active side says.
const BEGIN: bool = true;
const OVER: bool = false;

/// Posts for the time of the job.
pub(super) fn post(job: &Job, op: Op, end: &mut End, control: &mut Control) -> Result<Outcome> {
    // A receiver of messages has posted receives.
    control.meet()?;
    let mut flow = Flow::new(op);
    flow.run(WARM_UP_S, end)?;
    control.send(&BEGIN)?;
    control.recv::<()>()?;
    let (before, start_ns) = (used(&end.context), sys::monotonic_ns());
    let bytes = flow.run(job.seconds, end)?;
    let (wall_ns, after) = (sys::monotonic_ns() - start_ns, used(&end.context));
    control.send(&OVER)?;
    Ok(Outcome {
        bytes,
        wall_ns,
        latency_ns: None,
        active: after.since(before),
        passive: control.recv()?,
    })
}

struct Flow {
    op: Op,
    bytes: usize,
    batch: usize,
    /// Places in the region, one after the other.
    places: usize,
    outstanding_max: usize,
    posted: usize,
    done: usize,
}

impl Flow {
    fn new(op: Op) -> Flow {
        let large = LARGE_BYTES_OUTSTANDING;
        let region = REGION_BYTES;
        let (bytes, batch, outstanding_max, used_bytes) = match op {
            Op::Messages => (SMALL_BYTES, SMALL_BATCH, SEND_REQUESTS as usize, region),
            Op::WriteAgain => (CHUNK_BYTES, 1, large / CHUNK_BYTES, CHUNK_BYTES),
            Op::Write | Op::Read | Op::Send | Op::PingPong { .. } => {
                (MESSAGE_BYTES, 1, large / MESSAGE_BYTES, region)
            }
        };
        Flow {
            op,
            bytes,
            batch,
            outstanding_max,
            places: used_bytes / bytes,
            posted: 0,
            done: 0,
        }
    }

    /// Posts for so long and waits until all is done; the bytes.
    fn run(&mut self, seconds: f64, end: &mut End) -> Result<u64> {
        let begun = self.done;
        let deadline_ns = sys::monotonic_ns() + (seconds * 1e9) as u64;
        loop {
            let posts = sys::monotonic_ns() < deadline_ns;
            while posts && self.posted - self.done + self.batch <= self.outstanding_max {
                self.post(end)?;
            }
            if self.posted == self.done {
                return Ok(((self.done - begun) * self.bytes) as u64);
            }
            // One completion for each batch.
            self.done += end.demand()?.count * self.batch;
        }
    }

    fn post(&mut self, end: &mut End) -> Result<()> {
        let offset = |n: usize| (self.posted + n) % self.places * self.bytes;
        let sges: [_; SMALL_BATCH] = std::array::from_fn(|n| [end.sge(offset(n), self.bytes)]);
        let requests: [_; SMALL_BATCH] = std::array::from_fn(|n| {
            let remote = end.remote(offset(n));
            let op = match self.op {
                Op::Read => SendOp::Read(remote),
                Op::Send => SendOp::Send,
                Op::Write | Op::WriteAgain | Op::Messages | Op::PingPong { .. } => {
                    SendOp::Write(remote)
                }
            };
            SendWr {
                signaled: n + 1 == self.batch,
                ..SendWr::new((self.posted + n) as u64, op, Payload::Sges(&sges[n]))
            }
        });
        end.qp.post_send(&requests[..self.batch])?;
        self.posted += self.batch;
        Ok(())
    }
}

/// The passive side of WRITE and READ: its program does nothing.
pub(super) fn sleep(end: &End, control: &mut Control) -> Result<()> {
    control.meet()?;
    follow(&end.context, control)
}

/// Says what this side used from the beginning to the end of what the other one measures.
fn follow(context: &RoceContext, control: &mut Control) -> Result<()> {
    if control.recv::<bool>()? != BEGIN {
        bail!("the other side ended before it began");
    }
    let before = used(context);
    control.send(&())?;
    if control.recv::<bool>()? != OVER {
        bail!("the other side began twice");
    }
    control.send(&used(context).since(before))
}

/// The passive side of SEND: posts each receive again that a message took.
pub(super) fn take_messages(mut end: End, control: &mut Control) -> Result<()> {
    for n in 0..RECEIVES {
        post_receive(&mut end, n.into())?;
    }
    control.meet()?;
    let over = AtomicBool::new(false);
    let context = Arc::clone(&end.context);
    thread::scope(|scope| {
        let taker = scope.spawn(|| take(&mut end, &over));
        let followed = follow(&context, control);
        over.store(true, Ordering::Relaxed);
        let taken = taker.join();
        taken.map_err(|_| anyhow!("the thread that takes messages panicked"))??;
        followed
    })
}

fn take(end: &mut End, over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        let Some(done) = end.wait(LOOK)? else {
            continue;
        };
        let first = done.newest + 1 - done.count as u64;
        for n in first..=done.newest {
            post_receive(end, n + u64::from(RECEIVES))?;
        }
    }
    Ok(())
}

/// Receive `n`, counted from the first one, goes round the region.
fn post_receive(end: &mut End, n: u64) -> Result<()> {
    let place = (n % u64::from(RECEIVES)) as usize;
    let sges = [end.sge(place * MESSAGE_BYTES, MESSAGE_BYTES)];
    let request = RecvWr {
        wr_id: n,
        sges: &sges,
    };
    Ok(end.qp.post_recv(&[request])?)
}

const _: () = assert!(RECEIVES as usize * MESSAGE_BYTES == REGION_BYTES);
