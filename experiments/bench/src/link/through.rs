//! Any mechanism of the transfer crate over any provider, and the baseline over a byte stream: each way
//! has its own pair of ends.
use super::device::Device;
use super::{Link, NonBlocking, Pace, Prepared, device, look_at};
use crate::control::Control;
use crate::job::{Job, Network, Queues, Role, Wait, What};
use crate::mechanism::{Mechanism, Provider, Visit};
use crate::{role, sys};
use anyhow::{Context as _, Result};
use catchment_mechanisms::tcp::{Socket, StreamReceiver, StreamSender};
use catchment_mechanisms::{ClaimError, Helper, Port, ReceiveEnd, SendEnd, Shape, TakenBlock};
use catchment_transfer::Waiter;
use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Who waits for a block looks after its own sends so often.
const PROGRESS_EVERY: u32 = 64;
/// A peer that is silent for so long is asked again.
const NAP: Duration = Duration::from_millis(100);

/// Sets the mechanism up and measures it.
pub(super) fn run(
    job: &Job,
    (name, provider): (Mechanism, Provider),
    role: Role,
    control: Control,
) -> Result<()> {
    let shape = Shape {
        blocks: u32::try_from(job.blocks)?,
        payload_bytes: u32::try_from(job.bytes)?,
    };
    let measure = Measure {
        job,
        name,
        provider,
        role,
        control,
    };
    name.with(shape, measure)
}

struct Measure<'a> {
    job: &'a Job,
    name: Mechanism,
    provider: Provider,
    role: Role,
    control: Control,
}

impl Visit for Measure<'_> {
    type Out = Result<()>;

    fn visit<M>(mut self, mechanism: M) -> Result<()>
    where
        M: catchment_mechanisms::Mechanism + Copy + Send + 'static,
        M::Sender: 'static,
        M::Receiver: 'static,
    {
        let device = Device::open(self.provider, self.job, self.role)?;
        let pd = device.context.alloc_pd()?;
        let port = |needs| Port::open(&*device.context, &*pd, &needs);
        let (sends, takes) = (mechanism.sender_needs()?, mechanism.receiver_needs()?);
        let mut ports = [port(sends)?, port(takes)?];
        let queues = match self.role {
            Role::Source => device::queues(&ports[0]),
            Role::Collector => device::queues(&ports[1]),
        };
        let offers = device::connect(&mut self.control, &mut ports)?;
        let [out, back] = ports;
        let mut sender = mechanism.sender(out, &offers[0])?;
        let receiver = mechanism.receiver(back, &offers[1])?;
        self.control.meet()?;
        // What is taken out of the sender, the sender does no more.
        let helper = self.name.has_helper().then(|| sender.helper()).flatten();
        let helper = helper.map(|helper| HelperThread::start(helper, self.job.wait));
        let link = Through {
            queues: Some(queues),
            helper: helper.transpose()?,
            device: Some(device),
            ..Through::new(self.job, self.job.wait, sender, receiver)
        };
        role::run_programs(self.job, self.role, self.control, link)
    }
}

/// Measures the baseline over a connection of this host.
pub(super) fn run_stream(job: &Job, role: Role, mut control: Control) -> Result<()> {
    let stream = if matches!(job.what, What::Unix) {
        Socket::unix(unix(job, role, &mut control)?)?
    } else {
        Socket::tcp(tcp(role, &mut control)?)?
    };
    let shape = Shape {
        blocks: u32::try_from(job.blocks)?,
        payload_bytes: u32::try_from(job.bytes)?,
    };
    let sender = StreamSender::new(stream.try_clone()?, shape)?;
    let receiver = StreamReceiver::new(stream, shape)?;
    // Polling a full unix socket costs more than it brings.
    let wait = if matches!(job.what, What::TcpBlocking | What::Unix) {
        Wait::Doorbell
    } else {
        job.wait
    };
    let link = Through::new(job, wait, sender, receiver);
    role::run_programs(job, role, control, link)
}

fn tcp(role: Role, control: &mut Control) -> Result<TcpStream> {
    Ok(match role {
        Role::Collector => {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            control.send(&listener.local_addr()?)?;
            listener.accept()?.0
        }
        Role::Source => TcpStream::connect(control.recv::<std::net::SocketAddr>()?)?,
    })
}

