//! A connection that shares queue pairs: each of its chunks is checked here, with the keys of both ends, before it
//! is given to one. What is not known to succeed is never given to it: it would end what others have there.
use super::checks::{Need, check};
use super::connection::Connection;
use super::messages::{Plan, takes_receive};
use super::send::part_of;
use super::share::{Regions, Stage};
use super::shared_qps::{Posted, SharedQps};
use crate::peer::message::RemoteRegion;
use crate::scheduler::Chunk;
use catchment_verbs::{Completion, Failure, WcStatus};

impl Connection {
    /// Gives planned chunks to a shared queue pair, as far as they are known to succeed. Returns where, and what
    /// the next one needs.
    pub(super) fn post_shared(
        &mut self,
        regions: &Regions,
        shared_qps: &mut SharedQps,
    ) -> (usize, Option<Need>) {
        let mut given = 0;
        let mut need = None;
        let is_drained = self.is_drained();
        if let Some(shared) = self.shared.as_mut().filter(|_| is_drained) {
            // While it has nothing there, order does not bind it to one.
            let place = shared.group.or_else(|| shared_qps.place(shared.host));
            let Some(place) = place else { return (0, None) };
            shared.place = place;
        }
        while let Some(chunk) = self.planned.get(given).copied() {
            if let Err(stops) = self.post_checked(&chunk, regions, shared_qps) {
                need = self.stop(stops);
                break;
            }
            given += 1;
        }
        self.planned.drain(..given);
        (self.shared.as_ref().map_or(0, |shared| shared.place), need)
    }

    /// Gives the next chunk to a shared queue pair, as these do it, or says what keeps it from being given to one.
    #[inline]
    fn post_checked(
        &mut self,
        chunk: &Chunk,
        regions: &Regions,
        shared_qps: &mut SharedQps,
    ) -> Result<(), Option<Need>> {
        let (wr_id, pd) = (self.base() | u64::from(self.number.wrapping_add(1)), self.pd);
        let shared = self.shared.as_ref().filter(|shared| shared.stage == Stage::Open);
        let shared = shared.ok_or(None)?;
        let send = self.sends.front_mut().ok_or(None)?;
        if takes_receive(&send.op) && takes_receive(&part_of(send.op, chunk)) {
            let plan = Plan::new(send, chunk, (regions, pd), shared)?;
            self.post_message(chunk, &plan, shared_qps);
            return Ok(());
        }
        let (op, data) = check(send, chunk, (regions, pd), shared)?;
        let mut posted = Posted::new(wr_id, op, data);
        posted.fence = send.fence && chunk.offset == 0;
        posted.inline = send.inline.take();
        shared_qps.push(shared.place, posted);
        self.note(chunk);
        Ok(())
    }

    /// Takes note of what keeps a chunk from being given to a shared queue pair; returns what is to be asked or done for it.
    fn stop(&mut self, need: Option<Need>) -> Option<Need> {
        let shared = self.shared.as_mut()?;
        match need? {
            Need::Apart => {
                shared.stage = Stage::Parting;
                need
            }
            Need::Receive => None,
            Need::Key(rkey) if shared.asked == Some(rkey) => None,
            Need::Key(rkey) => {
                shared.asked = Some(rkey);
                need
            }
        }
    }

    /// Takes what a key of the peer gives.
    pub(super) fn learn(&mut self, rkey: u32, region: Option<RemoteRegion>) {
        if let Some(shared) = &mut self.shared {
            shared.keys.insert(rkey, region);
            shared.asked = shared.asked.filter(|asked| *asked != rkey);
        }
    }

    /// Returns the failed completions of everything that it has in the device's hands: its host is gone, or it is not
    /// known whether the peer did this atomic, which had no answer.
    pub(super) fn lost(&self, unknown: Option<u64>) -> Vec<Completion> {
        let base = self.base();
        let all = self.flying_numbers().map(|number| base | u64::from(number));
        let lost = |wr_id| {
            let no_answer = unknown == Some(wr_id);
            let status =
                if no_answer { WcStatus::TransportRetryExceeded } else { WcStatus::Flushed };
            let result = Err(Failure { status, vendor_err: 0 });
            Completion { wr_id, qpn: 0, result }
        };
        all.map(lost).collect()
    }
}
