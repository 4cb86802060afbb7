//! One session: drives the handshake's state machine, sets up the ring and its intake, tears them
//! down.
use super::device::Device;
use super::receive::{Intake, IntakeError, SharedProgress, StreamIntake};
use super::ring::Ring;
use super::state::{CollectorState, Registration};
use super::stream::Stream;
use super::vitals::{StreamProgress, Vitals};
use crate::observe::{SessionGuard, SessionSnapshot, SourceTotals};
use crate::providers::{Ends, describe};
use crate::session::collector_side::{
    CollectorEvent, CollectorSide, CollectorSideConfig, Ended, Input, Output,
};
use crate::session::io::{Accepted, Connection, RecvError, Slot};
use crate::session::message::{
    Connect, Goodbye, Hello, Message, SessionPath, SourceStats, StreamDelivered, StreamStart,
    Welcome,
};
use crate::session::refusal::{Refusal, RefusalCode};
use catchment_transfer::order::InOrder;
use catchment_transfer::{Receiver, ReceiverOptions};
use catchment_verbs::ModifyError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a session checks whether the last frames are delivered.
const LOOK_CLOSING: Duration = Duration::from_millis(2);
/// When a source may try again whose queue pair could not be reached.
const CONNECT_AGAIN_MS: u32 = 1_000;

/// Runs a session from its Hello to its end.
pub(super) async fn run(state: Arc<CollectorState>, accepted: Accepted) {
    let registration = state.register();
    let peer = accepted.connection.peer().to_string();
    let mut session = Session {
        machine: CollectorSide::new(Instant::now(), CollectorSideConfig::default()),
        connection: accepted.connection,
        slot: Some(accepted.slot),
        hello: None,
        setup: None,
        running: None,
        goodbye: None,
        looked_at: Instant::now(),
        registration,
        state,
    };
    session.machine_input(Input::Message(Message::Hello(accepted.hello)));
    let ended = Box::pin(session.drive()).await;
    if let Some(label) = refused_for(&ended) {
        session.state.metrics.session_refused(label);
    }
    if ended == Ended::Finished {
        tracing::info!(%peer, "session finished");
    } else {
        tracing::warn!(%peer, reason = %ended, "session ended");
    }
    if is_path_failure(&ended) {
        session.tell_where(&peer);
    }
    session.finish().await;
}

/// The label under which an end counts as a refusal; `None` for ends that blame nobody.
fn refused_for(ended: &Ended) -> Option<&'static str> {
    match ended {
        Ended::Withdrawn(refusal) | Ended::Misbehaved(refusal) => {
            let nobodys_fault = [RefusalCode::Superseded, RefusalCode::ShuttingDown];
            (!nobodys_fault.contains(&refusal.code)).then(|| refusal.code.label())
        }
        Ended::HandshakeTimeout { .. } => Some(RefusalCode::Timeout.label()),
        ended if is_path_failure(ended) => Some(RefusalCode::PathFailed.label()),
        Ended::Finished
        | Ended::Refused(_)
        | Ended::Revoked(_)
        | Ended::LeaseExpired { .. }
        | Ended::Disconnected { .. } => None,
    }
}

/// Whether the source says that packets do not pass.
fn is_path_failure(ended: &Ended) -> bool {
    let told = ended.told();
    told.is_some_and(|refusal| refusal.code == RefusalCode::PathFailed)
}

struct Session {
    state: Arc<CollectorState>,
    machine: CollectorSide,
    connection: Connection,
    /// Place among the unfinished handshakes, until Ready.
    slot: Option<Slot>,
    hello: Option<Hello>,
    setup: Option<Setup>,
    running: Option<Running>,
    goodbye: Option<Goodbye>,
    looked_at: Instant,
    registration: Registration,
}

/// What Welcome promised.
struct Setup {
    epoch: u32,
    path: SessionPath,
    reason: String,
    ring: Ring,
    receiver: Receiver,
    devices: Vec<Arc<Device>>,
}

/// What Ready set going.
struct Running {
    vitals: Arc<Vitals>,
    intake: Option<Intake>,
    progress: Vec<StreamProgress>,
    _open: SessionGuard,
}

