//! Controller, sources and the messages between them, in virtual time.
use super::outcome::{EventEnd, Outcome};
use super::source::{Sending, Stretch, Wake};
use super::trace::{Event, FRAME_BYTES};
use catchment_control::admission::{
    Config, Controller, DeviceId, DeviceSpec, Grant, Input, Output, TransferId,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// How sources behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceModel {
    /// A request is for a frame; otherwise for the whole event.
    pub(super) by_frame: bool,
    /// Requests of a device that are not done.
    pub(super) outstanding: usize,
    /// From a grant to the first byte.
    pub(super) host_ns: u64,
    /// The way of a message, each way.
    pub(super) delay_ns: u64,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) config: Config,
    pub(super) source: SourceModel,
    pub(super) devices: Vec<(DeviceId, DeviceSpec)>,
    pub(super) horizon_ns: u64,
    /// After the last event, for those that are late.
    pub(super) drain_ns: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Generate(usize),
    ToController(usize),
    ToSource(usize),
    Wake(TransferId, u64),
    Timeout,
}

#[derive(Debug)]
enum Message {
    Grant(TransferId, Grant),
    Pause(TransferId, u32),
}

#[derive(Debug, Default)]
struct Device {
    /// Events and what of them was not asked for.
    backlog: VecDeque<(usize, u64)>,
    in_flight: usize,
    number: u64,
}

/// A run.
pub(super) struct World<'a> {
    setup: &'a Setup,
    trace: &'a [Event],
    controller: Controller,
    now_ns: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, What)>>,
    count: u64,
    inputs: Vec<Option<Input>>,
    outputs: Vec<Option<Message>>,
    timeout_ns: Option<u64>,
    devices: BTreeMap<u32, Device>,
    sendings: BTreeMap<TransferId, Sending>,
    /// The event of every transfer that was asked for.
    events: BTreeMap<TransferId, usize>,
    left_bytes: Vec<u64>,
    stretches: Vec<(u32, Stretch)>,
    outcome: Outcome,
}

/// Runs `trace` through a controller and its sources.
pub(super) fn run(setup: &Setup, trace: &[Event]) -> Outcome {
    let controller = Controller::new(0, setup.config.clone());
    let mut world = World {
        controller: controller.expect("the configurations of this module are right"),
        setup,
        trace,
        now_ns: 0,
        agenda: BinaryHeap::new(),
        count: 0,
        inputs: Vec::new(),
        outputs: Vec::new(),
        timeout_ns: None,
        devices: BTreeMap::new(),
        sendings: BTreeMap::new(),
        events: BTreeMap::new(),
        left_bytes: trace.iter().map(Event::bytes).collect(),
        stretches: Vec::new(),
        outcome: Outcome::default(),
    };
    for (device, spec) in &setup.devices {
        world.controller.handle(0, Input::Register { device: *device, spec: spec.clone() });
        world.devices.insert(device.0, Device::default());
    }
    world.outcome.ends = vec![EventEnd::default(); trace.len()];
    for (index, event) in trace.iter().enumerate() {
        world.plan(event.at_ns, What::Generate(index));
    }
    world.go();
    world.finish()
}

