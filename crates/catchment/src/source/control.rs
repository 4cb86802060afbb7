//! The control thread of a source: finds the collector, keeps the session, finds it again.
use super::{
    SourceBuilder, SourceError,
    backlog::Waiting,
    link::{Link, LinkError, Prepared},
    shared::Shared,
};
use crate::{
    observe::{SessionSnapshot, cpu::usage_of_self},
    session::{
        backoff::Backoff,
        check::NUMBER_MAX,
        host::Host,
        io::{Address, ClientSecurity, ConnectError, Connection, RecvError},
        message::{
            DEVICES_MAX, Device, Hello, ProtocolRange, RingWish, StreamEnd, StreamStart, Welcome,
            WhyNot,
        },
        providers::{Ends, Offers, Providers},
        refusal::{Refusal, RefusalCode},
        source_side::{Ended, Input, Output, Retry, SourceEvent, SourceSide, SourceSideConfig},
        tls::client_config,
    },
};
use catchment_transfer::{RemoteRing, RetainedBlock, RingLayout};
use std::{
    collections::HashMap,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// A collector's time to take a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How often the control thread looks at the link.
const LOOK: Duration = Duration::from_millis(100);
/// How often it looks while the last frames go out.
const LOOK_CLOSING: Duration = Duration::from_millis(2);
/// How often it reports to the collector.
const REPORT: Duration = Duration::from_millis(500);
/// The least pause after a collector whose memory could not be reached: it may just have ended.
const UNREACHABLE: Duration = Duration::from_millis(250);

/// Starts the thread. The description has been checked.
pub(super) fn start(
    builder: &SourceBuilder,
    shared: Arc<Shared>,
) -> Result<JoinHandle<()>, SourceError> {
    let config = |error: &dyn std::fmt::Display| SourceError::Config(error.to_string());
    let tls = builder.tls.as_ref().map(client_config).transpose();
    let (blocks, block_bytes) = builder.wish();
    let control = Control {
        address: builder.collector.parse().map_err(|e| config(&e))?,
        security: ClientSecurity {
            tls: tls.map_err(|e| config(&e))?,
            insecure: builder.insecure,
        },
        instance: random().map_err(|e| config(&e))?,
        host: Host::read().map_err(|e| config(&e))?,
        providers: Providers::new(builder.providers.clone()),
        wish: RingWish {
            blocks,
            block_bytes,
        },
        in_place: builder.in_place,
        shared,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| config(&e))?;
    std::thread::Builder::new()
        .name("catchment-ctl".to_owned())
        .spawn(move || runtime.block_on(control.run()))
        .map_err(|e| config(&e))
}

fn random() -> Result<u64, rustix::io::Errno> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

struct Control {
    address: Address,
    security: ClientSecurity,
    /// Random number of this source process.
    instance: u64,
    host: Host,
    providers: Providers,
    wish: RingWish,
    in_place: bool,
    shared: Arc<Shared>,
}

/// How a try to have a session ended.
struct Attempt {
    /// Whether frames could be sent.
    was_ready: bool,
    /// For people.
    reason: String,
    retry: Result<Duration, SourceError>,
}

impl Attempt {
    /// Nothing that waiting would mend.
    fn failed(error: SourceError) -> Attempt {
        Attempt {
            was_ready: false,
            reason: error.to_string(),
            retry: Err(error),
        }
    }

    fn closed() -> Attempt {
        Attempt {
            was_ready: false,
            reason: "the source ends".to_owned(),
            retry: Err(SourceError::Closed),
        }
    }
}

impl Control {
    async fn run(self) {
        let backoff = Backoff::new(self.instance);
        let mut failures = 0;
        let mut said = None;
        while !self.shared.is_stopped() {
            let attempt = Box::pin(self.attempt()).await;
            if self.shared.is_finished() {
                return;
            }
            let retry_after = match attempt.retry {
                Ok(retry_after) => retry_after,
                Err(error) => return self.shared.end(error),
            };
            if attempt.was_ready {
                failures = 0;
                self.shared.metrics.reconnected();
                tracing::warn!(collector = %self.address, reason = attempt.reason, "session lost, looking for the collector again");
            } else {
                if said.as_ref() != Some(&attempt.reason) {
                    tracing::warn!(collector = %self.address, reason = attempt.reason, "no session yet, trying on");
                }
                said = Some(attempt.reason.clone());
            }
            self.shared.connect_failed(attempt.reason);
            let delay = backoff.delay(failures, retry_after);
            failures += 1;
            self.pause(delay).await;
        }
    }

    /// Sleeps, unless the source is stopped.
    async fn pause(&self, delay: Duration) {
        let until = tokio::time::Instant::now() + delay;
        while !self.shared.is_stopped() {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = self.shared.control.notified() => {}
            }
        }
    }

    async fn attempt(&self) -> Attempt {
        let connecting = Connection::connect(&self.address, &self.security, CONNECT_LIMIT);
        let connected = tokio::select! {
            connected = connecting => connected,
            () = self.stopped() => return Attempt::closed(),
        };
        let connection = match connected {
            Ok(connection) => connection,
            Err(error) => return self.not_connected(&error),
        };
        let offers = self.providers.for_source(Ends {
            local: connection.local_ip(),
            peer: connection.peer().ip(),
        });
        let hello = match self.hello(&offers) {
            Ok(hello) => hello,
            Err(error) => return Attempt::failed(error),
        };
        let side = SourceSide::new(Instant::now(), SourceSideConfig::default(), hello);
        let mut session = Session {
            control: self,
            connection,
            offers,
            side,
            prepared: None,
            link: None,
            was_ready: false,
            epoch: 0,
            said_goodbye: false,
            looked_at: Instant::now(),
            report_at: Instant::now(),
            unreachable: None,
            lost_because: None,
            status_reads: 0,
        };
        let ended = session.drive().await;
        let was_ready = session.was_ready;
        session.close_link();
        match session.unreachable {
            Some(reason) => Attempt {
                was_ready,
                reason,
                retry: Ok(UNREACHABLE),
            },
            None => self.after(&ended, was_ready, session.lost_because),
        }
    }

    /// Returns when the source shall end.
    async fn stopped(&self) {
        while !self.shared.is_stopped() {
            self.shared.control.notified().await;
        }
    }

    fn not_connected(&self, error: &ConnectError) -> Attempt {
        let reason = error.to_string();
        let retry = if error.is_transient() {
            Ok(Duration::ZERO)
        } else {
            Err(SourceError::Config(reason.clone()))
        };
        Attempt {
            was_ready: false,
            reason,
            retry,
        }
    }

    fn after(&self, ended: &Ended, was_ready: bool, lost_because: Option<String>) -> Attempt {
        let collector = self.address.to_string();
        let retry = match (ended.retry(), ended) {
            (Retry::After(delay), _) => Ok(delay),
            (Retry::Never, Ended::Refused(refusal) | Ended::Revoked(refusal)) => {
                Err(SourceError::Refused {
                    collector,
                    refusal: refusal.clone(),
                })
            }
            (Retry::Never, Ended::Misbehaved(refusal) | Ended::Withdrawn(refusal)) => {
                Err(SourceError::Incompatible {
                    collector,
                    refusal: refusal.clone(),
                })
            }
            (Retry::Never, _) => Err(SourceError::Closed),
        };
        let reason = match (ended, lost_because) {
            (Ended::Disconnected { .. }, Some(because)) => format!("{ended}: {because}"),
            _ => ended.to_string(),
        };
        Attempt {
            was_ready,
            reason,
            retry,
        }
    }

    /// What this source is.
    fn hello(&self, offers: &Offers) -> Result<Hello, SourceError> {
        let providers = offers.list();
        if providers.is_empty() {
            let whys: Vec<String> = offers.missing.iter().map(WhyNot::to_string).collect();
            let reason = format!("no provider can be used: {}", whys.join("; "));
            return Err(SourceError::Config(reason));
        }
        let device = |state: &Arc<super::shared::DeviceState>| Device {
            name: state.name.clone(),
            format: state.format.clone(),
            policy: state.policy,
            next_packet: state.next_packet(),
        };
        Ok(Hello {
            protocol: ProtocolRange::OURS,
            software: concat!("catchment ", env!("CARGO_PKG_VERSION")).to_owned(),
            instance: self.instance,
            host: self.host.clone(),
            devices: self.shared.devices.iter().map(device).collect(),
            providers,
            missing: offers.missing.clone(),
            failed: Vec::new(),
            wish: self.wish,
        })
    }
}