/// By a name in the abstract namespace, which leaves no file.
fn unix(job: &Job, role: Role, control: &mut Control) -> Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(format!("catchment-bench-{}", job.unique))?;
    Ok(match role {
        Role::Collector => {
            let listener = UnixListener::bind_addr(&address)?;
            control.send(&())?;
            listener.accept()?.0
        }
        Role::Source => {
            control.recv::<()>()?;
            UnixStream::connect_addr(&address)?
        }
    })
}

/// A sending end one way and a receiving end the other way.
struct Through<S: SendEnd, R: ReceiveEnd> {
    sender: S,
    receiver: R,
    received: Option<R::Block>,
    /// Blocks that are kept for longer, the oldest first.
    aside: VecDeque<R::Block>,
    claimed: Option<S::Claim>,
    waiter: Waiter,
    wait: Wait,
    /// What is copied into the block, whosever memory it is in.
    prepared: Prepared,
    bytes: usize,
    packet: u64,
    queues: Option<Queues>,
    helper: Option<HelperThread>,
    /// Outlives the ends.
    device: Option<Device>,
}

impl<S: SendEnd, R: ReceiveEnd> Through<S, R> {
    fn new(job: &Job, wait: Wait, sender: S, receiver: R) -> Through<S, R> {
        Through {
            sender,
            receiver,
            received: None,
            aside: VecDeque::new(),
            claimed: None,
            waiter: Waiter::new(wait.policy(), crate::host::cores()),
            wait,
            prepared: Prepared::new(job.bytes, job.blocks),
            bytes: job.bytes,
            packet: 0,
            queues: None,
            helper: None,
            device: None,
        }
    }

    #[inline]
    fn claim(&mut self) -> Result<S::Claim> {
        loop {
            match self.sender.claim(0, self.bytes as u32) {
                Ok(claim) => return Ok(claim),
                Err(ClaimError::WouldBlock) => {}
                Err(error) => return Err(error.into()),
            }
            self.sender.progress()?;
            // What to sleep on, if anything rings, depends on what the end waits for now.
            let watch = self.sleeps().then(|| self.sender.watch()).flatten();
            let Some(watch) = watch else {
                self.wait.pause();
                continue;
            };
            watch.arm();
            if let Ok(claim) = self.sender.claim(0, self.bytes as u32) {
                return Ok(claim);
            }
            watch.wait(NAP)?;
        }
    }

    #[inline]
    fn take(&mut self) -> Result<R::Block> {
        let mut looks = 0u32;
        loop {
            let found = if self.waiter.wants_complete_poll() {
                self.receiver.take()?
            } else {
                self.receiver.take_next()?
            };
            if let Some(block) = found {
                self.waiter.found();
                return Ok(block);
            }
            self.waiter.empty();
            looks += 1;
            if looks.is_multiple_of(PROGRESS_EVERY) || !self.wait.polls() {
                // What was sent before may wait for room.
                self.sender.progress()?;
            }
            let watch = self.sleeps().then(|| self.receiver.watch()).flatten();
            let Some(watch) = watch else {
                self.wait.pause();
                continue;
            };
            watch.arm();
            if let Some(block) = self.receiver.take()? {
                return Ok(block);
            }
            watch.wait(NAP)?;
        }
    }

    fn sleeps(&self) -> bool {
        self.wait == Wait::Doorbell
    }
}

impl<S: SendEnd, R: ReceiveEnd> Link for Through<S, R> {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        let claim = self.claim()?;
        let content = match content {
            Some(content) => content,
            None => self.prepared.take(),
        };
        self.sender.memory(&claim).write_at(0, content)?;
        self.sender.commit(claim, self.packet)?;
        // The paper's formats have 16 bits for it.
        self.packet = (self.packet + 1) % (1 << 16);
        Ok(())
    }

    #[inline]
    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()> {
        let block = self.take()?;
        look_at(block.payload(), content)?;
        self.received = Some(block);
        Ok(())
    }

    #[inline]
    fn give_back(&mut self) -> Result<()> {
        self.received = None;
        Ok(())
    }

    fn queues(&self) -> Option<Queues> {
        self.queues
    }

    fn network(&self) -> Option<Network> {
        self.device.as_ref()?.network()
    }

    /// What was left to a later call, and completions that free the blocks.
    fn finish(&mut self) -> Result<()> {
        Ok(self.sender.progress()?)
    }

    fn set_pace(&mut self, pace: Pace) -> Result<()> {
        match &mut self.helper {
            Some(helper) => helper.set(pace),
            None => Ok(()),
        }
    }
}

