//! Any mechanism of the transfer crate over any provider, and the baseline over a byte stream: each way
//! has its own pair of ends.
use super::device::Device;
use super::helper::HelperThread;
use super::{Link, Pace, Prepared, look_at};
use crate::job::{Job, Network, Queues, Wait};
use anyhow::{Context as _, Result};
use catchment_mechanisms::{ClaimError, ReceiveEnd, SendEnd, TakenBlock};
use catchment_transfer::Waiter;
use std::collections::VecDeque;
use std::time::Duration;

/// Who waits for a block looks after its own sends so often.
const PROGRESS_EVERY: u32 = 64;
/// A peer that is silent for so long is asked again.
const NAP: Duration = Duration::from_millis(100);

/// The status bytes of a sending end: how often it looked at them, and a look that is done when it
/// says so.
pub(crate) type StatusBytes<S> = (fn(&S) -> u64, fn(&mut S) -> Result<bool>);

/// A sending end one way and a receiving end the other way.
pub(crate) struct Through<S: SendEnd, R: ReceiveEnd> {
    sender: S,
    receiver: R,
    received: Option<R::Block>,
    /// Blocks that are kept for longer, the oldest first.
    aside: VecDeque<R::Block>,
    claimed: Option<S::Claim>,
    waiter: Waiter,
    wait: Wait,
    /// What is copied into a block; nothing where the mechanism's own copy is the only one.
    prepared: Option<Prepared>,
    status: Option<StatusBytes<S>>,
    bytes: usize,
    packet: u64,
    queues: Option<Queues>,
    helper: Option<HelperThread>,
    device: Option<Device>,
}

impl<S: SendEnd, R: ReceiveEnd> Through<S, R> {
    /// Over two connected ends. `copied` blocks of prepared data are copied into blocks; none where
    /// the mechanism's own copy is the only one.
    pub(crate) fn new(
        job: &Job,
        wait: Wait,
        (sender, receiver): (S, R),
        copied: Option<usize>,
    ) -> Self {
        Self {
            sender,
            receiver,
            received: None,
            aside: VecDeque::new(),
            claimed: None,
            waiter: Waiter::new(wait.policy(), crate::host::cores()),
            wait,
            prepared: copied.map(|blocks| Prepared::new(job.bytes, blocks)),
            status: None,
            bytes: job.bytes,
            packet: 0,
            queues: None,
            helper: None,
            device: None,
        }
    }

    pub(crate) fn over(
        self,
        device: Device,
        queues: Queues,
        helper: Option<HelperThread>,
        status: Option<StatusBytes<S>>,
    ) -> Self {
        Self { status, device: Some(device), queues: Some(queues), helper, ..self }
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
            self.drive();
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
            self.drive();
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

    /// A look found nothing: the device may work in this thread.
    #[inline]
    fn drive(&self) {
        if let Some(device) = &self.device {
            device.progress();
        }
    }
}

impl<S: SendEnd, R: ReceiveEnd> Link for Through<S, R> {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        let claim = self.claim()?;
        match (content, &mut self.prepared) {
            (Some(content), _) => self.sender.memory(&claim).write_at(0, content)?,
            (None, Some(prepared)) => {
                let content = prepared.take();
                self.sender.memory(&claim).write_at(0, content)?;
            }
            (None, None) => {}
        }
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

    fn status_reads(&self) -> Option<u64> {
        self.status.map(|(reads, _)| reads(&self.sender))
    }

    fn read_status(&mut self) -> Result<()> {
        while let Some((_, look)) = self.status
            && !look(&mut self.sender)?
        {
            self.wait.pause();
        }
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

    #[inline]
    fn try_claim(&mut self) -> Result<bool> {
        match self.sender.claim(0, self.bytes as u32) {
            Ok(claim) => {
                self.claimed = Some(claim);
                Ok(true)
            }
            Err(ClaimError::WouldBlock) => {
                self.sender.progress()?;
                self.drive();
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
        if self.received.is_none() {
            self.drive();
        }
        Ok(self.received.is_some())
    }

    fn look(&mut self) -> Result<Option<bool>> {
        Ok(self.sender.look()?)
    }

    fn note_acknowledgements(&mut self) -> Vec<u64> {
        self.helper.as_ref().map_or(Vec::new(), HelperThread::note)
    }

    fn set_aside(&mut self) {
        self.aside.extend(self.received.take());
    }

    fn give_back_aside(&mut self, place: usize) -> Result<bool> {
        Ok(self.aside.remove(place).is_some())
    }
}
