//! Timeouts: a peer that does not answer.
use super::Requester;
use crate::counters::Counters;
use crate::recovery::Clock;
use catchment_verbs_types::WcStatus;

impl Requester {
    /// Handles the timeout of `next_timeout`. Returns a status if the connection failed.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, counters: &mut Counters) -> Option<WcStatus> {
        if let Some(rnr) = self.rnr {
            if now_ns < rnr.until_ns {
                return None;
            }
            self.rnr = None;
        }
        let mut clock = Clock { now_ns, rto: &mut self.rto, counters };
        self.engine.on_time(&mut clock);
        self.reads.on_time(now_ns, &self.rto);
        if self.rto.deadline_ns().is_some_and(|at| at <= now_ns) {
            return self.on_silence(now_ns, counters);
        }
        None
    }

    /// Handles silence of the peer. The full timeout costs a retry. An early one, or one of the first
    /// half before a round trip was measured, sends a probe if the strategy has one: otherwise a peer that is only
    /// slow, or far away, would get the whole window repeatedly, until its socket overflows.
    fn on_silence(&mut self, now_ns: u64, counters: &mut Counters) -> Option<WcStatus> {
        if !self.expects() {
            self.rto.on_progress(now_ns, false);
            return None;
        }
        if let Some(challenges) = &mut self.challenges {
            challenges.ask_again();
        }
        let is_early = self.rto.is_early();
        if !is_early {
            if self.tries >= self.limits.retry_cnt {
                counters.timeouts += 1;
                return Some(WcStatus::TransportRetryExceeded);
            }
            self.tries += 1;
        }
        self.rto.on_fired(now_ns);
        let is_unknown = self.rto.srtt_ns().is_none() && self.tries <= self.limits.retry_cnt / 2;
        if (is_early || is_unknown) && self.engine.probe() {
            counters.probes += 1;
            return None;
        }
        counters.timeouts += 1;
        self.engine.on_timeout();
        self.reads.want_all();
        self.reads.unwant_undelivered(self.engine.una());
        None
    }
}
