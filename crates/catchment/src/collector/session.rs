//! One session: sets up the ring and its intake as the handshake goes on, and tears them down.
use super::device::Device;
use super::devices::{Admitted, Asked};
use super::receive::{Intake, IntakeError, SharedProgress, StreamIntake};
use super::refusals::{
    damaged, fault, is_path_failure, lost_page, misbehaved, not_opened, not_reached, refused_for,
    sink_in_use,
};
use super::ring::Ring;
use super::state::{Chosen, CollectorState, Registration};
use super::stream::Stream;
use super::vitals::{StreamProgress, Vitals};
use crate::observe::{SessionGuard, SessionSnapshot, SourceTotals};
use crate::providers::{Ends, describe};
use crate::session::check::WHY_CHARS_MAX;
use crate::session::collector_side::{
    CollectorEvent, CollectorSide, CollectorSideConfig, Ended, Input, Misuse, Side as _,
};
use crate::session::identity::Nonce;
use crate::session::io::{Accepted, Connection, Handler, Slot, drive};
use crate::session::message::{
    Connect, Goodbye, Hello, Message, PROTOCOL_VERSION, ProtocolRange, SessionPath, SourceStats,
    StreamDelivered, StreamStart, Welcome,
};
use crate::session::names::fit;
use crate::session::refusal::{Refusal, RefusalCode};
use catchment_transfer::order::InOrder;
use catchment_transfer::{Receiver, ReceiverOptions};
use catchment_verbs::provider::random;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How often a session checks whether the last frames are delivered.
const CHECK_CLOSING: Duration = Duration::from_millis(2);

/// Runs a session from its Hello to its end.
pub(super) async fn run(state: Arc<CollectorState>, accepted: Accepted) {
    let Accepted { mut connection, hello, slot } = accepted;
    let peer = connection.peer().to_string();
    let mut session = Session {
        registration: state.register(),
        state,
        ends: Ends::of(&connection),
        peer: peer.clone(),
        certificate: connection.certificate().map(str::to_owned),
        slot: Some(slot),
        asked: None,
        hello: None,
        setup: None,
        running: None,
        goodbye: None,
        checked_at: Instant::now(),
    };
    let mut side = CollectorSide::new(Instant::now(), CollectorSideConfig::default());
    side.handle(Instant::now(), Input::Message(Message::Hello(hello)));
    let ended = Box::pin(drive(&mut side, &mut connection, &mut session)).await;
    if let Some(label) = refused_for(&ended) {
        session.state.metrics.session_refused(label);
    }
    if ended == Ended::Finished {
        tracing::info!(%peer, "session finished");
    } else if session.hello.is_none() && ended.peer_is_gone() {
        // Of these a collector that stood still finds many, and anyone can make more.
        tracing::info!(%peer, reason = %ended, "attempt given up");
    } else {
        tracing::warn!(%peer, reason = %ended, "session ended");
    }
    if is_path_failure(&ended) {
        session.log_path_failure();
    }
    session.finish(connection).await;
}

struct Session {
    state: Arc<CollectorState>,
    registration: Registration,
    ends: Ends,
    peer: String,
    /// Name in the certificate of the source.
    certificate: Option<String>,
    /// Place among the unfinished handshakes, until Ready.
    slot: Option<Slot>,
    /// A Hello whose proof is awaited, and the path for it.
    asked: Option<(Hello, Chosen)>,
    hello: Option<Hello>,
    setup: Option<Setup>,
    running: Option<Running>,
    goodbye: Option<Goodbye>,
    checked_at: Instant,
}

/// Events of a session other than messages.
enum Wake {
    /// The session must end.
    End(Refusal),
    /// A check of all sessions has found something here.
    Check,
}

/// What Welcome granted.
struct Setup {
    epoch: u32,
    path: SessionPath,
    reason: String,
    ring: Ring,
    receiver: Receiver,
    devices: Asked,
}

/// What Ready started.
struct Running {
    vitals: Arc<Vitals>,
    intake: Option<Intake>,
    progress: Vec<StreamProgress>,
    /// Whether the source was told that sinks refuse frames.
    told_refusing: bool,
    /// Blocks are there as soon as their source has sent them.
    is_local: bool,
    _open: SessionGuard,
    _devices: Admitted,
}