impl Session {
    async fn drive(&mut self) -> Ended {
        loop {
            let mut broken = false;
            let deadline = loop {
                match self.machine.poll() {
                    Output::Transmit(message) => {
                        broken |= self.connection.send(&message).await.is_err();
                    }
                    Output::Event(CollectorEvent::Ended(ended)) => return ended,
                    Output::Event(event) => self.on_event(event).await,
                    Output::Timeout(deadline) => break deadline,
                }
            };
            if broken {
                self.machine_input(Input::Disconnected);
                continue;
            }
            self.wait(deadline).await;
        }
    }

    /// Waits for the next thing to happen and gives it to the machine.
    async fn wait(&mut self, deadline: Option<Instant>) {
        // From the last look on: messages that keep coming do not put it off.
        let look_at = self.goodbye.as_ref().map(|_| self.looked_at + LOOK_CLOSING);
        if look_at.is_some_and(|at| at <= Instant::now()) {
            return self.look();
        }
        let until = deadline.into_iter().chain(look_at).min();
        let (intake, vitals) = match &mut self.running {
            Some(running) => (running.intake.as_mut(), Some(&*running.vitals)),
            None => (None, None),
        };
        // A message that is there counts before a deadline: this process may have been stopped.
        tokio::select! {
            biased;
            refusal = self.registration.told_to_end() => self.machine.refuse(refusal),
            refusal = evicted(self.slot.as_ref()) => self.machine.refuse(refusal),
            error = misbehaviour(intake) => {
                self.machine.refuse(misbehaved(&error));
            }
            () = attention(vitals) => self.look(),
            message = self.connection.recv() => match message {
                Ok(message) => self.machine_input(Input::Message(message)),
                Err(RecvError::Decode(error)) => self.machine.refuse(error.refusal()),
                Err(error) => {
                    tracing::debug!(%error, "control connection lost");
                    self.machine_input(Input::Disconnected);
                }
            },
            () = passed(until) => self.machine_input(Input::Timeout),
        }
    }

    fn look(&mut self) {
        self.looked_at = Instant::now();
        let Some(running) = &mut self.running else {
            return;
        };
        if running.vitals.is_broken() {
            self.machine_input(Input::Disconnected);
        } else if let Some(refusal) = running.gap(self.state.lease) {
            self.machine.refuse(refusal);
        } else if let Some(delivered) = self.delivered()
            && let Err(error) = self.machine.goodbye_ack(delivered)
        {
            tracing::error!(%error, "fault of this program");
        }
    }

    fn machine_input(&mut self, input: Input) {
        self.machine.handle(Instant::now(), input);
    }

    async fn on_event(&mut self, event: CollectorEvent) {
        let result = match event {
            CollectorEvent::Hello(hello) => self.on_hello(hello).await,
            CollectorEvent::Connect(connect) => self.on_connect(connect).await,
            CollectorEvent::Stats(stats) => {
                self.on_stats(&stats);
                Ok(())
            }
            CollectorEvent::Goodbye(goodbye) => {
                self.goodbye = Some(goodbye);
                Ok(())
            }
            CollectorEvent::Ended(_) => Ok(()),
        };
        if let Err(refusal) = result {
            self.machine.refuse(refusal);
        }
    }