/// One connection.
struct Session<'a> {
    control: &'a Control,
    connection: Connection,
    /// What the collector can choose from.
    offers: Offers,
    side: SourceSide,
    prepared: Option<(Prepared, Welcome)>,
    link: Option<Arc<Link>>,
    was_ready: bool,
    /// Of the session, 0 before Welcome.
    epoch: u32,
    said_goodbye: bool,
    looked_at: Instant,
    report_at: Instant,
    /// Why the collector's memory could not be reached. Worth another try: it may have ended in
    /// this moment.
    unreachable: Option<String>,
    /// What the connection broke with: a certificate that is not accepted shows only here.
    lost_because: Option<String>,
    /// Looks at the collector's status bytes that were counted.
    status_reads: u64,
}

impl Session<'_> {
    async fn drive(&mut self) -> Ended {
        loop {
            let mut broken = false;
            let deadline = loop {
                match self.side.poll() {
                    Output::Transmit(message) => match self.connection.send(&message).await {
                        Ok(()) => {}
                        Err(error) => {
                            self.lost_because = Some(error.to_string());
                            broken = true;
                        }
                    },
                    Output::Event(SourceEvent::Ended(ended)) => return ended,
                    Output::Event(event) => self.on_event(event),
                    Output::Timeout(deadline) => break deadline,
                }
            };
            if broken {
                self.input(Input::Disconnected);
            } else {
                self.wait(deadline).await;
            }
        }
    }

    async fn wait(&mut self, deadline: Option<Instant>) {
        let shared = &self.control.shared;
        let look = if shared.is_closing() && self.link.is_some() {
            LOOK_CLOSING
        } else {
            LOOK
        };
        // From the last look on: messages that keep coming do not put it off.
        let look_at = self.looked_at + look;
        if look_at <= Instant::now() {
            return self.look();
        }
        let until = deadline.map_or(look_at, |d| d.min(look_at));
        // A message that is there counts before a deadline: this process may have been stopped.
        tokio::select! {
            biased;
            message = self.connection.recv() => match message {
                Ok(message) => self.input(Input::Message(message)),
                Err(RecvError::Decode(error)) => self.side.refuse(error.refusal()),
                Err(error) => self.lost(&error.to_string()),
            },
            () = shared.control.notified() => self.look(),
            () = tokio::time::sleep_until(until.into()) => self.input(Input::Timeout),
        }
    }

    fn input(&mut self, input: Input) {
        self.side.handle(Instant::now(), input);
    }

    fn on_event(&mut self, event: SourceEvent) {
        let result = match event {
            SourceEvent::Welcomed(welcome) => self.on_welcome(welcome),
            SourceEvent::Ready => self.on_ready(),
            SourceEvent::Delivered(_) => {
                self.control.shared.set_finished();
                Ok(())
            }
            SourceEvent::Ended(_) => Ok(()),
        };
        if let Err(refusal) = result {
            self.side.refuse(refusal);
        }
    }

    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), Refusal> {
        check_welcome(&welcome)?;
        self.epoch = welcome.epoch;
        // The state machine has checked that it was offered.
        let Some(context) = self.offers.context(&welcome.path) else {
            return Err(unusable(&"a provider that was not offered"));
        };
        let prepared = match Prepared::new(context) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.unreachable(&error)),
        };
        let devices = &self.control.shared.devices;
        let mut starts = Vec::with_capacity(devices.len());
        for grant in &welcome.streams {
            let device = devices.iter().find(|d| d.name == grant.device);
            if let Some(device) = device {
                device.resume(grant.stream, grant.next_packet);
                starts.push(StreamStart {
                    stream: grant.stream,
                    first_packet: device.first_packet(),
                });
            }
        }
        let connect = self
            .side
            .connect(Instant::now(), prepared.endpoint(), starts);
        self.prepared = Some((prepared, welcome));
        connect.map_err(|e| unusable(&e))
    }

    fn on_ready(&mut self) -> Result<(), Refusal> {
        let Some((prepared, welcome)) = self.prepared.take() else {
            return Err(unusable(&"Ready without a queue pair"));
        };
        let ring = RemoteRing {
            addr: welcome.ring.addr,
            rkey: welcome.ring.rkey,
            layout: layout_of(&welcome)?,
        };
        let numbers = welcome.streams.iter().map(|grant| grant.stream);
        let streams = numbers.max().unwrap_or(0) + 1;
        let epoch = u64::from(welcome.epoch);
        let ends = (prepared.endpoint(), welcome.endpoint);
        let connected = prepared.connect(
            welcome.path.agreed(welcome.endpoint),
            ring,
            epoch,
            streams,
            self.control.in_place,
        );
        let link = match connected {
            Ok(link) => link,
            Err(error) => return Err(self.unreachable(&error)),
        };
        let session = SessionSnapshot {
            peer: self.control.address.to_string(),
            devices: welcome.streams.len() as u64,
            ..welcome.path.describe(ends, &welcome.reason)
        };
        tracing::info!(collector = %self.control.address, path = %session,
            reason = %welcome.reason, in_place = link.sender().is_in_place(), "connected");
        self.control.shared.metrics.session_is(Some(session));
        self.was_ready = true;
        self.link = Some(link.clone());
        self.control.shared.set_link(Some(link));
        Ok(())
    }

    /// The connection broke.
    fn lost(&mut self, reason: &str) {
        self.lost_because = Some(reason.to_owned());
        self.input(Input::Disconnected);
    }

    /// Notes that another try may help, and gives what to tell the collector.
    fn unreachable(&mut self, error: &LinkError) -> Refusal {
        self.unreachable = Some(format!("the collector's memory cannot be reached: {error}"));
        let remedy = "nothing: the source tries again";
        Refusal::new(RefusalCode::NoResource, error.to_string(), remedy)
    }

    /// Looks whether the link lives, whether it is time to report, whether all is sent.
    fn look(&mut self) {
        self.looked_at = Instant::now();
        self.control.providers.look_at_devices();
        let shared = &self.control.shared;
        let Some(link) = &self.link else {
            if shared.is_stopped() {
                self.input(Input::Disconnected);
            }
            return;
        };
        // After Goodbye the collector may close its queue pair before its GoodbyeAck is read here;
        // if it dies instead, the control connection tells.
        let broken = !self.said_goodbye && link.sender().check().is_err();
        if shared.is_stopped() || broken {
            self.input(Input::Disconnected);
        } else if shared.is_closing() && !self.said_goodbye {
            self.try_goodbye();
        } else if Instant::now() >= self.report_at {
            self.report();
        }
    }

    fn report(&mut self) {
        self.report_at = Instant::now() + REPORT;
        self.count();
        let devices = &self.control.shared.devices;
        let stats: Vec<_> = devices.iter().map(|device| device.stats()).collect();
        let cpu_us = usage_of_self().map_or(0, |usage| (usage.cpu_s * 1e6) as u64);
        if let Err(error) = self.side.stats(cpu_us, &stats) {
            tracing::debug!(%error, "no report");
        }
    }

    /// Brings the counters up to date that are not worth an atomic for every block.
    fn count(&mut self) {
        let Some(link) = &self.link else { return };
        let shared = &self.control.shared;
        for device in &shared.devices {
            device.count_in_flight(link.outstanding(device.stream()));
        }
        let reads = link.sender().stats().status_reads;
        let before = std::mem::replace(&mut self.status_reads, reads);
        shared.metrics.status_reads(reads - before);
    }

    /// Says goodbye once nothing waits any more.
    fn try_goodbye(&mut self) {
        let shared = &self.control.shared;
        let Some(link) = &self.link else {
            return;
        };
        if shared.backlog_frames() > 0 {
            return;
        }
        // Nothing can be committed or staged from here on.
        link.gate.close();
        if let Err(error) = link.sender().progress() {
            tracing::debug!(%error, "the link broke before goodbye");
            return;
        }
        self.report();
        let end = |device: &Arc<super::shared::DeviceState>| StreamEnd {
            stream: device.stream(),
            end_packet: device.first_packet(),
        };
        let ends = self.control.shared.devices.iter().map(end).collect();
        self.said_goodbye = true;
        if let Err(error) = self.side.goodbye(ends) {
            tracing::debug!(%error, "no goodbye");
        }
    }

    /// Closes the link, and puts what the collector may not have back into the backlogs.
    fn close_link(&mut self) {
        self.count();
        let shared = &self.control.shared;
        let Some(link) = self.link.take() else {
            return;
        };
        link.gate.close();
        shared.set_link(None);
        shared.metrics.session_is(None);
        link.wake_all();
        let unreleased = if shared.is_finished() {
            Vec::new()
        } else {
            link.sender().unreleased()
        };
        let mut oldest = HashMap::new();
        for header in unreleased.iter().map(RetainedBlock::header) {
            let number = oldest.entry(header.stream).or_insert(u64::MAX);
            *number = header.packet_number.min(*number);
        }
        let mut devices = HashMap::new();
        for device in &shared.devices {
            device.count_in_flight(0);
            device.forget_kept_before(oldest.get(&device.stream()).copied());
            devices.insert(device.stream(), device);
        }
        for block in unreleased {
            let header = block.header();
            let whole = header.frame_bytes == u64::from(header.payload_bytes);
            if let (Some(device), true) = (devices.get(&header.stream), whole) {
                device.push(
                    header.packet_number,
                    Waiting {
                        skipped: header.skipped,
                        capture_time_ns: header.capture_time_ns,
                        counted: true,
                        bytes: block.payload().to_vec().into(),
                    },
                );
            }
        }
    }
}

