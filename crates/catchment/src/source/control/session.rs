//! One session of a source: from Hello to the end of its connection.
use super::{Control, Lesson, Setback};
use crate::observe::Unaccounted;
use crate::observe::cpu::cpu_time_of_self;
use crate::providers::Offers;
use crate::session::io::{Handler, Lost};
use crate::session::message::{
    GoodbyeAck, SessionPath, SinkReport, StreamEnd, StreamStart, StreamStats, Welcome,
};
use crate::session::refusal::{Refusal, RefusalCode};
use crate::session::source_side::{Ended, Input, Side as _, SourceEvent, SourceSide};
use crate::source::backlog::Waiting;
use crate::source::connecting::Connecting;
use crate::source::link::Link;
use crate::source::prepared::{LinkError, LinkOptions, Prepared};
use crate::source::shared::DeviceState;
use crate::source::welcome::{check_welcome, unusable};
use catchment_transfer::RetainedBlock;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the control thread checks the link.
const CHECK: Duration = Duration::from_millis(250);
/// How often it checks the link of an idle source, if nothing else wakes it.
const CHECK_IDLE: Duration = Duration::from_secs(2);
/// After this time without a change a source counts as idle: what it sent last has arrived, or the
/// device has given up.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// How often it checks while the last frames are sent.
const CHECK_CLOSING: Duration = Duration::from_millis(2);
/// How often it reports to the collector.
const REPORT: Duration = Duration::from_millis(500);
/// How often it reports although nothing has changed.
const REPORT_IDLE: Duration = Duration::from_secs(60);
/// Shortest pause after a collector whose memory could not be reached: it may just have ended.
const UNREACHABLE: Duration = Duration::from_millis(250);

/// One connection.
pub(super) struct Session<'a> {
    control: &'a Control,
    /// Offers to the collector.
    offers: Offers,
    /// Of the path to it.
    round_trip: Duration,
    prepared: Option<(Prepared, Welcome)>,
    connecting: Option<Connecting<Arc<Link>>>,
    link: Option<Arc<Link>>,
    /// Path of the Welcome.
    path: Option<SessionPath>,
    /// Whether frames could be sent.
    pub(super) was_ready: bool,
    said_goodbye: bool,
    checked_at: Instant,
    report_at: Instant,
    reported_at: Instant,
    /// When a check last found a changed counter.
    changed_at: Instant,
    /// The last report.
    reported: Vec<StreamStats>,
    setback: Option<Setback>,
    /// Why the connection broke: a rejected certificate shows only here.
    pub(super) lost: Option<Lost>,
    /// Reads of the collector's status bytes counted so far.
    status_reads: u64,
}

impl<'a> Session<'a> {
    pub(super) fn new(control: &'a Control, offers: Offers, round_trip: Duration) -> Self {
        let now = Instant::now();
        Session {
            control,
            offers,
            round_trip,
            prepared: None,
            connecting: None,
            link: None,
            path: None,
            was_ready: false,
            said_goodbye: false,
            checked_at: now,
            report_at: now,
            reported_at: now,
            changed_at: now,
            reported: Vec::new(),
            setback: None,
            lost: None,
            status_reads: 0,
        }
    }

    /// Returns why it did not come to be, if another attempt may.
    pub(super) fn setback(&mut self, ended: &Ended) -> Option<Setback> {
        match ended.peer_refusal() {
            Some(refusal) if refusal.code == RefusalCode::PathFailed => {
                self.failed(None, &refusal.reason)
            }
            None if matches!(ended, Ended::Withdrawn(_)) => self.setback.take(),
            Some(_) | None => None,
        }
    }

    /// Returns the setback of a path that does not let packets pass, or whose device failed.
    fn failed(&self, path_mtu: Option<u32>, reason: &str) -> Option<Setback> {
        let failed = self.path.as_ref()?.failed(path_mtu, reason);
        let (was_ready, reason) = (self.was_ready, failed.reason.clone());
        let lesson = Lesson::Failed(failed);
        Some(Setback { was_ready, lesson, ..Setback::new(reason) })
    }
}

/// Events of a session other than messages.
pub(super) enum Wake {
    /// The queue pair is connected, or cannot be.
    Connected(Result<Arc<Link>, LinkError>),
    /// Something about the source has changed.
    Notified,
}

