//! One session: drives the handshake's state machine, sets up ring and receiving thread, tears
//! them down.
use super::{
    engine::{Engine, Registration},
    intake::{Intake, IntakeError, Lane, Seen},
    ring::Ring,
    stream::Stream,
};
use crate::{
    observe::{SessionGuard, SessionSnapshot, SourceTotals},
    session::{
        collector_side::{
            CollectorEvent, CollectorSide, CollectorSideConfig, Ended, Input, Output,
        },
        io::{Accepted, Connection, RecvError, Slot},
        message::{
            Connect, Goodbye, Hello, Message, SessionPath, SourceStats, StreamDelivered,
            StreamStart, Welcome,
        },
        providers::Ends,
        refusal::{Refusal, RefusalCode},
    },
};
use catchment_transfer::{Receiver, ReceiverOptions, order::InOrder};
use catchment_verbs::ModifyError;
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// How often a session looks at its queue pair and receiving thread.
const LOOK: Duration = Duration::from_millis(100);
/// How often it looks whether the last frames are delivered.
const LOOK_CLOSING: Duration = Duration::from_millis(2);
/// When a source may try again whose queue pair could not be reached.
const CONNECT_AGAIN_MS: u32 = 1_000;

/// Runs a session from its Hello to its end.
pub(super) async fn run(engine: Arc<Engine>, accepted: Accepted) {
    let registration = engine.register();
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
        engine,
    };
    session.machine_input(Input::Message(Message::Hello(accepted.hello)));
    let ended = Box::pin(session.drive()).await;
    if let Some(label) = refused_for(&ended) {
        session.engine.metrics.session_refused(label);
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
    engine: Arc<Engine>,
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
    streams: Vec<Arc<Stream>>,
}

/// What Ready set going.
struct Running {
    ring: Ring,
    intake: Option<Intake>,
    lanes: Vec<Progress>,
    _open: SessionGuard,
}

/// How far a stream is, as other threads see it.
struct Progress {
    stream: Arc<Stream>,
    seen: Arc<Seen>,
    lost: u64,
    /// Since when blocks wait for this packet number.
    waits_for: Option<(u64, Instant)>,
}

