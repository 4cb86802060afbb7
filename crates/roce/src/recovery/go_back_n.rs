//! Go-back-N (IBTA volume 1, 9.7.5.1 and 9.7.6): retransmits everything from a lost packet on.
use super::Clock;
use crate::Psn;

/// Three numbers: `una <= resend <= next`. While below `next`, `resend` is sent next.
#[derive(Debug)]
pub(crate) struct GoBackN {
    pub(crate) una: Psn,
    resend: Psn,
    pub(crate) next: Psn,
    /// The packet whose round trip is measured: never a retransmitted one (Karn).
    timed: Option<(Psn, u64)>,
    /// The last NAK that took effect.
    obeyed: Option<(Psn, u64)>,
}

impl GoBackN {
    pub(crate) fn new(first: Psn) -> Self {
        Self { una: first, resend: first, next: first, timed: None, obeyed: None }
    }

    pub(crate) fn on_sent(&mut self, psn: Psn, span: u32, now_ns: u64) {
        if psn == self.next {
            self.next = psn.add(span);
            self.timed.get_or_insert((psn, now_ns));
        }
        self.resend = psn.add(span);
    }

    pub(crate) fn next_lost(&self) -> Option<Psn> {
        (self.resend != self.next).then_some(self.resend)
    }

    pub(crate) fn on_ack(&mut self, psn: Psn, clock: &mut Clock<'_>) {
        let packets = psn.next().distance_from(self.una);
        clock.counters.acknowledged += u64::from(packets.cast_unsigned());
        self.una = psn.next();
        if self.resend.distance_from(self.una) < 0 {
            clock.counters.spurious += self.una.distance_from(self.resend).cast_unsigned() as u64;
            self.resend = self.una;
        }
        if let Some((timed, sent_ns)) = self.timed
            && timed.distance_from(psn) <= 0
        {
            clock.rto.sample(clock.now_ns.saturating_sub(sent_ns));
            self.timed = None;
        }
    }

    /// Handles a NAK. A responder sends one per gap. A second one for the same PSN is new only if
    /// the retransmitted packet had time to arrive; earlier it is a copy, and reacting to copies
    /// causes storms.
    pub(crate) fn on_sequence_nak(&mut self, psn: Psn, clock: &mut Clock<'_>) {
        let patience_ns = clock.rto.srtt_ns().unwrap_or(0) / 2;
        if let Some((obeyed, at_ns)) = self.obeyed
            && obeyed == psn
            && clock.now_ns.saturating_sub(at_ns) < patience_ns
        {
            return;
        }
        self.obeyed = Some((psn, clock.now_ns));
        clock.counters.lost += 1;
        self.go_back(psn);
    }

    /// Retransmits everything from `psn` on.
    pub(crate) fn go_back(&mut self, psn: Psn) {
        if psn.distance_from(self.resend) < 0 {
            self.resend = psn;
        }
        self.timed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::rto::Rto;
    use super::*;
    use crate::counters::Counters;

    struct Bench {
        rto: Rto,
        counters: Counters,
        engine: GoBackN,
    }

    impl Bench {
        /// Creates an engine that has sent PSNs 100 to 109 at time 0.
        fn new() -> Self {
            let mut engine = GoBackN::new(Psn::new(100));
            (100..110).for_each(|psn| engine.on_sent(Psn::new(psn), 1, 0));
            Self { rto: Rto::default(), counters: Counters::default(), engine }
        }

        fn with(&mut self, now_ns: u64, act: impl FnOnce(&mut GoBackN, &mut Clock<'_>)) {
            let mut clock = Clock { now_ns, rto: &mut self.rto, counters: &mut self.counters };
            act(&mut self.engine, &mut clock);
        }

        /// Retransmits what is lost and returns the PSNs.
        fn resend(&mut self, now_ns: u64) -> Vec<u32> {
            let mut sent = Vec::new();
            while let Some(psn) = self.engine.next_lost() {
                self.engine.on_sent(psn, 1, now_ns);
                sent.push(psn.value());
            }
            sent
        }
    }

    #[test]
    fn nothing_is_lost_until_a_nak_or_a_timeout() {
        let mut bench = Bench::new();
        assert_eq!(bench.resend(1), []);
        bench.with(1, |engine, clock| engine.on_ack(Psn::new(104), clock));
        assert_eq!(bench.engine.una, Psn::new(105));
        assert_eq!(bench.resend(2), []);
    }

    #[test]
    fn a_nak_sends_everything_from_it_on_again() {
        let mut bench = Bench::new();
        bench.with(1, |engine, clock| engine.on_sequence_nak(Psn::new(107), clock));
        assert_eq!(bench.resend(2), [107, 108, 109]);
    }

    #[test]
    fn a_copy_of_a_nak_is_not_obeyed_within_half_a_round_trip() {
        let mut bench = Bench::new();
        bench.with(1000, |engine, clock| engine.on_ack(Psn::new(104), clock));
        bench.with(1000, |engine, clock| engine.on_sequence_nak(Psn::new(107), clock));
        assert_eq!(bench.resend(1000), [107, 108, 109]);
        bench.with(1400, |engine, clock| engine.on_sequence_nak(Psn::new(107), clock));
        assert_eq!(bench.resend(1400), []);
        bench.with(2100, |engine, clock| engine.on_sequence_nak(Psn::new(107), clock));
        assert_eq!(bench.resend(2100), [107, 108, 109]);
    }

    #[test]
    fn an_acknowledgement_overtakes_what_is_being_sent_again() {
        let mut bench = Bench::new();
        bench.engine.go_back(Psn::new(100));
        bench.with(1, |engine, clock| engine.on_ack(Psn::new(105), clock));
        assert_eq!(bench.resend(2), [106, 107, 108, 109]);
        assert_eq!(bench.counters.spurious, 6);
    }

    #[test]
    fn what_was_sent_twice_is_not_measured() {
        let mut bench = Bench::new();
        bench.engine.go_back(Psn::new(100));
        bench.resend(5);
        bench.with(10, |engine, clock| engine.on_ack(Psn::new(109), clock));
        assert_eq!(bench.rto.srtt_ns(), None);
    }
}