impl Handler for Session<'_> {
    type Side = SourceSide;
    type Wake = Wake;

    async fn on_event(&mut self, side: &mut SourceSide, event: SourceEvent) -> Result<(), Refusal> {
        match event {
            SourceEvent::Welcomed(welcome) => return self.on_welcome(side, welcome),
            SourceEvent::Ready => return self.on_ready(),
            SourceEvent::Sink(report) => self.on_sink(&report),
            SourceEvent::Delivered(ack) => {
                self.control.shared.life.set_finished(self.settle_accounts(&ack));
            }
        }
        Ok(())
    }

    async fn woken(&mut self) -> Wake {
        tokio::select! {
            biased;
            connected = Connecting::done(&mut self.connecting) => Wake::Connected(connected),
            () = self.control.shared.life.control.notified() => Wake::Notified,
        }
    }

    fn on_wake(&mut self, side: &mut SourceSide, wake: Wake) {
        match wake {
            Wake::Connected(connected) => self.on_connected(side, connected),
            Wake::Notified => self.check(side),
        }
    }

    fn check_between(&self) -> Option<Range<Instant>> {
        let closing = self.control.shared.life.is_closing() && self.link.is_some();
        let idle = self.checked_at > self.changed_at + IDLE_AFTER;
        let (least, most) = match (closing, idle) {
            (true, _) => (CHECK_CLOSING, CHECK_CLOSING),
            (false, true) => (CHECK, CHECK_IDLE),
            (false, false) => (CHECK, CHECK),
        };
        Some(self.checked_at + least..self.checked_at + most)
    }

    /// Checks whether the link lives, whether it is time to report, whether all is sent.
    fn check(&mut self, side: &mut SourceSide) {
        self.checked_at = Instant::now();
        self.control.providers.take_events();
        let shared = &self.control.shared;
        let Some(link) = &self.link else {
            if shared.life.is_stopped() {
                side.handle(Instant::now(), Input::Disconnected);
            }
            return;
        };
        // After Goodbye the collector may close its queue pair before its GoodbyeAck is read here;
        // if it dies instead, the control connection breaks.
        let broken = !self.said_goodbye && link.sender.check().is_err();
        if shared.life.is_stopped() || broken {
            side.handle(Instant::now(), Input::Disconnected);
        } else if shared.life.is_closing() && !self.said_goodbye {
            self.try_goodbye(side);
        } else if Instant::now() >= self.report_at {
            self.report_changes(side);
        }
    }

    fn lost(&mut self, lost: Lost) {
        self.lost = Some(lost);
    }
}

