//! Controller, sources and the messages between them, in virtual time.
use super::outcome::{EventEnd, Outcome};
use super::packet::{Carry, Notice};
use super::source::{Sending, Stretch, Wake};
use super::stream::{Periodic, Streams};
use super::trace::{Event, FRAME_BYTES};
use catchment_control::admission::{
    Config, Controller, DeviceId, DeviceSpec, Grant, Input, LinkId, Output, SourceId, TransferId,
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
    /// Devices that send all the time, and ask for a rate.
    pub(super) periodic: Vec<Periodic>,
    /// When a link carries more or less, and the controller is told.
    pub(super) capacities: Vec<(u64, LinkId, u64)>,
    pub(super) horizon_ns: u64,
    /// After the last event, for those that are late.
    pub(super) drain_ns: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The next of `inputs`: each takes as long, so they arrive in order.
    ToController,
    /// The next of `outputs`.
    ToSource,
    Wake(TransferId, u64),
    Timeout,
    /// A source asks for the rates of its devices, or renews them.
    Renew(SourceId),
    Capacity(usize),
}

#[derive(Debug)]
enum Message {
    Grant(TransferId, Grant),
    Pause(TransferId, u32),
    /// Devices, their rates and until when.
    Rates(Vec<(DeviceId, u64, u64)>),
    /// The rates of a source hold until then.
    Renewed(SourceId, u64),
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
    /// On their way.
    inputs: VecDeque<Input>,
    outputs: VecDeque<Message>,
    timeout_ns: Option<u64>,
    devices: BTreeMap<u32, Device>,
    sendings: BTreeMap<TransferId, Sending>,
    /// The event of every transfer that was asked for.
    events: BTreeMap<TransferId, usize>,
    left_bytes: Vec<u64>,
    stretches: Vec<(u32, Stretch)>,
    streams: Streams,
    carried: Option<Carried>,
    outcome: Outcome,
}

/// What carries packets, at level `packet`.
pub(super) struct Carried {
    pub(super) network: Box<dyn Carry>,
    /// Whether sources ask the controller; otherwise they send what they have.
    pub(super) controlled: bool,
}

/// Runs `trace` through a controller and its sources.
pub(super) fn run(setup: &Setup, trace: &[Event]) -> Outcome {
    run_over(setup, trace, None)
}