impl Progress {
    /// The packet number that did not come for longer than `limit`, although later ones did. No
    /// correct source leaves one out: the device would stand still for ever.
    fn gap(&mut self, now: Instant, limit: Duration) -> Option<u64> {
        let next = self.seen.next_packet.load(Ordering::Acquire);
        if self.seen.early.load(Ordering::Acquire) == 0 {
            self.waits_for = None;
            return None;
        }
        match self.waits_for {
            Some((number, since)) if number == next => (now - since > limit).then_some(next),
            _ => {
                self.waits_for = Some((next, now));
                None
            }
        }
    }
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
        let look = if self.goodbye.is_some() {
            LOOK_CLOSING
        } else {
            LOOK
        };
        // From the last look on: messages that keep coming do not put it off.
        let look_at = self.looked_at + look;
        if look_at <= Instant::now() {
            return self.look().await;
        }
        let until = deadline.map_or(look_at, |d| d.min(look_at));
        // A message that is there counts before a deadline: this process may have been stopped.
        tokio::select! {
            biased;
            refusal = self.registration.told_to_end() => self.machine.refuse(refusal),
            refusal = evicted(self.slot.as_ref()) => self.machine.refuse(refusal),
            message = self.connection.recv() => match message {
                Ok(message) => self.machine_input(Input::Message(message)),
                Err(RecvError::Decode(error)) => self.machine.refuse(error.refusal()),
                Err(error) => {
                    tracing::debug!(%error, "control connection lost");
                    self.machine_input(Input::Disconnected);
                }
            },
            () = tokio::time::sleep_until(until.into()) => self.machine_input(Input::Timeout),
        }
    }

    async fn look(&mut self) {
        self.looked_at = Instant::now();
        let Some(running) = &mut self.running else {
            return;
        };
        if running.intake.as_ref().is_some_and(Intake::has_ended) {
            let found = end_intake(running.intake.take()).await;
            if let Err(error) = found {
                self.machine.refuse(misbehaved(&error));
            }
        } else if running.ring.is_broken() {
            self.machine_input(Input::Disconnected);
        } else if let Some(refusal) = running.gap(self.engine.lease) {
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
        let chosen = self.engine.choose_path(&hello, &hello.failed, ends)?;
        self.engine.claim(&self.registration, &hello).await?;
        let devices = self.engine.open_devices(&hello).await?;
        let epoch = self.engine.new_epoch()?;
        let (choice, ring) = self.engine.make_ring(chosen, &hello, ends).await?;
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
            lease_ms: self.engine.lease_ms(),
            streams: Engine::grants(&hello, &devices),
        };
        self.setup = Some(Setup {
            epoch,
            path: choice.path,
            reason: choice.reason,
            ring,
            receiver,
            streams: devices
                .into_iter()
                .map(|d| Arc::new(Stream::new(d, self.engine.staging.clone())))
                .collect(),
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
        let lanes = lanes(&setup.streams, &connect.streams);
        let numbers = lanes
            .iter()
            .map(|lane| Progress {
                stream: lane.stream.clone(),
                seen: lane.seen.clone(),
                lost: lane.lost,
                waits_for: None,
            })
            .collect();
        let (queue, look_every) = (self.engine.queue.clone(), self.engine.look_every);
        let intake = Intake::start(setup.receiver, lanes, queue, look_every)
            .map_err(|e| Refusal::new(RefusalCode::NoResource, e.to_string(), "try again"))?;
        setup
            .streams
            .iter()
            .for_each(|s| s.device().metrics().set_connected(true));
        let peer = self.connection.peer();
        let session = SessionSnapshot {
            peer: peer.to_string(),
            devices: setup.streams.len() as u64,
            queues,
            ..setup.path.describe(ends, &setup.reason)
        };
        tracing::info!(%peer, epoch = setup.epoch, devices = session.devices, path = %session,
            reason = %setup.reason, "session ready");
        self.running = Some(Running {
            ring,
            intake: Some(intake),
            lanes: numbers,
            _open: self.engine.metrics.session_opened(session),
        });
        self.slot = None;
        self.machine.ready(Instant::now()).map_err(|e| fault(&e))
    }

    fn on_stats(&self, stats: &SourceStats) {
        let (Some(running), Some(hello)) = (&self.running, &self.hello) else {
            return;
        };
        for report in &stats.streams {
            let Some(lane) = running.lanes.get(report.stream as usize) else {
                continue;
            };
            let totals = SourceTotals {
                frames_sent: report.sent_frames,
                dropped_oldest: report.dropped_oldest,
                dropped_newest: report.dropped_newest,
            };
            lane.stream
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
        if running.ring.was_reached() {
            tracing::warn!(%peer, "the source's packets arrive here: the way from here back to it is closed, or takes smaller packets only");
        } else {
            tracing::warn!(%peer, "none of the source's packets arrived here: the way from it to here is closed");
        }
    }

    /// How far every stream is, once all that Goodbye announced is with the sinks.
    fn delivered(&self) -> Option<Vec<StreamDelivered>> {
        let (running, goodbye) = (self.running.as_ref()?, self.goodbye.as_ref()?);
        goodbye
            .streams
            .iter()
            .map(|end| {
                let lane = running.lanes.get(end.stream as usize)?;
                let next_packet = lane.seen.next_packet.load(Ordering::Acquire);
                let done = next_packet >= end.end_packet && lane.stream.is_idle();
                done.then_some(StreamDelivered {
                    stream: end.stream,
                    next_packet,
                    frames: lane.stream.delivered(),
                    lost: lane.lost,
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
            if let Err(error) = end_intake(running.intake.take()).await {
                tracing::warn!(%error, "the source misbehaved; its session ended");
            }
            for lane in &running.lanes {
                while !lane.stream.is_idle() {
                    tokio::time::sleep(LOOK_CLOSING).await;
                }
            }
            running
                .lanes
                .iter()
                .for_each(|lane| lane.stream.device().metrics().set_connected(false));
        }
        self.registration.release();
    }
}

impl Running {
    fn gap(&mut self, limit: Duration) -> Option<Refusal> {
        let now = Instant::now();
        self.lanes.iter_mut().find_map(|lane| {
            let number = lane.gap(now, limit)?;
            let device = lane.stream.device().name();
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

async fn end_intake(intake: Option<Intake>) -> Result<(), IntakeError> {
    let Some(intake) = intake else {
        return Ok(());
    };
    let ended = tokio::task::spawn_blocking(move || intake.end()).await;
    ended.unwrap_or(Ok(()))
}

/// The order of every stream, from where the source says it begins. Numbers between what the
/// collector has and that are lost.
fn lanes(streams: &[Arc<Stream>], starts: &[StreamStart]) -> Vec<Lane> {
    let mut first_packets = vec![0; streams.len()];
    for start in starts {
        if let Some(first) = first_packets.get_mut(start.stream as usize) {
            *first = start.first_packet;
        }
    }
    let lane = |(stream, first): (&Arc<Stream>, u64)| {
        let next = stream.device().next_packet();
        let lost = next.map_or(0, |next| first.saturating_sub(next));
        stream.device().metrics().frames_lost(lost);
        Lane {
            lost,
            order: InOrder::new(first),
            stream: stream.clone(),
            seen: Seen::new(first),
        }
    };
    streams.iter().zip(first_packets).map(lane).collect()
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
