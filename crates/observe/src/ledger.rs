//! The sum that holds for every frame that was ever accepted.

/// What became of the frames of a device, as one side counted them: every frame that was sent is
/// delivered, dropped on purpose, or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Frames that there were.
    pub sent: u64,
    /// Frames delivered to the sinks.
    pub delivered: u64,
    /// Frames that the source dropped, as the policy of the device says.
    pub dropped: u64,
    /// Frames that could not be delivered.
    pub lost: u64,
}

/// The counters of a device contradict each other: the fate of some frames is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the frames of device {device} do not add up at the {side}: {} sent, {} delivered + {} dropped + \
     {} lost; report this with the logs of both sides",
    .ledger.sent, .ledger.delivered, .ledger.dropped, .ledger.lost
)]
pub struct Unaccounted {
    /// The device.
    pub device: String,
    /// Who counted: source, collector, or both.
    pub side: &'static str,
    /// What was counted.
    pub ledger: Ledger,
}

impl Ledger {
    /// Checks that every frame of `device` that was sent is delivered, dropped or lost, as counted at
    /// `side`.
    ///
    /// # Errors
    /// [`Unaccounted`] with the numbers.
    pub fn check(&self, device: &str, side: &'static str) -> Result<(), Unaccounted> {
        let known = self.delivered.checked_add(self.dropped).and_then(|n| n.checked_add(self.lost));
        if known == Some(self.sent) {
            return Ok(());
        }
        Err(Unaccounted { device: device.to_owned(), side, ledger: *self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_device_and_the_numbers() {
        let ledger = Ledger { sent: 250, delivered: 125, dropped: 20, lost: 105 };
        assert_eq!(ledger.check("cam0", "source"), Ok(()));
        let error = Ledger { lost: 0, ..ledger }.check("cam0", "source").unwrap_err().to_string();
        for part in ["cam0", "source", "250 sent", "125 delivered", "20 dropped", "0 lost"] {
            assert!(error.contains(part), "{error}");
        }
        let overflow = Ledger { lost: u64::MAX, ..ledger };
        assert!(overflow.check("cam0", "collector").is_err());
    }
}
