//! Sets up the mechanism that a job names, and measures it.
use super::{cameras, measure};
use crate::control::Control;
use crate::job::{Job, Program, Role, Wait};
use crate::link::device::{self, Device};
use crate::link::helper::HelperThread;
use crate::link::through::{StatusBytes, Through};
use crate::link::{cache_line, memcpy};
use crate::mechanism::{Mechanism, Visit};
use anyhow::Result;
use catchment_mechanisms::paper::{PaperSendEnd, PaperStatusByte};
use catchment_mechanisms::tcp::{Socket, StreamReceiver, StreamSender};
use catchment_mechanisms::{CopyMode, Port, SendEnd, Shape, StatusByte, StatusByteSender};
use catchment_transfer::Refill;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

pub(crate) fn run(job: &Job, role: Role, mut control: Control) -> Result<()> {
    match job.what {
        Mechanism::CacheLine => {
            let link = cache_line::CacheLine::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        Mechanism::Memcpy => {
            let link = memcpy::Memcpy::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        Mechanism::Tcp | Mechanism::TcpBlocking | Mechanism::Unix => run_stream(job, role, control),
        Mechanism::Iceoryx2 | Mechanism::Iceoryx2Credit => run_iceoryx(job, role, control),
        Mechanism::OursCopy
        | Mechanism::OursInPlace
        | Mechanism::StatusReadPrefetched
        | Mechanism::StatusReadWhenEmpty => run_ours(job, role, control),
        Mechanism::Paper => {
            let set_up = SetUp { job, role, control };
            let ways = set_up.ways(PaperStatusByte::new)?;
            let status: StatusBytes<PaperSendEnd> =
                (|end| end.stats().status_reads, |end| Ok(end.look()? == Some(true)));
            set_up.measure(ways, Some(status), None)
        }
        Mechanism::Ucx | Mechanism::Iperf3 | Mechanism::Duplex | Mechanism::DuplexTcp => {
            anyhow::bail!("this one has its own programs")
        }
        Mechanism::Spq
        | Mechanism::Tcm
        | Mechanism::PTcm
        | Mechanism::Deadline
        | Mechanism::DeadlineFast
        | Mechanism::Raw
        | Mechanism::Share
        | Mechanism::Drum
        | Mechanism::Admm
        | Mechanism::Subgradient
        | Mechanism::SubgradientBest => anyhow::bail!("this one is simulated: it has no processes"),
        Mechanism::SbPaper
        | Mechanism::SbPaperApart
        | Mechanism::Sb
        | Mechanism::SbCrc
        | Mechanism::SbInPlace
        | Mechanism::SwPaper
        | Mechanism::SwPaperInline
        | Mechanism::SwFair
        | Mechanism::SwSack
        | Mechanism::SwFairTail
        | Mechanism::SwFairTailInPlace
        | Mechanism::Rendezvous => {
            if let Program::Cameras(cameras) = job.program {
                return cameras::run(job, cameras, role, control);
            }
            job.what.with(shape(job, job.blocks)?, SetUp { job, role, control })
        }
    }
}

#[cfg(feature = "iceoryx2")]
fn run_iceoryx(job: &Job, role: Role, mut control: Control) -> Result<()> {
    let link = crate::link::iceoryx::Iceoryx::new(job, role, &mut control)?;
    measure(job, role, control, link)
}

#[cfg(not(feature = "iceoryx2"))]
fn run_iceoryx(job: &Job, _: Role, _: Control) -> Result<()> {
    let remedy = crate::external::missing(job.what).unwrap_or_default();
    anyhow::bail!("{} is not in this program: {remedy}", job.what.name())
}

/// Runs the product's mechanism. Nothing but what the two rows about reads are named for has a
/// refill policy of its own.
fn run_ours(job: &Job, role: Role, control: Control) -> Result<()> {
    let in_place = job.what == Mechanism::OursInPlace;
    let mode = if in_place { CopyMode::InPlace } else { CopyMode::Copy };
    let threshold = job.blocks as u32 / 2;
    let refill = if job.what == Mechanism::StatusReadPrefetched {
        Some(Refill::Ahead { threshold })
    } else {
        (job.what == Mechanism::StatusReadWhenEmpty).then_some(Refill::WhenEmpty)
    };
    let set_up = SetUp { job, role, control };
    let ways = set_up.ways(|shape| {
        let mut mechanism = StatusByte::new(shape, mode);
        mechanism.send_cqe = mechanism.max_send_wr;
        mechanism.options.refill = refill;
        mechanism
    })?;
    let blocks = ways[0].shape.blocks as usize;
    let status: StatusBytes<StatusByteSender> = (
        |end| end.inner().stats().status_reads,
        // The provider has done a READ when it is posted, and the sender takes its completion.
        |end| Ok(end.inner().refresh().map(|()| true)?),
    );
    set_up.measure(ways, Some(status), in_place.then_some(blocks))
}

fn shape(job: &Job, blocks: usize) -> Result<Shape> {
    Ok(Shape { blocks: u32::try_from(blocks)?, payload_bytes: u32::try_from(job.bytes)? })
}

/// A mechanism over verbs is set up in three steps: ports of both ways, connected, ends of them.
struct SetUp<'a> {
    job: &'a Job,
    role: Role,
    control: Control,
}

impl SetUp<'_> {
    /// Returns the mechanism of the way out and that of the way back, which has fewer blocks where
    /// they are large.
    fn ways<M>(&self, make: impl Fn(Shape) -> M) -> Result<[M; 2]> {
        let there = make(shape(self.job, self.job.blocks)?);
        let back = make(shape(self.job, self.job.back_blocks())?);
        Ok(match self.role {
            Role::Source => [there, back],
            Role::Collector => [back, there],
        })
    }

    fn measure<M: catchment_mechanisms::Mechanism>(
        mut self,
        [out, back]: [M; 2],
        status: Option<StatusBytes<M::Sender>>,
        copied: Option<usize>,
    ) -> Result<()> {
        let device = Device::open(self.job, self.role)?;
        let pd = device.context.alloc_pd()?;
        let port = |needs| Port::open(&*device.context, &*pd, &needs);
        let mut ports = [port(out.sender_needs()?)?, port(back.receiver_needs()?)?];
        let queues = match self.role {
            Role::Source => device::queues(&ports[0]),
            Role::Collector => device::queues(&ports[1]),
        };
        let offers = device::connect(&mut self.control, &mut ports)?;
        let [sends, takes] = ports;
        let mut sender = out.sender(sends, &offers[0])?;
        let receiver = back.receiver(takes, &offers[1])?;
        self.control.meet()?;
        // What is taken out of the sender, the sender does no more.
        let helper = self.job.what.has_helper().then(|| sender.helper()).flatten();
        let helper = helper.map(|helper| HelperThread::start(helper, self.job.wait)).transpose()?;
        let link = Through::new(self.job, self.job.wait, (sender, receiver), copied);
        let link = link.over(device, queues, helper, status);
        measure(self.job, self.role, self.control, link)
    }
}

impl Visit for SetUp<'_> {
    type Out = Result<()>;

    fn visit<M: catchment_mechanisms::Mechanism>(self, mechanism: M) -> Result<()> {
        let copied = Some(self.job.blocks);
        self.measure([mechanism; 2], None, copied)
    }
}

/// Measures the baseline over a connection of this host.
fn run_stream(job: &Job, role: Role, mut control: Control) -> Result<()> {
    let stream = if matches!(job.what, Mechanism::Unix) {
        Socket::unix(unix(job, role, &mut control)?)?
    } else {
        Socket::tcp(tcp(role, &mut control)?)?
    };
    let shape = shape(job, job.blocks)?;
    let sender = StreamSender::new(stream.try_clone()?, shape)?;
    let receiver = StreamReceiver::new(stream, shape)?;
    // Polling a full unix socket costs more than it brings.
    let wait = if matches!(job.what, Mechanism::TcpBlocking | Mechanism::Unix) {
        Wait::Doorbell
    } else {
        job.wait
    };
    let link = Through::new(job, wait, (sender, receiver), Some(job.blocks));
    measure(job, role, control, link)
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