impl Session<'_> {
    fn on_welcome(&mut self, side: &mut SourceSide, welcome: Welcome) -> Result<(), Refusal> {
        check_welcome(&welcome)?;
        self.path = Some(welcome.path.clone());
        // The state machine has checked that it was offered.
        let Some(context) = self.offers.context(&welcome.path) else {
            return Err(unusable(&"a provider that was not offered"));
        };
        let send_queue = self.control.wish.send_queue(self.round_trip, welcome.ring.blocks);
        let prepared = match Prepared::new(context, send_queue) {
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
        let connect = side.connect(Instant::now(), prepared.endpoint(), starts);
        self.prepared = Some((prepared, welcome));
        connect.map_err(|e| unusable(&e))
    }

    fn on_ready(&mut self) -> Result<(), Refusal> {
        let Some((prepared, welcome)) = self.prepared.take() else {
            return Err(unusable(&"Ready without a queue pair"));
        };
        let numbers = welcome.streams.iter().map(|grant| grant.stream);
        let options = LinkOptions {
            epoch: u64::from(welcome.epoch),
            streams: numbers.max().unwrap_or(0) + 1,
            in_place: self.control.in_place,
            permit: self.control.permit.clone(),
            granting: self.control.shared.granting.clone(),
            checksum: self.control.shared.checksum || welcome.ring.checksum,
        };
        self.control.in_clear.check(&welcome.path, prepared.endpoint(), welcome.endpoint);
        let peer = self.control.address.to_string();
        let connect = move |prepared: Prepared, target| prepared.connect(target, &options);
        self.connecting = Some(Connecting::begin(prepared, &welcome, peer, connect)?);
        Ok(())
    }

    /// Says whether the collector can store what it is sent; while it cannot, frames wait here.
    fn on_sink(&self, report: &SinkReport) {
        let collector = &self.control.address;
        match &report.reason {
            Some(reason) => tracing::warn!(%collector, devices = report.refusing, reason,
                "the collector cannot store frames; they wait at this source until it can"),
            None => tracing::warn!(%collector, "the collector stores frames again"),
        }
    }

    fn on_connected(&mut self, side: &mut SourceSide, connected: Result<Arc<Link>, LinkError>) {
        let Some(connecting) = self.connecting.take() else { return };
        let link = match connected {
            Ok(link) => link,
            Err(error) => {
                let refusal = self.unreachable(&error);
                return side.refuse(refusal);
            }
        };
        let session = connecting.session.clone();
        tracing::info!(collector = %self.control.address, path = %session,
            reason = %session.reason, in_place = link.sender.is_in_place(), "connected");
        self.control.shared.metrics.session_is(Some(session));
        self.was_ready = true;
        self.link = Some(link.clone());
        self.control.shared.life.set_link(Some(link));
    }

    /// Notes that a retry may help, and returns the refusal for the collector.
    fn unreachable(&mut self, error: &LinkError) -> Refusal {
        let reason = error.to_string();
        let is_network = self.path.as_ref().is_some_and(SessionPath::is_network);
        if is_network {
            self.setback = self.failed(error.too_large(), &reason);
            return error.refusal();
        }
        let why = format!("the collector's memory cannot be reached: {reason}");
        self.setback = Some(Setback { pause: UNREACHABLE, ..Setback::new(why) });
        let remedy = "none needed; the source retries automatically";
        Refusal::new(RefusalCode::NoResource, reason, remedy)
    }

    /// Reports, unless nothing has changed for a while: the reports of a thousand idle sources would
    /// keep a collector busy.
    fn report_changes(&mut self, side: &mut SourceSide) {
        self.count();
        let now = Instant::now();
        let changed = self.stats() != self.reported;
        if changed {
            self.changed_at = now;
        }
        if changed || now >= self.reported_at + REPORT_IDLE {
            self.report(side);
        } else {
            self.report_at = now + REPORT;
        }
    }

    fn stats(&self) -> Vec<StreamStats> {
        let devices = &self.control.shared.devices;
        devices.iter().map(|device| device.stats()).collect()
    }

    fn report(&mut self, side: &mut SourceSide) {
        self.reported_at = Instant::now();
        self.report_at = self.reported_at + REPORT;
        self.count();
        let stats = self.stats();
        let cpu_us = cpu_time_of_self(REPORT / 2).as_micros() as u64;
        if let Err(error) = side.stats(cpu_us, &stats) {
            tracing::debug!(%error, "cannot report");
        }
        self.reported = stats;
    }

    /// Updates the counters that are not worth an atomic for every block.
    fn count(&mut self) {
        let Some(link) = &self.link else { return };
        let shared = &self.control.shared;
        for device in &shared.devices {
            device.count_in_flight(link.outstanding(device.stream()));
        }
        let reads = link.sender.stats().status_reads;
        let before = std::mem::replace(&mut self.status_reads, reads);
        shared.metrics.status_reads(reads - before);
    }

    /// Says goodbye once nothing waits any more.
    fn try_goodbye(&mut self, side: &mut SourceSide) {
        let shared = &self.control.shared;
        let Some(link) = &self.link else { return };
        if shared.backlog_frames() > 0 {
            return;
        }
        // Nothing can be committed or staged from here on.
        link.gate.close();
        if let Err(error) = link.sender.progress() {
            tracing::debug!(%error, "the link broke before goodbye");
            return;
        }
        if link.holds_blocks() {
            return;
        }
        for device in &shared.devices {
            // Behind the last frame that was sent.
            device.pass_over(&link.dropped(device.stream()));
            device.settle_without_collector();
        }
        self.report(side);
        let end = |device: &Arc<DeviceState>| StreamEnd {
            stream: device.stream(),
            end_packet: device.first_packet(),
        };
        let ends = self.control.shared.devices.iter().map(end).collect();
        self.said_goodbye = true;
        if let Err(error) = side.goodbye(ends) {
            tracing::debug!(%error, "cannot say goodbye");
        }
    }

    /// Returns how many frames are lost in all, once the collector is done with every device.
    fn settle_accounts(&self, ack: &GoodbyeAck) -> Result<u64, Unaccounted> {
        let mut lost = 0u64;
        for device in &self.control.shared.devices {
            let number = device.stream();
            let told = ack.delivered.iter().find(|stream| stream.stream == number);
            let (delivered, missing) = told.map_or((0, 0), |told| (told.frames, told.lost));
            lost = lost.saturating_add(device.settle_accounts(delivered, missing)?);
        }
        Ok(lost)
    }

    /// Closes the link, and returns frames that the collector may lack to the backlogs.
    pub(super) fn close_link(&mut self) {
        self.count();
        let shared = &self.control.shared;
        let Some(link) = self.link.take() else { return };
        link.gate.close();
        shared.life.set_link(None);
        shared.metrics.session_is(None);
        link.end();
        let unreleased =
            if shared.life.is_finished() { Vec::new() } else { link.sender.unreleased() };
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
                let mut bytes = vec![0; header.payload_bytes as usize];
                if !block.copy_out(&mut bytes) {
                    tracing::warn!(device = %device.name, packet = header.packet_number,
                        "a frame in the collector's memory is damaged, and there is no copy of it");
                    bytes.clear();
                }
                let frame = Waiting {
                    skipped: header.skipped,
                    capture_time_ns: header.capture_time_ns,
                    counted: true,
                    bytes: bytes.into(),
                };
                device.push(header.packet_number, frame);
            }
        }
        for device in &shared.devices {
            device.pass_over(&link.dropped(device.stream()));
        }
    }
}