/// What the session's checks leave to the engine: that this source can work with it.
fn check_welcome(welcome: &Welcome) -> Result<(), Refusal> {
    let layout = layout_of(welcome)?;
    let ring = &welcome.ring;
    if ring.addr.checked_add(layout.total_bytes() as u64).is_none() {
        return Err(unusable(&format!(
            "a ring of {} bytes at address {:#x} goes beyond the last address",
            layout.total_bytes(),
            ring.addr
        )));
    }
    for grant in &welcome.streams {
        if grant.stream as usize >= DEVICES_MAX {
            let what = format!("device {} has stream {}", grant.device, grant.stream);
            return Err(unusable(&format!(
                "{what}; 0 to {} are possible",
                DEVICES_MAX - 1
            )));
        }
        if grant.next_packet.is_some_and(|next| next >= NUMBER_MAX) {
            return Err(unusable(&format!(
                "device {} has no packet number left at the collector",
                grant.device
            )));
        }
    }
    Ok(())
}

fn layout_of(welcome: &Welcome) -> Result<RingLayout, Refusal> {
    let ring = &welcome.ring;
    let layout = RingLayout::new(ring.blocks, ring.block_bytes).map_err(|e| unusable(&e))?;
    if layout.hash() == ring.layout_hash {
        return Ok(layout);
    }
    Err(unusable(&format!(
        "layout hash {:#x} of the ring, this source computes {:#x}",
        ring.layout_hash,
        layout.hash()
    )))
}

fn unusable(what: &dyn std::fmt::Display) -> Refusal {
    let remedy = "use source and collector of the same version on the same host";
    Refusal::new(RefusalCode::BadRing, what.to_string(), remedy)
}
