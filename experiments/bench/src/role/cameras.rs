//! Cameras: frames that are due at a fixed rate, all at the same time, from one process to another.
//! One thread sends for all cameras of a process, one takes; both wait as the job says.
use crate::control::Control;
use crate::job::{
    BEGIN_EVERY_NS, Cameras, Frames, Job, Needs, Outcome, Queues, Role, SET_UP_NS, Said,
};
use crate::link::device::Device;
use crate::link::helper::HelperThread;
use crate::link::{Pace, device};
use crate::mechanism::{Mechanism, Visit};
use crate::sys;
use anyhow::{Context as _, Result, ensure};
use catchment_mechanisms::window::fair::{Form, SwFair};
use catchment_mechanisms::{ClaimError, Port, ReceiveEnd, SendEnd, Shape, TakenBlock};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Frames that are late by this much do not come any more.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Who has sent all looks after its requests so often.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

pub(super) fn run(job: &Job, cameras: Cameras, role: Role, control: Control) -> Result<()> {
    let shape =
        Shape { blocks: u32::try_from(job.blocks)?, payload_bytes: u32::try_from(job.bytes)? };
    let (name, run) = (job.what, Run { job, cameras, role, control });
    if !cameras.windows {
        return name.with(shape, run);
    }
    ensure!(name == Mechanism::SwFair, "{name} has no windows on one queue pair");
    let fair = SwFair::new(shape, Form::WriteImm);
    run.visit(fair.with_windows(u32::try_from(cameras.cameras)?))
}

struct Run<'a> {
    job: &'a Job,
    cameras: Cameras,
    role: Role,
    control: Control,
}

/// What the collector says when all frames are there.
#[derive(Serialize, Deserialize)]
struct Seen {
    arrivals: Vec<[u64; 3]>,
    cpu_ns: u64,
    registered_bytes: u64,
    needs: Needs,
}

impl Visit for Run<'_> {
    type Out = Result<()>;

    fn visit<M: catchment_mechanisms::Mechanism>(mut self, mechanism: M) -> Result<()> {
        let device = Device::open(self.job, self.role)?;
        let pd = device.context.alloc_pd()?;
        let needs = match self.role {
            Role::Source => mechanism.sender_needs()?,
            Role::Collector => mechanism.receiver_needs()?,
        };
        let registered_bytes = needs.memory.iter().map(|one| one.bytes as u64).sum();
        let mut port = [Port::open(&*device.context, &*pd, &needs)?];
        let offers = device::connect(&mut self.control, &mut port)?;
        let [port] = port;
        let has = Has { registered_bytes, queues: device::queues(&port), device };
        match self.role {
            Role::Source => {
                let end = mechanism.sender(port, &offers[0])?;
                self.feed(end, &has)
            }
            Role::Collector => {
                let end = mechanism.receiver(port, &offers[0])?;
                self.collect(end, &has)
            }
        }
    }
}