impl<S: SendEnd, R: ReceiveEnd> NonBlocking for Through<S, R> {
    #[inline]
    fn try_claim(&mut self) -> Result<bool> {
        match self.sender.claim(0, self.bytes as u32) {
            Ok(claim) => {
                self.claimed = Some(claim);
                Ok(true)
            }
            Err(ClaimError::WouldBlock) => {
                self.sender.progress()?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn commit(&mut self) -> Result<()> {
        let claim = self.claimed.take().context("nothing was claimed")?;
        self.sender.commit(claim, self.packet)?;
        self.packet = (self.packet + 1) % (1 << 16);
        Ok(())
    }

    #[inline]
    fn try_recv(&mut self) -> Result<bool> {
        self.received = self.receiver.take()?;
        Ok(self.received.is_some())
    }

    fn look(&mut self) -> Result<Option<bool>> {
        Ok(self.sender.look()?)
    }

    fn note_acknowledgements(&mut self) -> Vec<u64> {
        let helper = self.helper.as_ref();
        helper.map_or(Vec::new(), HelperThread::note)
    }

    fn set_aside(&mut self) {
        self.aside.extend(self.received.take());
    }

    fn give_back_aside(&mut self, place: usize) -> Result<bool> {
        Ok(self.aside.remove(place).is_some())
    }
}

/// The mechanism's own thread, on the core of its role.
pub(super) struct HelperThread {
    pace: Arc<AtomicU8>,
    noted: Arc<Mutex<Option<Vec<u64>>>>,
    id: i32,
    urgent: bool,
    thread: Option<JoinHandle<()>>,
}

const ENDED: u8 = 3;

impl HelperThread {
    pub(super) fn start(helper: Box<dyn Helper>, wait: Wait) -> Result<HelperThread> {
        let pace = Arc::new(AtomicU8::new(Pace::Parked as u8));
        let noted = Arc::default();
        let (theirs, notes) = (Arc::clone(&pace), Arc::clone(&noted));
        let (say, hear) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // Whoever started us has ended if nobody hears it.
            let _ = say.send(rustix::thread::gettid().as_raw_nonzero().get());
            if let Err(error) = help(helper, wait, &theirs, &notes) {
                eprintln!("the mechanism's own thread: {error:#}");
            }
        });
        Ok(HelperThread {
            pace,
            noted,
            id: hear.recv().context("the mechanism's own thread")?,
            urgent: false,
            thread: Some(thread),
        })
    }

    /// Notes from now on when it found something; says what was noted before.
    fn note(&self) -> Vec<u64> {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.replace(Vec::new()).unwrap_or_default()
    }

    pub(super) fn set(&mut self, pace: Pace) -> Result<()> {
        let urgent = pace == Pace::Urgent;
        if urgent != self.urgent {
            sys::set_realtime_of(self.id, urgent).context("real-time priority of a thread")?;
            self.urgent = urgent;
        }
        self.pace.store(pace as u8, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        Ok(())
    }
}

fn help(
    mut helper: Box<dyn Helper>,
    wait: Wait,
    pace: &AtomicU8,
    noted: &Mutex<Option<Vec<u64>>>,
) -> Result<()> {
    loop {
        match pace.load(Ordering::Acquire) {
            ENDED => return Ok(()),
            // Somebody else is measured meanwhile.
            parked if parked == Pace::Parked as u8 => std::thread::park(),
            _ if helper.step()? => {
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(noted) = noted.as_mut() {
                    noted.push(sys::monotonic_ns());
                }
            }
            _ if wait == Wait::Sleep => wait.pause(),
            // It shares its core with the one who claims blocks.
            _ => rustix::thread::sched_yield(),
        }
    }
}

impl Drop for HelperThread {
    fn drop(&mut self) {
        self.pace.store(ENDED, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