impl Handler for Session {
    type Side = CollectorSide;
    type Wake = Wake;

    async fn on_event(
        &mut self,
        side: &mut CollectorSide,
        event: CollectorEvent,
    ) -> Result<(), Refusal> {
        match event {
            CollectorEvent::Hello(hello) => return self.on_hello(side, hello),
            CollectorEvent::Proven => return self.on_proven(side).await,
            CollectorEvent::Connect(connect) => return self.on_connect(side, connect).await,
            CollectorEvent::Stats(stats) => self.on_stats(&stats),
            CollectorEvent::Goodbye(goodbye) => self.goodbye = Some(goodbye),
        }
        Ok(())
    }

    async fn woken(&mut self) -> Wake {
        let (intake, vitals) = match &mut self.running {
            Some(running) => (running.intake.as_mut(), Some(&*running.vitals)),
            None => (None, None),
        };
        tokio::select! {
            biased;
            refusal = self.registration.end_requested() => Wake::End(refusal),
            refusal = evicted(self.slot.as_ref()) => Wake::End(refusal),
            error = misbehaviour(intake) => Wake::End(misbehaved(&error)),
            () = attention(vitals) => Wake::Check,
        }
    }

    fn on_wake(&mut self, side: &mut CollectorSide, wake: Wake) {
        match wake {
            Wake::End(refusal) => side.refuse(refusal),
            Wake::Check => self.check(side),
        }
    }

    fn heard(&mut self, side: &mut CollectorSide) {
        self.registration.heard();
        self.report_sinks(side);
    }

    /// Sinks send no notification when they have the last frames.
    fn check_between(&self) -> Option<Range<Instant>> {
        let at = self.checked_at + CHECK_CLOSING;
        self.goodbye.as_ref().map(|_| at..at)
    }

    fn check(&mut self, side: &mut CollectorSide) {
        self.checked_at = Instant::now();
        let Some(running) = &mut self.running else { return };
        if running.vitals.has_lost_a_page() {
            side.refuse(lost_page());
        } else if running.vitals.is_broken() {
            side.handle(Instant::now(), Input::Disconnected);
        } else if let Some(refusal) = running.damaged() {
            side.refuse(refusal);
        } else if let Some(refusal) = running.gap(&self.state, self.goodbye.as_ref()) {
            side.refuse(refusal);
        } else if let Some(delivered) = self.delivered()
            && let Err(error) = side.goodbye_ack(delivered)
        {
            tracing::error!(%error, "internal error");
        }
    }
}

impl Session {
    /// Asks for the proof that the Hello is not an old one before anything is done for it.
    fn on_hello(&mut self, side: &mut CollectorSide, hello: Hello) -> Result<(), Refusal> {
        let chosen = self.state.choose_path(&hello, &hello.failed, self.ends)?;
        self.asked = Some((hello, chosen));
        side.challenge(Instant::now(), Nonce::random().map_err(|e| fault(&e))?)
            .map_err(|e| fault(&e))?;
        if let Some(slot) = &self.slot {
            slot.peer_turn(Instant::now());
        }
        Ok(())
    }

