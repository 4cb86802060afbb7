//! Aeron over its shared log buffers (`aeron:ipc`).
//!
//! A message longer than a fragment, at most 65,504 bytes with its header, is cut; the assembler of
//! Aeron's client copies it together, so that the program gets a frame in one piece. The driver is in
//! the collector's process and has no threads (Aeron's invoker mode): where two roles have a core
//! each, a thread of its own would have to share one of them. Both clients are driven by their
//! roles for the same reason.
use super::{Link, Prepared, touch};
use crate::control::Control;
use crate::job::{Job, Role, Wait};
use anyhow::{Context as _, Result, anyhow, bail};
use rusteron_media_driver::bindings::aeron_threading_mode_enum;
use rusteron_media_driver::{
    AERON_IPC_STREAM, Aeron as Client, AeronCError, AeronContext, AeronDriver, AeronDriverContext,
    AeronExclusivePublication, AeronFragmentClosureAssembler, AeronHeader, AeronSubscription,
    Handlers, IntoCString,
};
use std::time::{Duration, Instant};

/// Stream numbers of the two ways.
const THERE: i32 = 1001;
const BACK: i32 = 1002;
/// The largest fragment that Aeron allows, its header included: fewer fragments, less work.
const MTU_BYTES: usize = 65_504;
/// A fragment's own header.
const HEADER_BYTES: usize = 32;
/// A role sleeps while others are measured: nobody is taken for dead meanwhile.
const LIVENESS: Duration = Duration::from_secs(3600);
/// Setting up takes no longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// While the driver waits for the other role.
const LOOK: Duration = Duration::from_micros(50);

/// A publication one way and a subscription the other way.
pub(crate) struct Aeron {
    // Dropped in this order: the driver outlives its client.
    publication: AeronExclusivePublication,
    subscription: AeronSubscription,
    assembler: AeronFragmentClosureAssembler,
    engine: Engine,
    prepared: Prepared,
    /// Fragments of a message: so many at a time hold the end of one message at most.
    fragments: usize,
    wait: Wait,
}

struct Engine {
    client: Client,
    driver: Option<AeronDriver>,
}

impl Engine {
    fn step(&self) -> Result<()> {
        if let Some(driver) = &self.driver {
            driver.main_do_work().map_err(said)?;
        }
        self.client.main_do_work().map_err(said)?;
        Ok(())
    }

    fn until<T>(&self, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let began = Instant::now();
        loop {
            self.step()?;
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            if began.elapsed() > PATIENCE {
                bail!("Aeron: nothing after {} s", PATIENCE.as_secs());
            }
            std::thread::yield_now();
        }
    }
}

impl Aeron {
    /// Starts driver and clients and connects both ways.
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Aeron> {
        let folder = format!("/dev/shm/catchment-bench-{}", job.unique);
        let driver = match role {
            Role::Collector => Some(driver(job, &folder)?),
            Role::Source => None,
        };
        // The source finds the driver's files.
        control.meet()?;
        let engine = Engine { client: client(&folder).context("a client of Aeron")?, driver };
        let (out, back) = match role {
            Role::Source => (THERE, BACK),
            Role::Collector => (BACK, THERE),
        };
        let adding = engine.client.async_add_exclusive_publication(AERON_IPC_STREAM, out);
        let adding = adding.map_err(said)?;
        let publication = engine.until(|| adding.poll().map_err(said))?;
        let none = Handlers::NONE;
        let adding = engine.client.async_add_subscription(AERON_IPC_STREAM, back, none, none);
        let adding = adding.map_err(said)?;
        let subscription = engine.until(|| adding.poll().map_err(said))?;
        engine.until(|| {
            let both = publication.is_connected() && subscription.is_connected();
            Ok(both.then_some(()))
        })?;
        match role {
            Role::Source => control.meet()?,
            Role::Collector => {
                while !control.has_more(LOOK)? {
                    engine.step()?;
                }
                control.meet()?;
            }
        }
        Ok(Aeron {
            publication,
            subscription,
            assembler: AeronFragmentClosureAssembler::new().map_err(said)?,
            engine,
            prepared: Prepared::new(job.bytes, job.blocks),
            fragments: job.bytes.div_ceil(MTU_BYTES - HEADER_BYTES),
            wait: job.wait,
        })
    }
}

fn driver(job: &Job, folder: &str) -> Result<AeronDriver> {
    let start = || -> Result<AeronDriver, AeronCError> {
        let context = AeronDriverContext::new()?;
        let fragments = job.bytes.div_ceil(MTU_BYTES - HEADER_BYTES);
        let message_bytes = job.bytes + fragments * 2 * HEADER_BYTES;
        // Twice the window, and eight times the longest message at least.
        let window_bytes = job.blocks * message_bytes;
        let term_bytes = (2 * window_bytes).max(8 * message_bytes).next_power_of_two();
        context.set_dir(&folder.to_owned().into_c_string())?;
        context.set_dir_delete_on_start(true)?;
        context.set_dir_delete_on_shutdown(true)?;
        context.set_threading_mode(aeron_threading_mode_enum::AERON_THREADING_MODE_INVOKER)?;
        context.set_ipc_mtu_length(MTU_BYTES)?;
        context.set_ipc_term_buffer_length(term_bytes.max(64 << 10))?;
        context.set_ipc_publication_term_window_length(window_bytes)?;
        context.set_client_liveness_timeout_ns(LIVENESS.as_nanos() as u64)?;
        context.set_publication_unblock_timeout_ns(2 * LIVENESS.as_nanos() as u64)?;
        let driver = AeronDriver::new(&context)?;
        driver.start(true)?;
        Ok(driver)
    };
    start().map_err(said).context("Aeron's driver")
}

fn client(folder: &str) -> Result<Client> {
    let start = || -> Result<Client, AeronCError> {
        let context = AeronContext::new()?;
        context.set_dir(&folder.to_owned().into_c_string())?;
        context.set_use_conductor_agent_invoker(true)?;
        context.set_driver_timeout_ms(LIVENESS.as_millis() as u64)?;
        let client = Client::new(&context)?;
        client.start()?;
        Ok(client)
    };
    start().map_err(said)
}

/// Its errors know no thread, ours are sent between threads.
fn said(error: AeronCError) -> anyhow::Error {
    anyhow!("Aeron: {error}")
}

impl Link for Aeron {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        let content = match content {
            Some(content) => content,
            None => self.prepared.take(),
        };
        loop {
            match self.publication.offer(content) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() => {
                    self.engine.step()?;
                    self.wait.pause();
                }
                Err(error) => bail!("Aeron refused a message: {error}"),
            }
        }
    }

    #[inline]
    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()> {
        let mut seen = Seen { content, whole: false };
        loop {
            let fragments = self
                .assembler
                .poll(&self.subscription, &mut seen, look, self.fragments)
                .map_err(said)?;
            if seen.whole {
                // Makes room for the sender.
                return self.engine.step();
            }
            if fragments == 0 {
                self.engine.step()?;
                self.wait.pause();
            }
        }
    }
}

struct Seen<'a> {
    content: Option<&'a mut Vec<u8>>,
    whole: bool,
}

fn look(seen: &mut Seen<'_>, message: &[u8], _: AeronHeader) {
    seen.whole = true;
    if let (Some(first), Some(last)) = (message.first(), message.last()) {
        touch(*first);
        touch(*last);
    }
    if let Some(content) = &mut seen.content {
        content.clear();
        content.extend_from_slice(message);
    }
}
