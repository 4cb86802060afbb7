//! One end: device, queue pair, memory, and the way to wait for completions.
use super::{
    super::job::{Job, Op, REGION_BYTES},
    Control, Used,
};
use crate::{
    address::{Address, Memory},
    sys,
};
use anyhow::{Context as _, Result, bail};
use catchment_provider_roce::{RoceContext, RoceOptions, RoceProvider};
use catchment_roce::wire::PathMtu;
use catchment_verbs::{
    Access, AsyncEvent, Completion, CompletionChannel, Context, Cq, Mr, Pd, Qp, QpInit, RemoteAddr,
    Service, Sge,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// Requests outstanding at most.
pub(super) const SEND_REQUESTS: u32 = 1024;
/// Receives posted at most: the region, in messages.
pub(super) const RECEIVES: u32 = 64;
/// A completion that does not come in this time never comes.
const PATIENCE: Duration = Duration::from_secs(10);

/// One end of a measurement.
pub(super) struct End {
    pub(super) context: Arc<RoceContext>,
    pub(super) qp: Box<dyn Qp>,
    pub(super) cq: Arc<dyn Cq>,
    pub(super) channel: Arc<dyn CompletionChannel>,
    pub(super) mr: Arc<dyn Mr>,
    /// This program does the engine's work while it polls.
    pub(super) inline: bool,
    _pd: Arc<dyn Pd>,
    /// The first byte of the other side's memory.
    to: RemoteAddr,
}

/// What the other side must know.
#[derive(Serialize, Deserialize)]
struct Hello {
    at: Address,
    memory: Memory,
}

impl End {
    /// Opens the device, fills the memory, and connects.
    pub(super) fn open(job: &Job, op: Op, control: &mut Control) -> Result<End> {
        let path_mtu = PathMtu::from_bytes(job.path_mtu).context("no path MTU")?;
        let inline = op == Op::PingPong { inline: true };
        let provider = RoceProvider::new(RoceOptions {
            path_mtu: Some(path_mtu),
            inline_polling: inline,
            spin: job.spin,
            ..RoceOptions::default()
        });
        let context = provider.open_device(&job.own().to_string())?;
        let pd = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq(SEND_REQUESTS + RECEIVES, Some(Arc::clone(&channel)))?;
        let mut qp = pd.create_qp(QpInit {
            service: Service::Rc,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            max_send_wr: SEND_REQUESTS,
            max_recv_wr: RECEIVES,
            max_sge: 1,
            max_inline_bytes: 64,
            strict: true,
        })?;
        let mr = pd.alloc_mr(REGION_BYTES, Access::LOCAL_WRITE | Access::REMOTE)?;
        mr.region().whole().fill(7)?;
        control.send(&Hello {
            at: Address::of(&*qp),
            memory: Memory::of(&*mr),
        })?;
        let peer: Hello = control.recv()?;
        peer.at.connect(&mut *qp)?;
        control.meet()?;
        Ok(End {
            context,
            qp,
            cq,
            channel,
            mr,
            inline,
            _pd: pd,
            to: peer.memory.remote(),
        })
    }

    /// Why the queue pair failed, if it did.
    pub(super) fn async_event(&self) -> Option<AsyncEvent> {
        self.context.async_event()
    }

    /// A piece of the own memory.
    pub(super) fn sge(&self, offset: usize, bytes: usize) -> Sge {
        Sge {
            addr: self.mr.addr() + offset as u64,
            bytes: bytes as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// A place in the other side's memory.
    pub(super) fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.to.addr + offset as u64,
            ..self.to
        }
    }

    /// Takes completions that are there.
    pub(super) fn poll(&self) -> Result<Option<Done>> {
        self.poll_some::<32>()
    }

    /// As [`End::poll`], for one that hardly ever finds some.
    pub(super) fn look(&self) -> Result<Option<Done>> {
        self.poll_some::<1>()
    }

    fn poll_some<const MOST: usize>(&self) -> Result<Option<Done>> {
        let mut done = [Completion::EMPTY; MOST];
        let count = self.cq.poll(&mut done)?;
        if let Some(failed) = done[..count].iter().find(|done| done.result.is_err()) {
            bail!("a request failed: {failed:?}");
        }
        let newest = done[..count].last().map(|newest| newest.wr_id);
        Ok(newest.map(|newest| Done { count, newest }))
    }

    /// As [`End::poll`], after sleeping for at most `timeout` if none is there.
    pub(super) fn wait(&self, timeout: Duration) -> Result<Option<Done>> {
        if let Some(done) = self.poll()? {
            return Ok(Some(done));
        }
        self.cq.req_notify(false);
        // One may have come before the request.
        if let Some(done) = self.poll()? {
            return Ok(Some(done));
        }
        self.channel.wait(timeout)?;
        self.poll()
    }

    /// As [`End::wait`], for a completion that must come.
    pub(super) fn demand(&self) -> Result<Done> {
        let start_ns = sys::monotonic_ns();
        loop {
            if let Some(done) = self.wait(PATIENCE)? {
                return Ok(done);
            }
            if sys::monotonic_ns() - start_ns > PATIENCE.as_nanos() as u64 {
                bail!("no completion in {PATIENCE:?}");
            }
        }
    }
}

/// Completions that were taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) count: usize,
    /// The newest one's request.
    pub(super) newest: u64,
}

/// What this process used since it began.
pub(super) fn used(context: &RoceContext) -> Used {
    let counters = context.counters();
    Used {
        cpu_ns: sys::process_cpu_ns(),
        packets_sent: counters.sent.packets,
        messages_sent: counters.sent.messages,
        packets_received: counters.received.packets,
        messages_received: counters.received.messages,
        retransmitted: counters.protocol.retransmitted,
    }
}
