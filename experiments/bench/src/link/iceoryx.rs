//! iceoryx2 publish-subscribe with loaned samples, busy polling, nothing lost.
//!
//! When the subscriber's queue is full, iceoryx2 itself yields and later sleeps
//! (`RetryUntilDelivered`). So that its wait policy is no disadvantage, it is measured a second
//! time with a shared counter by which the source polls for room first (`iceoryx2-credit`).
use super::cache_line::CacheLine;
use super::{Link, Prepared, touch};
use crate::control::Control;
use crate::job::{Job, Role, Wait};
use crate::mechanism::Mechanism;
use anyhow::{Context, Result, bail};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::{
    BackpressureStrategy, LogLevel, Node, NodeBuilder, SignalHandlingMode, ipc, set_log_level,
};

type Out = Publisher<ipc::Service, [u8], ()>;
type In = Subscriber<ipc::Service, [u8], ()>;
type Received = iceoryx2::sample::Sample<ipc::Service, [u8], ()>;

pub(crate) struct Iceoryx {
    received: Option<Received>,
    publisher: Out,
    subscriber: In,
    prepared: Prepared,
    credit: Option<Credit>,
    bytes: usize,
    wait: Wait,
    _node: Node<ipc::Service>,
}

impl Iceoryx {
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Self> {
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new()
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()?;
        // One after the other: two processes that create the same service get in each other's way.
        if role == Role::Collector {
            control.recv::<()>()?;
        }
        let (there, back) = (job.blocks, job.back_blocks());
        let (publisher, subscriber, blocks) = match role {
            Role::Source => (
                publisher(&node, job, "there", there)?,
                subscriber(&node, job, "back", back)?,
                there,
            ),
            Role::Collector => (
                publisher(&node, job, "back", back)?,
                subscriber(&node, job, "there", there)?,
                back,
            ),
        };
        if role == Role::Source {
            control.send(&())?;
            control.recv::<()>()?;
        } else {
            control.send(&())?;
        }
        publisher.update_connections()?;
        subscriber.update_connections()?;
        let credit = (job.what == Mechanism::Iceoryx2Credit)
            .then(|| CacheLine::new(job, role, control))
            .transpose()?
            .map(|line| Credit { line, limit: blocks as u64, sent: 0, known_taken: 0 });
        Ok(Self {
            received: None,
            publisher,
            subscriber,
            prepared: Prepared::new(job.bytes, blocks),
            credit,
            bytes: job.bytes,
            wait: job.wait,
            _node: node,
        })
    }
}

fn publisher(node: &Node<ipc::Service>, job: &Job, way: &str, blocks: usize) -> Result<Out> {
    Ok(service(node, job, way, blocks)?
        .publisher_builder()
        .initial_max_slice_len(job.bytes)
        .max_loaned_samples(1)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()?)
}

fn subscriber(node: &Node<ipc::Service>, job: &Job, way: &str, blocks: usize) -> Result<In> {
    Ok(service(node, job, way, blocks)?.subscriber_builder().buffer_size(blocks).create()?)
}

fn service(
    node: &Node<ipc::Service>,
    job: &Job,
    way: &str,
    blocks: usize,
) -> Result<iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u8], ()>>
{
    let name = format!("catchment-bench/{}/{way}", job.unique);
    node.service_builder(&name.as_str().try_into()?)
        .publish_subscribe::<[u8]>()
        .enable_safe_overflow(false)
        .history_size(0)
        .max_publishers(1)
        .max_subscribers(1)
        .subscriber_max_buffer_size(blocks)
        .subscriber_max_borrowed_samples(1)
        .open_or_create()
        .with_context(|| format!("opening the iceoryx2 service {name}"))
}

impl Link for Iceoryx {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.wait_for_room(self.wait)?;
        }
        let sample = self.publisher.loan_slice_uninit(self.bytes)?;
        let filled = sample.write_from_slice(match content {
            Some(content) => content,
            None => self.prepared.take(),
        });
        match filled.send()? {
            1 => Ok(()),
            n => bail!("iceoryx2 delivered a sample to {n} subscribers, expected 1"),
        }
    }

    #[inline]
    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()> {
        let sample = loop {
            match self.subscriber.receive()? {
                Some(sample) => break sample,
                None => self.wait.pause(),
            }
        };
        touch(sample[0]);
        touch(sample[self.bytes - 1]);
        if let Some(content) = content {
            content.clear();
            content.extend_from_slice(&sample);
        }
        self.received = Some(sample);
        Ok(())
    }

    #[inline]
    fn give_back(&mut self) -> Result<()> {
        match (self.received.take(), &mut self.credit) {
            (Some(sample), Some(credit)) => {
                drop(sample);
                credit.line.send(None)
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// A cache line through which the receiver of each direction counts the samples that it has taken.
struct Credit {
    line: CacheLine,
    limit: u64,
    sent: u64,
    known_taken: u64,
}

impl Credit {
    #[inline]
    fn wait_for_room(&mut self, wait: Wait) -> Result<()> {
        while self.sent - self.known_taken >= self.limit {
            self.known_taken = self.line.came()?;
            if self.sent - self.known_taken >= self.limit {
                wait.pause();
            }
        }
        self.sent += 1;
        Ok(())
    }
}
