//! Zenoh publish-subscribe between two peers, over TCP or by its shared memory, nothing lost.
//!
//! Its threads share the core of their role, so that nobody polls: the receiver sleeps in Zenoh's
//! channel. Over TCP a message is cut; as for all others the frame is handed over in one piece, copied
//! together where Zenoh has pieces. By shared memory the sender fills a buffer of Zenoh's provider and
//! the receiver looks at that buffer. When no buffer is left, the sender lets others run and asks
//! again: the wait that Zenoh brings for this (`BlockOn`) sleeps a millisecond.
use super::{Link, Prepared, touch};
use crate::control::Control;
use crate::external::free_port;
use crate::job::{Job, Role};
use crate::mechanism::What;
use anyhow::{Result, anyhow, bail};
use std::time::{Duration, Instant};
use zenoh::handlers::{FifoChannel, FifoChannelHandler};
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::shm::{
    GarbageCollect, PosixShmProviderBackend, ShmProvider, ShmProviderBuilder, ZAllocError,
};
use zenoh::{Config, Session, Wait as _};

type Provider = ShmProvider<PosixShmProviderBackend>;

/// A publisher one way and a subscriber the other way.
pub(crate) struct Zenoh {
    publisher: Publisher<'static>,
    subscriber: Subscriber<FifoChannelHandler<Sample>>,
    received: Option<Sample>,
    frame: Vec<u8>,
    prepared: Prepared,
    /// Where frames are filled that go by shared memory.
    provider: Option<Provider>,
    bytes: usize,
    _session: Session,
}

impl Zenoh {
    /// Opens both sessions and waits until each publisher knows its subscriber.
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Zenoh> {
        let by_memory = job.what == What::ZenohShm;
        let session = match role {
            Role::Collector => {
                let address = format!("tcp/127.0.0.1:{}", free_port()?);
                let session = open(&[("listen/endpoints", &address)], by_memory)?;
                control.send(&address)?;
                session
            }
            Role::Source => {
                let address: String = control.recv()?;
                open(&[("connect/endpoints", &address)], by_memory)?
            }
        };
        let ((out, out_blocks), (back, back_blocks)) = match role {
            Role::Source => (("there", job.blocks), ("back", job.back_blocks())),
            Role::Collector => (("back", job.back_blocks()), ("there", job.blocks)),
        };
        let name = |way: &str| format!("catchment-bench/{}/{way}", job.unique);
        let subscriber = session.declare_subscriber(name(back)).with(FifoChannel::new(back_blocks));
        let subscriber = subscriber.wait().map_err(said)?;
        let publisher = session
            .declare_publisher(name(out))
            .congestion_control(CongestionControl::Block)
            .express(true);
        let publisher = publisher.wait().map_err(said)?;
        await_subscriber(&publisher)?;
        control.meet()?;
        let pool = || provider((2 * out_blocks + 2) * job.bytes);
        Ok(Zenoh {
            publisher,
            subscriber,
            received: None,
            frame: Vec::with_capacity(job.bytes),
            prepared: Prepared::new(job.bytes, out_blocks),
            provider: by_memory.then(pool).transpose()?,
            bytes: job.bytes,
            _session: session,
        })
    }
}

fn open(endpoints: &[(&str, &str)], by_memory: bool) -> Result<Session> {
    let mut config = Config::default();
    let mut set = |key: &str, value: &str| config.insert_json5(key, value).map_err(said);
    set("mode", "\"peer\"")?;
    set("scouting/multicast/enabled", "false")?;
    set("scouting/gossip/enabled", "false")?;
    set("listen/endpoints", "[]")?;
    set("transport/shared_memory/enabled", &by_memory.to_string())?;
    for (key, address) in endpoints {
        set(key, &format!("[{address:?}]"))?;
    }
    zenoh::open(config).wait().map_err(said)
}

/// Its own errors know their causes only as text.
fn said(error: zenoh::Error) -> anyhow::Error {
    anyhow!("Zenoh: {error}")
}

fn await_subscriber(publisher: &Publisher<'_>) -> Result<()> {
    let began = Instant::now();
    while !publisher.matching_status().wait().map_err(said)?.matching() {
        if began.elapsed() > Duration::from_secs(20) {
            bail!("Zenoh: no subscriber after 20 s");
        }
        // The other peer connects meanwhile.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn provider(bytes: usize) -> Result<Provider> {
    let built = ShmProviderBuilder::default_backend(bytes).wait();
    built.map_err(|error| anyhow!("Zenoh's shared memory: {error}"))
}

impl Link for Zenoh {
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        let content = match content {
            Some(content) => content,
            None => self.prepared.take(),
        };
        let Some(provider) = &self.provider else {
            return self.publisher.put(content).wait().map_err(said);
        };
        let mut buffer = loop {
            let layout = provider.alloc(self.bytes);
            match layout.with_policy::<GarbageCollect>().wait() {
                Ok(buffer) => break buffer,
                Err(error) if is_full(&error) => std::thread::yield_now(),
                Err(error) => bail!("Zenoh's shared memory: {error:?}"),
            }
        };
        buffer.copy_from_slice(content);
        self.publisher.put(buffer).wait().map_err(said)
    }

    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()> {
        let sample = self.subscriber.recv().map_err(said)?;
        let mut pieces = sample.payload().slices();
        let first = pieces.next().unwrap_or_default();
        let frame = if first.len() == self.bytes {
            first
        } else {
            self.frame.clear();
            self.frame.extend_from_slice(first);
            pieces.for_each(|piece| self.frame.extend_from_slice(piece));
            self.frame.as_slice()
        };
        if frame.len() != self.bytes {
            bail!("Zenoh delivered {} bytes of {}", frame.len(), self.bytes);
        }
        touch(frame[0]);
        touch(frame[self.bytes - 1]);
        if let Some(content) = content {
            content.clear();
            content.extend_from_slice(frame);
        }
        self.received = Some(sample);
        Ok(())
    }

    fn give_back(&mut self) -> Result<()> {
        self.received = None;
        Ok(())
    }
}

fn is_full(error: &zenoh::shm::ZLayoutAllocError) -> bool {
    use zenoh::shm::ZLayoutAllocError::Alloc;
    matches!(error, Alloc(ZAllocError::NeedDefragment | ZAllocError::OutOfMemory))
}
