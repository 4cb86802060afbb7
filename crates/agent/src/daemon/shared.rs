//! A connection that shares queue pairs: each of its chunks is checked here, with the keys of both ends, before it
//! is given to one. What is not known to succeed is never given to it: it would end what others have there.
use super::checks::{Need, check};
use super::connection::{Connection, part_of};
use super::messages::{Plan, takes_receive};
use super::share::{Regions, Stage};
use super::shared_qps::{Posted, SharedQps};
use crate::peer::message::RemoteRegion;
use crate::scheduler::Chunk;
use catchment_verbs::{Completion, Failure, WcStatus};

/// What is known to succeed.
enum Checked {
    Chunk(Posted),
    Message(Plan),
}

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
            match self.checked(&chunk, regions) {
                Ok(checked) => {
                    let place = self.shared.as_ref().map_or(0, |shared| shared.place);
                    match checked {
                        Checked::Chunk(posted) => {
                            self.note(&chunk);
                            shared_qps.push(place, posted);
                        }
                        Checked::Message(plan) => self.post_message(&chunk, &plan, shared_qps),
                    }
                    given += 1;
                }
                Err(stops) => {
                    need = stops;
                    break;
                }
            }
        }
        self.planned.drain(..given);
        (self.shared.as_ref().map_or(0, |shared| shared.place), need)
    }

    /// Returns the next chunk as shared queue pairs do it, or what keeps it from being given to one.
    fn checked(&mut self, chunk: &Chunk, regions: &Regions) -> Result<Checked, Option<Need>> {
        let (wr_id, pd) = (self.base() | u64::from(self.number.wrapping_add(1)), self.pd);
        let shared = self.shared.as_mut().filter(|shared| shared.stage == Stage::Open);
        let shared = shared.ok_or(None)?;
        let send = self.sends.front_mut().ok_or(None)?;
        let result = if takes_receive(&part_of(send.op, chunk)) {
            Plan::new(send, chunk, (regions, pd), shared).map(Checked::Message)
        } else {
            check(send, chunk, (regions, pd), shared).map(|(op, data)| {
                let mut posted = Posted::new(wr_id, op, data);
                posted.fence = send.fence && chunk.offset == 0;
                posted.inline = send.inline.take();
                Checked::Chunk(posted)
            })
        };
        result.map_err(|need| match need {
            Need::Apart => {
                shared.stage = Stage::Parting;
                Some(need)
            }
            Need::Receive => None,
            Need::Key(rkey) if shared.asked == Some(rkey) => None,
            Need::Key(rkey) => {
                shared.asked = Some(rkey);
                Some(need)
            }
        })
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