/// Runs `trace`, and what sources send as packets where there is a network.
pub(super) fn run_over(setup: &Setup, trace: &[Event], carried: Option<Carried>) -> Outcome {
    let controller = Controller::new(0, setup.config.clone());
    let mut world = World {
        controller: controller.expect("the configurations of this module are right"),
        setup,
        trace,
        now_ns: 0,
        agenda: BinaryHeap::new(),
        count: 0,
        inputs: VecDeque::new(),
        outputs: VecDeque::new(),
        timeout_ns: None,
        devices: BTreeMap::new(),
        sendings: BTreeMap::new(),
        events: BTreeMap::new(),
        left_bytes: trace.iter().map(Event::bytes).collect(),
        stretches: Vec::new(),
        streams: Streams::new(&setup.periodic),
        carried,
        outcome: Outcome::default(),
    };
    for (device, spec) in &setup.devices {
        world.controller.handle(0, Input::Register { device: *device, spec: spec.clone() });
        world.devices.insert(device.0, Device::default());
    }
    world.outcome.ends = vec![EventEnd::default(); trace.len()];
    for (source, at_ns) in world.streams.begins() {
        world.plan(at_ns, What::Renew(source));
    }
    for (index, (at_ns, _, _)) in setup.capacities.iter().enumerate() {
        world.plan(*at_ns, What::Capacity(index));
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
        let mut events = self.trace.iter().enumerate().peekable();
        loop {
            // Of what happens at the same time, events come first.
            let next_ns = self.agenda.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns);
            let event_ns = events.peek().map_or(end_ns, |(_, event)| event.at_ns);
            if self.carry(next_ns.min(event_ns)) {
                continue;
            }
            if let Some((index, event)) = events.next_if(|(_, event)| event.at_ns <= next_ns) {
                self.now_ns = event.at_ns;
                self.generate(index, event);
                continue;
            }
            let Some(Reverse((at_ns, _, what))) = self.agenda.pop() else { break };
            if at_ns > end_ns {
                break;
            }
            self.now_ns = at_ns;
            match what {
                What::ToController => {
                    let input = self.inputs.pop_front();
                    input.into_iter().for_each(|input| self.control(input));
                }
                What::ToSource => {
                    let message = self.outputs.pop_front();
                    message.into_iter().for_each(|message| self.obey(&message));
                }
                What::Wake(id, number) => self.wake(id, number),
                What::Renew(source) => self.renew(source),
                What::Capacity(index) => {
                    let (_, link, capacity_bps) = self.setup.capacities[index];
                    self.control(Input::Capacity { link, capacity_bps });
                }
                What::Timeout => {
                    if self.timeout_ns.is_some_and(|due_ns| due_ns <= self.now_ns) {
                        self.timeout_ns = None;
                        self.control(Input::Timeout);
                    }
                }
            }
        }
    }

    /// Lets packets go on until this time; returns whether a source noticed something before it.
    fn carry(&mut self, until_ns: u64) -> bool {
        let Some(carried) = &mut self.carried else { return false };
        carried.network.run(until_ns);
        let notices = carried.network.take_notices();
        let now_ns = carried.network.now_ns();
        for notice in &notices {
            let (event, bytes) = match *notice {
                Notice::Arrived { event, bytes } => (event, bytes),
                Notice::Begun { event } => {
                    self.outcome.ends[event].begin(now_ns);
                    continue;
                }
                // The rest of an event that failed is not sent: it never ends.
                Notice::Failed { .. } => continue,
            };
            let (left, end) = (&mut self.left_bytes[event], &mut self.outcome.ends[event]);
            let all = self.trace[event].bytes();
            let frames = |left: u64| (all - left) / FRAME_BYTES;
            let before = frames(*left);
            *left -= bytes;
            end.frames_ns.extend((before..frames(*left)).map(|_| now_ns));
            end.done_ns = (*left == 0).then_some(now_ns);
        }
        !notices.is_empty()
    }

    /// Posts the chunks of a transfer that have begun.
    fn post_begun(&mut self, id: TransferId) {
        let (Some(carried), Some(sending)) = (&mut self.carried, self.sendings.get_mut(&id)) else {
            return;
        };
        let begun = sending.take_begun(self.now_ns, self.setup.config.chunk_bytes);
        for (bytes, rate_bps) in begun {
            carried.network.post(id.device.0, sending.event, bytes, Some(rate_bps));
        }
    }

    fn generate(&mut self, index: usize, event: &Event) {
        if let Some(Carried { network, controlled: false }) = &mut self.carried {
            return network.post(event.device, index, event.bytes(), None);
        }
        let device = self.devices.entry(event.device).or_default();
        device.backlog.push_back((index, event.bytes()));
        self.ask(event.device);
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
            let sending = Sending::new(transfer, event, bytes, self.now_ns);
            let by_packets = self.carried.is_some();
            let sending = if by_packets { sending.by_chunks() } else { sending };
            self.sendings.insert(transfer, sending);
            let age_ns = self.now_ns - self.trace[event].at_ns;
            self.tell(Input::Request { transfer, bytes, age_ns });
        }
    }

    /// Asks for the rates of a source's devices the first time, then renews them.
    fn renew(&mut self, source: SourceId) {
        let first = self.streams.ask(source);
        if first.is_empty() {
            self.outcome.count(1);
            self.send(Input::Renew { source });
        } else {
            self.outcome.count(first.len());
            first.into_iter().for_each(|input| self.send(input));
        }
        self.plan(self.now_ns + super::stream::RENEW_NS, What::Renew(source));
    }

    fn tell(&mut self, input: Input) {
        self.outcome.count(1);
        self.send(input);
    }

    fn send(&mut self, input: Input) {
        self.inputs.push_back(input);
        self.plan(self.now_ns + self.setup.source.delay_ns, What::ToController);
    }

    fn control(&mut self, input: Input) {
        let mut rates = Vec::new();
        self.controller.handle(self.now_ns, input);
        loop {
            let message = match self.controller.poll() {
                Output::Grant { transfer, grant } => Message::Grant(transfer, grant),
                Output::Pause { transfer, revision } => {
                    self.outcome.pauses += 1;
                    Message::Pause(transfer, revision)
                }
                Output::Missed { transfer, .. } => {
                    self.outcome.count(1);
                    if let Some(event) = self.events.get(&transfer) {
                        self.outcome.ends[*event].told = true;
                    }
                    continue;
                }
                Output::Rate { device, rate_bps, until_ns } => {
                    rates.push((device, rate_bps, until_ns));
                    continue;
                }
                Output::Renewed { source, until_ns, .. } => Message::Renewed(source, until_ns),
                // Its sources report no losses.
                Output::Working { .. } => continue,
                Output::Refused { subject, reason } => panic!("{subject:?}: {reason:?}"),
                Output::Timeout(due_ns) => {
                    self.set_timeout(due_ns);
                    break;
                }
            };
            self.outcome.count(1);
            self.answer(message);
        }
        if !rates.is_empty() {
            self.outcome.count(rates.len());
            self.answer(Message::Rates(rates));
        }
    }

    fn answer(&mut self, message: Message) {
        self.outputs.push_back(message);
        self.plan(self.now_ns + self.setup.source.delay_ns, What::ToSource);
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
        let (now_ns, host_ns) = (self.now_ns, self.setup.source.host_ns);
        let chunk_bytes = self.setup.config.chunk_bytes;
        let id = match message {
            Message::Grant(id, _) | Message::Pause(id, _) => *id,
            Message::Rates(rates) => {
                let over = rates.iter().filter_map(|rate| self.streams.lease(now_ns, *rate));
                return self.stretches.extend(over);
            }
            Message::Renewed(source, until_ns) => {
                return self.streams.renewed(*source, now_ns, *until_ns);
            }
        };
        let Some(sending) = self.sendings.get_mut(&id) else { return };
        sending.advance(now_ns, FRAME_BYTES);
        match message {
            Message::Grant(_, grant) => sending.grant(now_ns, grant, host_ns, chunk_bytes),
            Message::Pause(_, revision) => sending.pause(now_ns, *revision, chunk_bytes),
            Message::Rates(_) | Message::Renewed(..) => {}
        }
        self.post_begun(id);
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
        self.post_begun(id);
        let Some(sending) = self.sendings.get_mut(&id) else { return };
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
        if self.carried.is_none() {
            let left = &mut self.left_bytes[sending.event];
            *left -= sending.bytes;
            if *left == 0 {
                self.outcome.ends[sending.event].done_ns = Some(self.now_ns);
            }
        }
        if let Some(device) = self.devices.get_mut(&id.device.0) {
            device.in_flight -= 1;
        }
        self.ask(id.device.0);
    }

    fn record(&mut self, sending: &Sending) {
        if self.carried.is_none() {
            let end = &mut self.outcome.ends[sending.event];
            end.frames_ns.extend(&sending.frames_ns);
            sending.stretches.first().into_iter().for_each(|first| end.begin(first.from_ns));
        }
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
        let (stretches, covered) = self.streams.finish(self.setup.horizon_ns);
        self.stretches.extend(stretches);
        self.outcome.streams = covered;
        for (link, config) in (0..).zip(&self.setup.config.links) {
            let rates = self.rates(link);
            self.outcome.over_capacity_bits += excess_bits(&rates, config.capacity_bps);
            self.outcome.rates.push(rates);
        }
        self.outcome.packets = self.carried.map(|carried| carried.network.finish());
        self.outcome
    }

    /// Returns the rate at which sources send over a link, from each time on at which it changes.
    fn rates(&self, link: u16) -> Vec<(u64, u64)> {
        let last = self.setup.devices.iter().map(|(id, _)| id.0 as usize).max().unwrap_or(0);
        let mut users = vec![false; last + 1];
        for (id, spec) in &self.setup.devices {
            let path = &self.setup.config.paths[usize::from(spec.path.0)];
            users[id.0 as usize] = path.iter().any(|one| one.0 == link);
        }
        let mut steps: Vec<(u64, i64)> = Vec::new();
        let of_link = |(device, _): &&(u32, Stretch)| users[*device as usize];
        for (_, stretch) in self.stretches.iter().filter(of_link) {
            let rate = i64::try_from(stretch.rate_bps).unwrap_or(i64::MAX);
            steps.extend([(stretch.from_ns, rate), (stretch.until_ns, -rate)]);
        }
        steps.sort_unstable();
        let (mut rates, mut sum): (Vec<(u64, u64)>, i64) = (Vec::new(), 0);
        for (at_ns, change) in steps {
            sum += change;
            let now = (at_ns, u64::try_from(sum).unwrap_or_default());
            match rates.last_mut() {
                Some(last) if last.0 == at_ns => *last = now,
                _ => rates.push(now),
            }
        }
        rates
    }
}

/// Returns the bits by which sources sent more than a link carries.
fn excess_bits(rates: &[(u64, u64)], capacity_bps: u64) -> f64 {
    let over = |pair: &[(u64, u64)]| {
        pair[0].1.saturating_sub(capacity_bps) as f64 * (pair[1].0 - pair[0].0) as f64 / 1e9
    };
    rates.windows(2).map(over).sum()
}