impl World<'_> {
    fn plan(&mut self, at_ns: u64, what: What) {
        self.count += 1;
        self.agenda.push(Reverse((at_ns, self.count, what)));
    }

    fn go(&mut self) {
        let end_ns = self.setup.horizon_ns + self.setup.drain_ns;
        while let Some(Reverse((at_ns, _, what))) = self.agenda.pop() {
            if at_ns > end_ns {
                break;
            }
            self.now_ns = at_ns;
            match what {
                What::Generate(index) => {
                    let event = &self.trace[index];
                    let device = self.devices.entry(event.device).or_default();
                    device.backlog.push_back((index, event.bytes()));
                    self.ask(event.device);
                }
                What::ToController(at) => {
                    if let Some(input) = self.inputs[at].take() {
                        self.control(input);
                    }
                }
                What::ToSource(at) => {
                    let message = self.outputs[at].take();
                    message.into_iter().for_each(|message| self.obey(&message));
                }
                What::Wake(id, number) => self.wake(id, number),
                What::Timeout => {
                    if self.timeout_ns.is_some_and(|due_ns| due_ns <= self.now_ns) {
                        self.timeout_ns = None;
                        self.control(Input::Timeout);
                    }
                }
            }
        }
    }

    /// Asks for as much as a device may have outstanding.
    fn ask(&mut self, device: u32) {
        let model = self.setup.source;
        let Some(state) = self.devices.get_mut(&device) else { return };
        let mut requests = Vec::new();
        while state.in_flight < model.outstanding {
            let Some((event, left)) = state.backlog.front_mut() else { break };
            let bytes = if model.by_frame { FRAME_BYTES.min(*left) } else { *left };
            *left -= bytes;
            let event = *event;
            if *left == 0 {
                state.backlog.pop_front();
            }
            state.in_flight += 1;
            state.number += 1;
            let id = TransferId { device: DeviceId(device), number: state.number };
            requests.push((id, event, bytes));
        }
        for (transfer, event, bytes) in requests {
            self.events.insert(transfer, event);
            self.sendings.insert(transfer, Sending::new(transfer, event, bytes, self.now_ns));
            let age_ns = self.now_ns - self.trace[event].at_ns;
            self.tell(Input::Request { transfer, bytes, age_ns });
        }
    }

    fn tell(&mut self, input: Input) {
        self.outcome.messages += 1;
        self.inputs.push(Some(input));
        let arrival_ns = self.now_ns + self.setup.source.delay_ns;
        self.plan(arrival_ns, What::ToController(self.inputs.len() - 1));
    }

    fn control(&mut self, input: Input) {
        self.controller.handle(self.now_ns, input);
        loop {
            let message = match self.controller.poll() {
                Output::Grant { transfer, grant } => Message::Grant(transfer, grant),
                Output::Pause { transfer, revision } => {
                    self.outcome.pauses += 1;
                    Message::Pause(transfer, revision)
                }
                Output::Missed { transfer, .. } => {
                    self.outcome.messages += 1;
                    if let Some(event) = self.events.get(&transfer) {
                        self.outcome.ends[*event].told = true;
                    }
                    continue;
                }
                Output::Rate { .. } => continue,
                Output::Refused { subject, reason } => panic!("{subject:?}: {reason:?}"),
                Output::Timeout(due_ns) => return self.set_timeout(due_ns),
            };
            self.outcome.messages += 1;
            self.outputs.push(Some(message));
            let arrival_ns = self.now_ns + self.setup.source.delay_ns;
            self.plan(arrival_ns, What::ToSource(self.outputs.len() - 1));
        }
    }

    fn set_timeout(&mut self, due_ns: Option<u64>) {
        let Some(due_ns) = due_ns else { return };
        let due_ns = due_ns.max(self.now_ns);
        if self.timeout_ns.is_none_or(|known_ns| due_ns < known_ns) {
            self.timeout_ns = Some(due_ns);
            self.plan(due_ns, What::Timeout);
        }
    }

    fn obey(&mut self, message: &Message) {
        let (id, chunk_bytes) = match message {
            Message::Grant(id, _) | Message::Pause(id, _) => (*id, self.setup.config.chunk_bytes),
        };
        let (now_ns, host_ns) = (self.now_ns, self.setup.source.host_ns);
        let Some(sending) = self.sendings.get_mut(&id) else { return };
        sending.advance(now_ns, FRAME_BYTES);
        match message {
            Message::Grant(_, grant) => sending.grant(now_ns, grant, host_ns, chunk_bytes),
            Message::Pause(_, revision) => sending.pause(now_ns, *revision, chunk_bytes),
        }
        self.schedule(id);
    }

    fn schedule(&mut self, id: TransferId) {
        let Some(sending) = self.sendings.get_mut(&id) else { return };
        sending.wake += 1;
        let (wake, next_ns) = (sending.wake, sending.next_ns());
        if let Some(next_ns) = next_ns {
            self.plan(next_ns.max(self.now_ns), What::Wake(id, wake));
        }
    }

    fn wake(&mut self, id: TransferId, number: u64) {
        let now_ns = self.now_ns;
        let Some(sending) = self.sendings.get_mut(&id) else { return };
        if sending.wake != number {
            return;
        }
        sending.advance(now_ns, FRAME_BYTES);
        let (wake, input) = sending.speak(now_ns);
        input.into_iter().for_each(|input| self.tell(input));
        if wake == Wake::Done {
            self.complete(id);
        } else {
            self.schedule(id);
        }
    }

    fn complete(&mut self, id: TransferId) {
        let Some(sending) = self.sendings.remove(&id) else { return };
        self.record(&sending);
        let left = &mut self.left_bytes[sending.event];
        *left -= sending.bytes;
        if *left == 0 {
            self.outcome.ends[sending.event].done_ns = Some(self.now_ns);
        }
        if let Some(device) = self.devices.get_mut(&id.device.0) {
            device.in_flight -= 1;
        }
        self.ask(id.device.0);
    }

    fn record(&mut self, sending: &Sending) {
        self.outcome.ends[sending.event].frames_ns.extend(&sending.frames_ns);
        let class = usize::from(self.trace[sending.event].class);
        for stretch in &sending.stretches {
            let until_ns = stretch.until_ns.min(self.setup.horizon_ns);
            let time_ns = until_ns.saturating_sub(stretch.from_ns) as f64;
            self.outcome.sent_bits[class] += time_ns * stretch.rate_bps as f64 / 1e9;
        }
        let stretches = sending.stretches.iter().map(|stretch| (sending.id.device.0, *stretch));
        self.stretches.extend(stretches);
    }

    fn finish(mut self) -> Outcome {
        let rest = std::mem::take(&mut self.sendings);
        rest.values().for_each(|sending| self.record(sending));
        self.outcome.over_capacity_bits = self.excess_bits();
        self.outcome
    }

    /// Returns the bits by which sources sent more than links carry, summed over time and links.
    fn excess_bits(&self) -> f64 {
        let mut bits = 0.0;
        for (link, config) in (0..).zip(&self.setup.config.links) {
            let uses = |device: u32| {
                let spec = self.setup.devices.iter().find(|(id, _)| id.0 == device);
                let path = spec.map(|(_, spec)| usize::from(spec.path.0)).unwrap_or_default();
                self.setup.config.paths[path].iter().any(|one| one.0 == link)
            };
            let users: BTreeMap<u32, bool> =
                self.devices.keys().map(|device| (*device, uses(*device))).collect();
            let mut steps: Vec<(u64, i128)> = Vec::new();
            for (_, stretch) in self.stretches.iter().filter(|(device, _)| users[device]) {
                let rate = i128::from(stretch.rate_bps);
                steps.extend([(stretch.from_ns, rate), (stretch.until_ns, -rate)]);
            }
            steps.sort_unstable();
            let (mut sum, mut at_ns) = (0, 0);
            for (step_ns, change) in steps {
                let over = (sum - i128::from(config.capacity_bps)).max(0);
                bits += over as f64 * (step_ns - at_ns) as f64 / 1e9;
                (sum, at_ns) = (sum + change, step_ns);
            }
        }
        bits
    }
}
