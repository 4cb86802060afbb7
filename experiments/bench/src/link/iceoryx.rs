//! iceoryx2 publish-subscribe with loaned samples, busy polling, nothing lost.
//!
//! When the subscriber's queue is full, iceoryx2 itself yields and later sleeps
//! (`RetryUntilDelivered`). So that its wait policy is no disadvantage, it is measured a second
//! time with a shared counter by which the source polls for room first (`iceoryx2-credit`).
use super::{Link, Prepared, touch};
use crate::control::Control;
use crate::job::{Job, Role, Wait};
use crate::mechanism::What;
use anyhow::{Context, Result, bail};
use catchment_verbs::mem::Region;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::{
    BackpressureStrategy, LogLevel, Node, NodeBuilder, SignalHandlingMode, ipc, set_log_level,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Iceoryx> {
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
        let credit = (job.what == What::Iceoryx2Credit)
            .then(|| Credit::new(role, control, blocks as u64))
            .transpose()?;
        Ok(Iceoryx {
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
                credit.give()
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// How many samples the receiver has taken, told through a cache line for each direction.
struct Credit {
    region: Arc<Region>,
    ours: usize,
    theirs: usize,
    limit: u64,
    sent: u64,
    known_taken: u64,
    taken: u64,
}

impl Credit {
    fn new(role: Role, control: &mut Control, limit: u64) -> Result<Credit> {
        let (region, ours, theirs) = match role {
            Role::Source => (control.share_out(4096)?, 0, 256),
            Role::Collector => (control.share_in()?, 256, 0),
        };
        Ok(Credit { region, ours, theirs, limit, sent: 0, known_taken: 0, taken: 0 })
    }

    #[inline]
    fn wait_for_room(&mut self, wait: Wait) -> Result<()> {
        let theirs = self.region.whole().atomic_u64(self.theirs)?;
        while self.sent - self.known_taken >= self.limit {
            self.known_taken = theirs.load(Ordering::Acquire);
            if self.sent - self.known_taken >= self.limit {
                wait.pause();
            }
        }
        self.sent += 1;
        Ok(())
    }

    #[inline]
    fn give(&mut self) -> Result<()> {
        self.taken += 1;
        self.region.whole().atomic_u64(self.ours)?.store(self.taken, Ordering::Release);
        Ok(())
    }
}