    async fn on_hello(&mut self, hello: Hello) -> Result<(), Refusal> {
        let ends = Ends {
            local: self.connection.local_ip(),
            peer: self.connection.peer().ip(),
        };
        let chosen = self.state.choose_path(&hello, &hello.failed, ends)?;
        self.state.claim(&self.registration, &hello).await?;
        let devices = self.state.open_devices(&hello).await?;
        let epoch = self.state.new_epoch()?;
        let (choice, ring) = self.state.make_ring(chosen, &hello, ends).await?;
        let options = ReceiverOptions {
            crc_decides: ring.needs_checksum,
        };
        let receiver = Receiver::new(ring.mr.clone(), ring.layout, u64::from(epoch), options)
            .map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string(), "report this"))?;
        let welcome = Welcome {
            protocol: hello
                .protocol
                .common(crate::session::message::ProtocolRange::OURS)
                .unwrap_or(crate::session::message::PROTOCOL_VERSION),
            epoch,
            path: choice.path.clone(),
            reason: choice.reason.clone(),
            ring: ring.describe(),
            endpoint: ring.endpoint(),
            lease_ms: self.state.lease_ms(),
            streams: CollectorState::grants(&hello, &devices),
        };
        self.setup = Some(Setup {
            epoch,
            path: choice.path,
            reason: choice.reason,
            ring,
            receiver,
            devices,
        });
        self.hello = Some(hello);
        self.machine
            .welcome(Instant::now(), welcome)
            .map_err(|e| fault(&e))?;
        if let Some(slot) = &self.slot {
            slot.peer_turn(Instant::now());
        }
        Ok(())
    }

    async fn on_connect(&mut self, connect: Connect) -> Result<(), Refusal> {
        let setup = self
            .setup
            .take()
            .ok_or_else(|| fault(&"no ring at Connect"))?;
        if let Some(slot) = &self.slot {
            slot.our_turn();
        }
        let mut ring = setup.ring;
        let ends = (connect.endpoint, ring.endpoint());
        let queues = Some(ring.queues());
        let endpoint = setup.path.agreed(connect.endpoint);
        let (ring, connected) = tokio::task::spawn_blocking(move || {
            let connected = ring.connect(endpoint);
            (ring, connected)
        })
        .await
        .map_err(|e| fault(&e))?;
        connected.map_err(|e| not_reached(&setup.path, &e))?;
        let room = setup.receiver.layout().blocks() as usize / setup.devices.len().max(1);
        let (intakes, progress) = self.open_streams(&setup.devices, &connect.streams, room)?;
        let vitals = Vitals::new(ring, &progress);
        self.state.watch(&self.registration, &vitals);
        let intake = self.state.receive.add(setup.receiver, intakes);
        setup
            .devices
            .iter()
            .for_each(|device| device.metrics().set_connected(true));
        let peer = self.connection.peer();
        let session = SessionSnapshot {
            peer: peer.to_string(),
            devices: setup.devices.len() as u64,
            queues,
            ..describe(&setup.path, ends, &setup.reason)
        };
        tracing::info!(%peer, epoch = setup.epoch, devices = session.devices, path = %session,
            reason = %setup.reason, "session ready");
        self.running = Some(Running {
            vitals,
            intake: Some(intake),
            progress,
            _open: self.state.metrics.session_opened(session),
        });
        self.slot = None;
        self.machine.ready(Instant::now()).map_err(|e| fault(&e))
    }

    /// Opens the streams, each from where the source says that it begins. Numbers between what the
    /// collector has and that are lost.
    fn open_streams(
        &self,
        devices: &[Arc<Device>],
        starts: &[StreamStart],
        blocks: usize,
    ) -> Result<(Vec<StreamIntake>, Vec<StreamProgress>), Refusal> {
        let mut first_packets = vec![0; devices.len()];
        for start in starts {
            if let Some(first) = first_packets.get_mut(start.stream as usize) {
                *first = start.first_packet;
            }
        }
        let open = |(device, first): (&Arc<Device>, u64)| {
            let sink = device.lend_sink().ok_or_else(|| sink_in_use(device))?;
            let lost = device
                .next_packet()
                .map_or(0, |next| first.saturating_sub(next));
            device.metrics().frames_lost(lost);
            let inlet = Stream::open(sink, self.state.staging.clone(), blocks);
            let order = SharedProgress::new(first);
            let progress = StreamProgress::new(inlet.stream().clone(), order.clone(), lost);
            let intake = StreamIntake {
                order: InOrder::new(first),
                inlet,
                progress: order,
            };
            Ok((intake, progress))
        };
        devices.iter().zip(first_packets).map(open).collect()
    }

    fn on_stats(&self, stats: &SourceStats) {
        let (Some(running), Some(hello)) = (&self.running, &self.hello) else {
            return;
        };
        for report in &stats.streams {
            let Some(progress) = running.progress.get(report.stream as usize) else {
                continue;
            };
            let totals = SourceTotals {
                frames_sent: report.sent_frames,
                dropped_oldest: report.dropped_oldest,
                dropped_newest: report.dropped_newest,
            };
            progress
                .stream
                .device()
                .metrics()
                .source_reported(hello.instance, totals);
        }
    }

    /// Says where packets get lost, as far as this side can see.
    fn tell_where(&self, peer: &str) {
        let Some(running) = &self.running else {
            return;
        };
        if running.vitals.was_reached() {
            tracing::warn!(%peer, "packets from the source arrive, but the return path is blocked or has a smaller MTU");
        } else {
            tracing::warn!(%peer, "no packet from the source arrived: the path from it to this collector is blocked");
        }
    }

    /// How far every stream is, once all that Goodbye announced is with the sinks.
    fn delivered(&self) -> Option<Vec<StreamDelivered>> {
        let (running, goodbye) = (self.running.as_ref()?, self.goodbye.as_ref()?);
        goodbye
            .streams
            .iter()
            .map(|end| {
                let progress = running.progress.get(end.stream as usize)?;
                let next_packet = progress.delivered_to(end.end_packet)?;
                Some(StreamDelivered {
                    stream: end.stream,
                    next_packet,
                    frames: progress.stream.delivered(),
                    lost: progress.lost,
                })
            })
            .collect()
    }

    /// Takes what is still in the ring, waits until it is with the sinks, frees the devices. The
    /// connection is closed at once, so that the source reads why and can come back.
    async fn finish(mut self) {
        self.slot = None;
        tokio::spawn(self.connection.close());
        if let Some(running) = &mut self.running {
            if let Some(intake) = running.intake.take()
                && let Err(error) = intake.end().await
            {
                tracing::warn!(%error, "the source misbehaved; its session ended");
            }
            for progress in &running.progress {
                // Sinks ring nobody when they are done.
                while !progress.stream.retire() {
                    tokio::time::sleep(LOOK_CLOSING).await;
                }
                progress.stream.device().metrics().set_connected(false);
            }
        }
        self.registration.release();
    }
}

