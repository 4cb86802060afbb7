//! Congestion notifications to the peer, whose packets arrive marked (ECN congestion experienced).

/// At most one CNP in an interval (IBTA annex A17.9.3).
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    interval_ns: Option<u64>,
    not_before_ns: u64,
    pub(crate) due: bool,
}

impl Notifier {
    pub(crate) fn new(interval_ns: Option<u64>) -> Self {
        Self { interval_ns, ..Self::default() }
    }

    /// Notes a marked packet.
    pub(crate) fn on_marked(&mut self, now_ns: u64) {
        let Some(interval_ns) = self.interval_ns else { return };
        if now_ns >= self.not_before_ns {
            self.due = true;
            self.not_before_ns = now_ns.saturating_add(interval_ns);
        }
    }

    /// Returns whether a CNP is due, and clears it.
    pub(crate) fn take(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_packets_make_one_notification_in_an_interval() {
        let mut notifier = Notifier::new(Some(50_000));
        let sent = (0..200_000).step_by(1000).filter(|&now_ns| {
            notifier.on_marked(now_ns);
            notifier.take()
        });
        assert_eq!(sent.collect::<Vec<_>>(), [0, 50_000, 100_000, 150_000]);
    }

    #[test]
    fn it_can_be_off() {
        let mut notifier = Notifier::new(None);
        notifier.on_marked(0);
        assert!(!notifier.take());
    }
}