impl Run<'_> {
    /// The source: asks for its turn, sends all frames when they are due, tells what came of it.
    fn feed<S: SendEnd>(mut self, mut end: S, has: &Has) -> Result<()> {
        self.control.meet()?;
        let helper = self.job.what.has_helper().then(|| end.helper()).flatten();
        let helper = helper.map(|helper| HelperThread::start(helper, self.job.wait));
        let mut helper = helper.transpose()?;
        let starter = std::io::stdout().as_fd().try_clone_to_owned()?;
        let mut starter = Control::new(UnixStream::from(starter));
        starter.send(&Said::Ready)?;
        starter.recv::<()>()?;
        let begin_ns = (sys::monotonic_ns() + SET_UP_NS).next_multiple_of(BEGIN_EVERY_NS);
        self.control.send(&begin_ns)?;
        sleep_until(begin_ns);
        if let Some(helper) = &mut helper {
            helper.set(Pace::Working)?;
        }
        let cpu_before_ns = sys::process_cpu_ns();
        self.send_all(&mut end, begin_ns)?;
        // What was sent last may need us until it is there.
        while !self.control.has_more(LOOK_AGAIN)? {
            end.progress()?;
        }
        let source_cpu_ns = sys::process_cpu_ns() - cpu_before_ns;
        let seen: Seen = self.control.recv()?;
        let outcome = Outcome {
            frames: Some(Frames {
                begin_ns,
                arrivals: seen.arrivals,
                cpu_ns: [source_cpu_ns, seen.cpu_ns],
                registered_bytes: [has.registered_bytes, seen.registered_bytes],
            }),
            source: has.needs()?,
            collector: seen.needs,
            ..Outcome::default()
        };
        // The collector ends when everything was told.
        self.control.send(&())?;
        starter.send(&Said::Found(Box::new(outcome)))
    }

    fn send_all<S: SendEnd>(&self, end: &mut S, begin_ns: u64) -> Result<()> {
        let Cameras { cameras, frames, period_ns, .. } = self.cameras;
        let mut next = vec![0; cameras];
        while next.iter().any(|sent| *sent < frames) {
            let since_ns = sys::monotonic_ns().saturating_sub(begin_ns);
            let mut has_sent = false;
            for (camera, sent) in next.iter_mut().enumerate() {
                if *sent < frames && *sent * period_ns <= since_ns {
                    let was_sent = self.send(end, camera, *sent)?;
                    *sent += u64::from(was_sent);
                    has_sent |= was_sent;
                }
            }
            if !has_sent {
                end.progress()?;
                self.job.wait.pause();
            }
        }
        Ok(())
    }

    fn send<S: SendEnd>(&self, end: &mut S, camera: usize, frame: u64) -> Result<bool> {
        let claim = match end.claim(camera as u32, self.job.bytes as u32) {
            Ok(claim) => claim,
            Err(ClaimError::WouldBlock) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let memory = end.memory(&claim);
        let stamp = [(self.cameras.first + camera) as u64, frame].map(u64::to_le_bytes);
        memory.write_at(0, stamp.as_flattened())?;
        end.commit(claim, frame % (1 << 16))?;
        Ok(true)
    }

    /// The collector: notes when each frame is there, each once.
    fn collect<R: ReceiveEnd>(mut self, mut end: R, has: &Has) -> Result<()> {
        self.control.meet()?;
        let begin_ns: u64 = self.control.recv()?;
        sleep_until(begin_ns);
        let cpu_before_ns = sys::process_cpu_ns();
        let arrivals = self.take_all(&mut end, begin_ns)?;
        self.control.send(&Seen {
            arrivals,
            cpu_ns: sys::process_cpu_ns() - cpu_before_ns,
            registered_bytes: has.registered_bytes,
            needs: has.needs()?,
        })?;
        self.control.recv()
    }

    fn take_all<R: ReceiveEnd>(&self, end: &mut R, begin_ns: u64) -> Result<Vec<[u64; 3]>> {
        let Cameras { first, cameras, frames, period_ns, .. } = self.cameras;
        let all = cameras * frames as usize;
        let mut seen = vec![false; all];
        let mut arrivals = Vec::with_capacity(all);
        let end_ns = begin_ns + frames * period_ns + PATIENCE_NS;
        while arrivals.len() < all {
            let Some(block) = end.take()? else {
                let in_time = sys::monotonic_ns() <= end_ns;
                ensure!(in_time, "{} of {all} frames came", arrivals.len());
                self.job.wait.pause();
                continue;
            };
            let at_ns = sys::monotonic_ns().saturating_sub(begin_ns);
            let mut stamp = [0; 16];
            block.payload().read_at(0, &mut stamp)?;
            drop(block);
            let [camera, frame] = stamp_of(stamp);
            let place = (camera as usize)
                .checked_sub(first)
                .filter(|camera| *camera < cameras && frame < frames)
                .map(|camera| camera * frames as usize + frame as usize);
            let place = place.with_context(|| format!("camera {camera} has no frame {frame}"))?;
            let is_second = std::mem::replace(&mut seen[place], true);
            ensure!(!is_second, "frame {frame} of camera {camera} came twice");
            arrivals.push([camera, frame, at_ns]);
        }
        Ok(arrivals)
    }
}

fn stamp_of(bytes: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

struct Has {
    registered_bytes: u64,
    queues: Queues,
    device: Device,
}

impl Has {
    fn needs(&self) -> Result<Needs> {
        Ok(Needs {
            rss_bytes_peak: sys::rss_bytes_peak()?,
            queues: Some(self.queues),
            network: self.device.network(),
        })
    }
}

fn sleep_until(at_ns: u64) {
    let left_ns = at_ns.saturating_sub(sys::monotonic_ns());
    // The beginning that all processes agreed on: a time, which nobody tells.
    std::thread::sleep(Duration::from_nanos(left_ns));
}