    async fn on_proven(&mut self, side: &mut CollectorSide) -> Result<(), Refusal> {
        let ends = self.ends;
        let (hello, chosen) = self.asked.take().ok_or_else(|| fault(&"Proof without Hello"))?;
        // While it waits for devices of others, it may lose its place.
        tokio::select! {
            biased;
            claimed = self.state.claim(&self.registration, &hello) => claimed?,
            refusal = evicted(self.slot.as_ref()) => return Err(refusal),
        }
        if let Some(slot) = &self.slot {
            slot.our_turn();
        }
        let devices = self.state.look_up_devices(&hello, self.certificate.clone()).await?;
        // 0 is no session's.
        let epoch = random().map_err(|e| fault(&e))?.max(1);
        let (choice, ring) = self.state.make_ring(chosen, &hello, ends).await?;
        let options = ReceiverOptions { crc_decides: ring.needs_checksum };
        let receiver = Receiver::new(ring.mr.clone(), ring.layout, u64::from(epoch), options)
            .map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string(), "report this"))?;
        let welcome = Welcome {
            protocol: hello.protocol.common(ProtocolRange::OURS).unwrap_or(PROTOCOL_VERSION),
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
        side.welcome(Instant::now(), welcome).map_err(|e| fault(&e))?;
        if let Some(slot) = &self.slot {
            slot.peer_turn(Instant::now());
        }
        Ok(())
    }

    async fn on_connect(
        &mut self,
        side: &mut CollectorSide,
        connect: Connect,
    ) -> Result<(), Refusal> {
        let setup = self.setup.take().ok_or_else(|| fault(&"no ring at Connect"))?;
        if let Some(slot) = &self.slot {
            slot.our_turn();
        }
        let mut ring = setup.ring;
        let ends = (connect.endpoint, ring.endpoint());
        let queues = Some(ring.queues);
        let endpoint = setup.path.agreed(connect.endpoint);
        let (ring, connected) = tokio::task::spawn_blocking(move || {
            let connected = ring.connect(endpoint);
            (ring, connected)
        })
        .await
        .map_err(|e| fault(&e))?;
        connected.map_err(|e| not_reached(&setup.path, &e))?;
        let devices = self.state.devices.admit(setup.devices).map_err(|e| not_opened(&e))?;
        let room = setup.receiver.layout().blocks() as usize / devices.len().max(1);
        let attention = Arc::new(Notify::new());
        let (intakes, progress) =
            self.open_streams(&devices, &connect.streams, room, &attention)?;
        let vitals = Vitals::new(ring, &progress, attention);
        self.state.watch(&self.registration, &setup.path.collector, &vitals);
        let intake = self.state.receive.add(setup.receiver, intakes);
        devices.iter().for_each(|device| device.metrics.set_connected(true));
        let peer = &self.peer;
        self.state.in_clear.check(&setup.path, ends.1, ends.0);
        let session = SessionSnapshot {
            peer: peer.clone(),
            devices: devices.len() as u64,
            queues,
            ..describe(&setup.path, ends, &setup.reason)
        };
        tracing::info!(%peer, epoch = setup.epoch, devices = session.devices, path = %session,
            reason = %setup.reason, "session ready");
        self.running = Some(Running {
            vitals,
            intake: Some(intake),
            progress,
            told_refusing: false,
            is_local: !setup.path.is_network(),
            _open: self.state.metrics.session_opened(session),
            _devices: devices,
        });
        self.slot = None;
        side.ready(Instant::now()).map_err(|e| fault(&e))
    }

    /// Opens the streams, each from where the source says that it begins. Numbers between what the
    /// collector has and that are lost.
    fn open_streams(
        &self,
        devices: &Admitted,
        starts: &[StreamStart],
        blocks: usize,
        attention: &Arc<Notify>,
    ) -> Result<(Vec<StreamIntake>, Vec<StreamProgress>), Refusal> {
        let mut first_packets = vec![0; devices.len()];
        for start in starts {
            if let Some(first) = first_packets.get_mut(start.stream as usize) {
                *first = start.first_packet;
            }
        }
        let instance = self.hello.as_ref().map_or(0, |hello| hello.instance.number());
        let open = |(device, first): (&Arc<Device>, u64)| {
            let sink = device.lend_sink().ok_or_else(|| sink_in_use(device))?;
            let sink = sink.at_first(devices.binding(&device.name));
            device.begin(instance, first);
            let staging = self.state.staging.clone();
            let inlet = Stream::open(sink, staging, blocks, attention.clone());
            let order = SharedProgress::new(first, self.state.unsettled.clone());
            let progress = StreamProgress::new(inlet.stream().clone(), order.clone());
            let intake = StreamIntake { order: InOrder::new(first), inlet, progress: order };
            Ok((intake, progress))
        };
        devices.iter().zip(first_packets).map(open).collect()
    }

    fn on_stats(&self, stats: &SourceStats) {
        let (Some(running), Some(hello)) = (&self.running, &self.hello) else { return };
        for report in &stats.streams {
            let Some(progress) = running.progress.get(report.stream as usize) else { continue };
            let totals = SourceTotals {
                frames_sent: report.sent_frames,
                dropped_oldest: report.dropped_oldest,
                dropped_newest: report.dropped_newest,
                dropped_reconnect: report.dropped_reconnect,
            };
            progress.stream.device().metrics.source_reported(hello.instance.number(), totals);
        }
    }

    /// Tells the source when sinks begin to refuse its frames, and when none does any more.
    fn report_sinks(&mut self, side: &mut CollectorSide) {
        let Some(running) = &mut self.running else { return };
        let devices = running.progress.iter().map(|progress| progress.stream.device());
        let mut refusing = devices.filter(|device| device.metrics.is_sink_refusing());
        let Some(first) = refusing.next() else {
            if std::mem::take(&mut running.told_refusing) {
                log_misuse(side.sink_report(0, None));
            }
            return;
        };
        let count = u32::try_from(1 + refusing.count()).unwrap_or(u32::MAX);
        if !std::mem::replace(&mut running.told_refusing, true) {
            let why = first.metrics.sink_refusal();
            let reason = fit(&format!("device {}: {why}", first.name), WHY_CHARS_MAX);
            log_misuse(side.sink_report(count, Some(reason)));
        }
    }

    /// Logs where packets get lost, as far as this side can see.
    fn log_path_failure(&self) {
        let Some(running) = &self.running else { return };
        let peer = &self.peer;
        if running.vitals.was_reached() {
            tracing::warn!(%peer, "packets from the source arrive, but the return path is blocked or has a smaller MTU");
        } else {
            tracing::warn!(%peer, "no packet from the source arrived: the path from it to this collector is blocked");
        }
    }

    /// Returns how far every stream is, once everything that Goodbye announced is with the sinks.
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
                    lost: progress.stream.device().lost(),
                })
            })
            .collect()
    }

    /// Takes what is still in the ring, waits until it is with the sinks, and frees the devices. The
    /// connection is closed at once, so that the source reads the reason and can reconnect.
    async fn finish(mut self, connection: Connection) {
        self.slot = None;
        tokio::spawn(connection.close());
        if let Some(running) = &mut self.running {
            if let Some(intake) = running.intake.take()
                && let Err(error) = intake.end().await
            {
                tracing::warn!(%error, "the source misbehaved; its session ended");
            }
            for progress in &running.progress {
                // Sinks send no notification when they are done.
                while !progress.stream.retire() {
                    tokio::time::sleep(CHECK_CLOSING).await;
                }
                progress.stream.device().metrics.set_connected(false);
            }
        }
        // Devices without a frame are forgotten before another session may have their names.
        self.running = None;
        self.setup = None;
        self.registration.release();
    }
}

