//! A controller, and what it has said.
use catchment_control::admission::*;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const GBPS: u64 = 1_000_000_000;
/// Bytes that take a millisecond at 10 Gbit/s.
pub(crate) const MS_AT_10: u64 = 1_250_000;

pub(crate) struct Harness {
    pub(crate) controller: Controller,
    pub(crate) said: Vec<Output>,
    pub(crate) next_ns: Option<u64>,
}

/// Returns the configuration of one link of 20 Gbit/s, without shares.
pub(crate) fn one_link(rules: Rules) -> Config {
    let rules = Rules { shares: None, ..rules };
    Config::new(vec![LinkConfig::new(20 * GBPS)], vec![vec![LinkId(0)]], rules)
}

pub(crate) fn spec(class: u8, rate_bps: u64) -> DeviceSpec {
    DeviceSpec::new(SourceId(1), PathId(0), ClassId(class), rate_bps)
}

pub(crate) fn transfer(device: u32, number: u64) -> TransferId {
    TransferId { device: DeviceId(device), number }
}

impl Harness {
    pub(crate) fn new(config: Config) -> Self {
        let controller = Controller::new(0, config).expect("a right configuration");
        Self { controller, said: Vec::new(), next_ns: None }
    }

    /// Makes a controller with `count` tolerant devices of 10 Gbit/s, from number 1 on, and an urgent
    /// one, number 0.
    pub(crate) fn with_devices(config: Config, count: u32) -> Self {
        let mut harness = Self::new(config);
        for device in 0..=count {
            let spec = spec(u8::from(device > 0), 10 * GBPS);
            harness.handle(0, Input::Register { device: DeviceId(device), spec });
        }
        harness
    }

    /// Handles an input and returns what was said.
    pub(crate) fn handle(&mut self, now_ns: u64, input: Input) -> &[Output] {
        self.said.clear();
        self.controller.handle(now_ns, input);
        loop {
            match self.controller.poll() {
                Output::Timeout(next_ns) => {
                    self.next_ns = next_ns;
                    return &self.said;
                }
                output @ (Output::Grant { .. }
                | Output::Pause { .. }
                | Output::Missed { .. }
                | Output::Working { .. }
                | Output::Rate { .. }
                | Output::Renewed { .. }
                | Output::Refused { .. }) => self.said.push(output),
            }
        }
    }

    pub(crate) fn request(&mut self, now_ns: u64, id: TransferId, bytes: u64) -> &[Output] {
        self.handle(now_ns, Input::Request { transfer: id, bytes, age_ns: 0 })
    }

    /// Requests, and returns the grant of that transfer.
    pub(crate) fn granted(&mut self, now_ns: u64, id: TransferId, bytes: u64) -> Option<Grant> {
        self.request(now_ns, id, bytes);
        self.grant_of(id)
    }

    pub(crate) fn grant_of(&self, id: TransferId) -> Option<Grant> {
        self.said.iter().rev().find_map(|output| match output {
            Output::Grant { transfer, grant } => (*transfer == id).then_some(*grant),
            Output::Pause { .. }
            | Output::Missed { .. }
            | Output::Working { .. }
            | Output::Rate { .. }
            | Output::Renewed { .. }
            | Output::Refused { .. }
            | Output::Timeout(_) => None,
        })
    }

    pub(crate) fn pauses(&self) -> Vec<(TransferId, u32)> {
        let pause = |output: &Output| match output {
            Output::Pause { transfer, revision } => Some((*transfer, *revision)),
            Output::Grant { .. }
            | Output::Missed { .. }
            | Output::Working { .. }
            | Output::Rate { .. }
            | Output::Renewed { .. }
            | Output::Refused { .. }
            | Output::Timeout(_) => None,
        };
        self.said.iter().filter_map(pause).collect()
    }

    pub(crate) fn missed(&self, id: TransferId) -> bool {
        let is =
            |output: &Output| matches!(output, Output::Missed { transfer, .. } if *transfer == id);
        self.said.iter().any(is)
    }

    pub(crate) fn done(&mut self, now_ns: u64, id: TransferId) -> &[Output] {
        self.handle(now_ns, Input::Done { transfer: id })
    }

    pub(crate) fn timeout(&mut self, now_ns: u64) -> &[Output] {
        self.handle(now_ns, Input::Timeout)
    }

    /// Lets time pass without a message until nothing is due any more.
    pub(crate) fn be_silent(&mut self, timeouts_max: usize) {
        for _ in 0..timeouts_max {
            let Some(next_ns) = self.next_ns else { return };
            self.timeout(next_ns);
        }
        panic!("still due after {timeouts_max} timeouts: {:?}", self.next_ns);
    }

    pub(crate) fn load_bps(&self) -> u64 {
        self.controller.load_bps(LinkId(0)).expect("link 0")
    }

    /// Returns the reason of the refusal.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.said.iter().find_map(|output| match output {
            Output::Refused { reason, .. } => Some(*reason),
            Output::Grant { .. }
            | Output::Pause { .. }
            | Output::Missed { .. }
            | Output::Working { .. }
            | Output::Rate { .. }
            | Output::Renewed { .. }
            | Output::Timeout(_) => None,
        })
    }
}
