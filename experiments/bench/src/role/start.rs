//! Sets up the mechanism that a job names, and measures it.
use super::{cameras, measure, measure_programs};
use crate::control::Control;
use crate::job::{Job, Program, Role, Wait};
use crate::link::device::{self, Device};
use crate::link::helper::HelperThread;
use crate::link::through::Through;
use crate::link::{cache_line, memcpy, ours, paper};
use crate::mechanism::{Mechanism, Provider, Visit, What};
use anyhow::Result;
use catchment_mechanisms::tcp::{Socket, StreamReceiver, StreamSender};
use catchment_mechanisms::{Port, SendEnd, Shape};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Sets up the mechanism that the job names and measures it.
pub(crate) fn run(job: &Job, role: Role, mut control: Control) -> Result<()> {
    match job.what {
        What::CacheLine => {
            let link = cache_line::CacheLine::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        What::Memcpy => {
            let link = memcpy::Memcpy::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        What::Tcp | What::TcpBlocking | What::Unix => run_stream(job, role, control),
        What::Iceoryx2 | What::Iceoryx2Credit | What::ZenohTcp | What::ZenohShm | What::Aeron => {
            run_library(job, role, control)
        }
        What::OursCopy
        | What::OursInPlace
        | What::StatusReadPrefetched
        | What::StatusReadWhenEmpty => {
            let link = ours::Ours::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        What::Paper => {
            let link = paper::Paper::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        What::Mechanism(mechanism, provider) => match job.program {
            Program::Cameras(cameras) => {
                cameras::run(job, cameras, (mechanism, provider), role, control)
            }
            Program::Stream
            | Program::Sync { .. }
            | Program::Look { .. }
            | Program::OneWay { .. }
            | Program::Workers(_)
            | Program::Hold(_) => run_mechanism(job, (mechanism, provider), role, control),
        },
        What::Ucx | What::Program(_) => anyhow::bail!("this one has its own programs"),
    }
}

/// As [`run`], with a library of another project.
fn run_library(job: &Job, role: Role, control: Control) -> Result<()> {
    match job.what {
        #[cfg(feature = "iceoryx2")]
        What::Iceoryx2 | What::Iceoryx2Credit => {
            let mut control = control;
            let link = crate::link::iceoryx::Iceoryx::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        #[cfg(feature = "zenoh")]
        What::ZenohTcp | What::ZenohShm => {
            let mut control = control;
            let link = crate::link::zenoh::Zenoh::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        #[cfg(feature = "aeron")]
        What::Aeron => {
            let mut control = control;
            let link = crate::link::aeron::Aeron::new(job, role, &mut control)?;
            measure(job, role, control, link)
        }
        _ => {
            // Neither is used without any library.
            let _ = (role, control);
            let remedy = crate::external::missing(job.what).unwrap_or("it is no library");
            anyhow::bail!("{} is not in this program: {remedy}", job.what.name())
        }
    }
}

/// As [`run`], with a mechanism over verbs.
fn run_mechanism(
    job: &Job,
    (name, provider): (Mechanism, Provider),
    role: Role,
    control: Control,
) -> Result<()> {
    let shape = Shape {
        blocks: u32::try_from(job.blocks)?,
        payload_bytes: u32::try_from(job.bytes)?,
    };
    let set_up = SetUp {
        job,
        name,
        provider,
        role,
        control,
    };
    name.with(shape, set_up)
}

struct SetUp<'a> {
    job: &'a Job,
    name: Mechanism,
    provider: Provider,
    role: Role,
    control: Control,
}

impl Visit for SetUp<'_> {
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
        let helper = helper.transpose()?;
        let link = Through::new(self.job, self.job.wait, sender, receiver);
        let link = link.over(device, queues, helper);
        measure_programs(self.job, self.role, self.control, link)
    }
}

/// Measures the baseline over a connection of this host.
fn run_stream(job: &Job, role: Role, mut control: Control) -> Result<()> {
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
    measure_programs(job, role, control, link)
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