impl Running {
    /// Returns why the session must begin again, if a frame was damaged that the source may still have.
    fn damaged(&self) -> Option<Refusal> {
        self.progress.iter().find_map(|progress| {
            let number = progress.stream.asks_for()?;
            let device = &progress.stream.device().name;
            Some(damaged(&format!("packet {number} of device {device} has a wrong checksum")))
        })
    }

    fn gap(&mut self, state: &CollectorState, goodbye: Option<&Goodbye>) -> Option<Refusal> {
        let now = Instant::now();
        let goodbye = goodbye.filter(|_| self.is_local);
        self.progress.iter_mut().zip(0..).find_map(|(progress, number)| {
            let mut ends = goodbye.iter().flat_map(|goodbye| &goodbye.streams);
            let end = ends.find(|end| end.stream == number).map_or(0, |end| end.end_packet);
            let packet = progress.gap(now, state.gap_limit, state.lease, end)?;
            let device = progress.stream.device();
            let what = if end > packet { "although it was sent" } else { "later ones did" };
            let reason = format!("packet {packet} of device {} did not come, {what}", device.name);
            if device.may_ask_again(packet) {
                return Some(damaged(&reason));
            }
            let remedy = "use a source that follows docs/spec/block.md";
            Some(Refusal::new(RefusalCode::BadMessage, reason, remedy))
        })
    }
}

fn log_misuse(result: Result<(), Misuse>) {
    if let Err(error) = result {
        tracing::debug!(%error, "the source is not told about sinks");
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