impl Running {
    fn gap(&mut self, limit: Duration) -> Option<Refusal> {
        let now = Instant::now();
        self.progress.iter_mut().find_map(|progress| {
            let number = progress.gap(now, limit)?;
            let device = progress.stream.device().name();
            let reason = format!("packet {number} of device {device} did not come, later ones did");
            let remedy = "use a source that follows docs/spec/block.md";
            Some(Refusal::new(RefusalCode::BadMessage, reason, remedy))
        })
    }
}

/// Returns when the place among the unfinished handshakes is lost.
async fn evicted(slot: Option<&Slot>) -> Refusal {
    match slot {
        Some(slot) => slot.evicted().await,
        None => std::future::pending().await,
    }
}

/// Returns what the source did wrong, once it did.
async fn misbehaviour(intake: Option<&mut Intake>) -> IntakeError {
    if let Some(intake) = intake
        && let Err(error) = intake.ended().await
    {
        return error;
    }
    std::future::pending().await
}

/// Returns when a check of the session has found something.
async fn attention(vitals: Option<&Vitals>) {
    match vitals {
        Some(vitals) => vitals.attention().await,
        None => std::future::pending().await,
    }
}

/// Returns when this time has passed; never without one.
async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

/// The queue pair could not be made ready for the source's.
fn not_reached(path: &SessionPath, error: &ModifyError) -> Refusal {
    let remedy = "check that source and collector can reach each other over this provider";
    if path.is_network() {
        return Refusal::new(RefusalCode::PathFailed, error.to_string(), remedy);
    }
    // The source may just have been too slow to answer.
    Refusal::new(RefusalCode::NoPath, error.to_string(), remedy).retry_after_ms(CONNECT_AGAIN_MS)
}

/// The session that had the device before has not given its sink back.
fn sink_in_use(device: &Device) -> Refusal {
    let reason = format!("the sink of device {} is still in use", device.name());
    let remedy = "wait; the source retries automatically";
    Refusal::new(RefusalCode::Busy, reason, remedy).retry_after_ms(CONNECT_AGAIN_MS)
}

fn misbehaved(error: &IntakeError) -> Refusal {
    let remedy = "use a source that follows docs/spec/block.md";
    Refusal::new(RefusalCode::BadMessage, error.to_string(), remedy)
}

fn fault(what: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        RefusalCode::Internal,
        what.to_string(),
        "report this with the collector's log",
    )
}
