//! Describes a source, then connects it.
use super::device::Device;
use super::lifecycle::Lifecycle;
use super::shared::{DeviceState, Shared};
use super::wish::{RING_BYTES, SEND_QUEUE_LEAST, Wish};
use super::{FRAME_BYTES_MAX, Source, SourceError, control, pump};
use crate::format::FrameFormat;
use crate::observe::SourceMetrics;
use crate::providers::{KEYS_IN_CLEAR, ProviderOptions, ProviderSet};
use crate::session::check::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX};
use crate::session::io::{ClientSecurity, raise_descriptor_limit};
use crate::session::message::Policy;
use crate::session::names::{DeviceName, DeviceNameError};
use crate::session::path::PathRules;
use crate::session::registration::RegisteredDevice;
use crate::session::tls::TlsFiles;
use catchment_granting::{
    ControllerSpec, DeviceWish, Fallback, Granting, Missed, OnMissed, Periodic, Streams, Told,
};
use catchment_transfer::Permit;
use catchment_transfer::layout::TRAILER_BYTES;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Minimum blocks that a source requests: one can be filled while others are read.
const BLOCKS_LEAST: u64 = 8;
/// Maximum blocks that a source requests by default.
const BLOCKS_MOST: u64 = 1024;
/// Blocks that a source requests per device, memory permitting.
const BLOCKS_PER_DEVICE: u64 = 4;
/// Payload of a block when no device says how large its frames are.
const PAYLOAD_BYTES: usize = 1 << 20;
/// Largest block that a source requests by default; larger frames take several.
const BLOCK_BYTES_MOST: usize = 32 << 20;

/// Describes one device of a source.
#[derive(Debug, Clone)]
pub struct DeviceSpec {
    name: String,
    format: Option<FrameFormat>,
    frame_bytes: Option<usize>,
    policy: Policy,
    backlog_frames: usize,
    priority: Option<String>,
    deadline: Option<Duration>,
    rate_max_bps: Option<u64>,
    periodic: Option<(usize, Duration)>,
}

impl DeviceSpec {
    /// Describes a device that waits when the collector has no room ([`Policy::Block`]). Its name is
    /// also that of its directory at the collector: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a
    /// dot.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            format: None,
            frame_bytes: None,
            policy: Policy::Block,
            backlog_frames: 2,
            priority: None,
            deadline: None,
            rate_max_bps: None,
            periodic: None,
        }
    }

    /// Sets the format of its frames: shown at the collector, and determines the size of a block.
    #[must_use]
    pub fn format(self, format: FrameFormat) -> Self {
        Self { frame_bytes: Some(format.frame_bytes()), format: Some(format), ..self }
    }

    /// Sets the largest frame in bytes, where there is no format.
    #[must_use]
    pub fn frame_bytes(mut self, bytes: usize) -> Self {
        self.frame_bytes = Some(bytes);
        self
    }

    /// Sets what to do with a frame when the collector has no room.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the class that it claims at a transmission controller ([`SourceBuilder::controller`]), such as
    /// `urgent`; by default the controller's last one.
    #[must_use]
    pub fn priority(mut self, class: impl Into<String>) -> Self {
        self.priority = Some(class.into());
        self
    }

    /// Sets how long after its capture a frame should be at the collector; by default as its class says.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the most that a controller grants to it: bits of payload a second; by default what its path carries.
    #[must_use]
    pub fn rate_max(mut self, rate_bps: u64) -> Self {
        self.rate_max_bps = Some(rate_bps);
        self
    }

    /// Says that the device sends so many bytes of frames in each period. A transmission controller then gives it the
    /// rate for that once, and its frames go at it without asking; as long as it has none, and where more waits than two
    /// periods carry, they ask as those of other devices do.
    #[must_use]
    pub fn periodic(mut self, bytes: usize, period: Duration) -> Self {
        self.periodic = Some((bytes, period));
        self
    }

    /// Returns what it sends in a period, in blocks.
    fn periodic_blocks(&self) -> Option<Periodic> {
        let (bytes, period) = self.periodic.filter(|(bytes, _)| *bytes > 0)?;
        // Each block has a trailer, and is a whole number of pages.
        let more = TRAILER_BYTES as usize + 4096;
        let bytes = bytes + bytes.div_ceil(BLOCK_BYTES_MOST - more) * more;
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Some(Periodic { bytes: bytes as u64, period_ns })
    }

    /// Sets how many frames [`Policy::DropOldest`] keeps in the source's memory while there is no room.
    #[must_use]
    pub fn backlog_frames(mut self, frames: usize) -> Self {
        self.backlog_frames = frames.max(1);
        self
    }
}

/// Describes a source.
#[derive(Debug, Clone)]
pub struct SourceBuilder {
    pub(super) collector: String,
    devices: Vec<DeviceSpec>,
    blocks: Option<u32>,
    block_bytes: Option<u32>,
    checksum: bool,
    pub(super) in_place: bool,
    pub(super) permit: Option<Arc<dyn Permit>>,
    send_queue: Option<u32>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) insecure: bool,
    pub(super) patience: Option<Duration>,
    pub(super) providers: ProviderSet,
    controller: Option<ControllerSpec>,
    on_missed: Option<OnMissed>,
}

impl SourceBuilder {
    pub(super) fn new(collector: String) -> Self {
        Self {
            collector,
            devices: Vec::new(),
            blocks: None,
            block_bytes: None,
            checksum: true,
            in_place: true,
            permit: None,
            send_queue: None,
            tls: None,
            insecure: false,
            patience: None,
            providers: ProviderSet::default(),
            controller: None,
            on_missed: None,
        }
    }

    /// Adds a device.
    #[must_use]
    pub fn device(mut self, device: DeviceSpec) -> Self {
        self.devices.push(device);
        self
    }

    /// Sets the number of blocks to request, 1 to 65,536. By default four per device, and on a path with a round
    /// trip of 2 ms or longer what 1 Gbit/s needs there, within 256 MiB.
    #[must_use]
    pub fn blocks(mut self, blocks: u32) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Sets the size of a block to request, trailer included: a multiple of 64 up to 64 MiB. By default
    /// the largest frame of the devices fits.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Sets whether blocks carry a CRC32C that the collector verifies. On by default.
    #[must_use]
    pub fn checksum(self, checksum: bool) -> Self {
        Self { checksum, ..self }
    }

    /// Sets whether frames are filled directly in the collector's memory where the provider supports
    /// it. On by default; otherwise every frame is copied once more.
    #[must_use]
    pub fn in_place(self, in_place: bool) -> Self {
        Self { in_place, ..self }
    }

    /// Asks `permit` before every claim of a block, on the thread of the device: for a controller that
    /// paces, pauses or refuses streams, by the collector's stream numbers. A device that must wait, or
    /// is refused, finds no room, so its [`Policy`] decides about the frame. When the decision changes,
    /// the controller calls [`Source::wake`](super::Source::wake).
    #[must_use]
    pub fn permit(mut self, permit: Arc<dyn Permit>) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Sends when the transmission controller at `HOST:PORT` grants it, in blocks that are paced in parts; and
    /// as `fallback` says while nobody answers. Several controllers that stand in for each other are separated by
    /// commas. Certificates and `insecure` hold for it as for the collector.
    /// Until the first registration nothing is sent. Frames are not filled in the collector's memory then.
    #[must_use]
    pub fn controller(mut self, addresses: impl Into<String>, fallback: Fallback) -> Self {
        self.controller = Some(ControllerSpec { addresses: addresses.into(), fallback });
        self
    }

    /// Calls `call` for each frame of which the controller says that it cannot be at the collector by its deadline:
    /// the device may then make smaller frames, or fewer. It is called once for a frame, and once more if the frame is
    /// dropped for that ([`Missed::dropped`]); usually while the frame waits, on the thread that sends: it must return soon, since nothing is sent meanwhile. A panic in it is logged.
    #[must_use]
    pub fn on_missed(mut self, call: impl Fn(Missed<'_>) + Send + Sync + 'static) -> Self {
        self.on_missed = Some(OnMissed::new(call));
        self
    }

    /// Sets how many requests may be outstanding on the queue pair, from 2 to the device's limit; 256 by
    /// default, and on a long path what the blocks of the ring take, up to 4,096. The completion queue has an entry for every four of them. With 2, each block waits until
    /// the one before has arrived.
    #[must_use]
    pub fn send_queue(mut self, requests: u32) -> Self {
        self.send_queue = Some(requests);
        self
    }

    /// Sets the certificates for the control connection; needed for a collector off loopback.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Allows a control connection without TLS off loopback. Anyone on the path can then read and modify
    /// it.
    #[must_use]
    pub fn insecure(self, insecure: bool) -> Self {
        Self { insecure, ..self }
    }

    /// Sets which providers this side may use, with which settings and rules. By default all, with their
    /// default settings.
    #[must_use]
    pub fn providers(self, providers: ProviderSet) -> Self {
        Self { providers, ..self }
    }

    /// Sets which providers this side may use, and their order. The collector chooses among them by its
    /// own rules.
    #[must_use]
    pub fn path_rules(mut self, rules: PathRules) -> Self {
        self.providers.rules = rules;
        self
    }

    /// Sets the options of a provider, such as [`RoceOptions`](crate::roce::RoceOptions) or
    /// [`IbverbsOptions`](crate::ibverbs::IbverbsOptions); or adds a provider of another crate.
    #[must_use]
    pub fn provider(mut self, options: impl ProviderOptions + 'static) -> Self {
        self.providers.set(options);
        self
    }

    /// Sets how long [`SourceBuilder::connect`] waits for a collector. By default forever.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Connects, and returns when both sides are ready. Afterwards the source reconnects in the
    /// background.
    ///
    /// # Errors
    /// [`SourceError::Config`] for a description that cannot work,
    /// [`SourceError::Unreachable`] after the patience,
    /// [`SourceError::Refused`] when the collector refuses for good.
    pub fn connect(self) -> Result<Source, SourceError> {
        self.check()?;
        raise_descriptor_limit();
        let metrics = SourceMetrics::new();
        let devices = self.device_states(&metrics)?;
        let shared = Arc::new(Shared {
            devices,
            metrics,
            checksum: self.checksum,
            life: Lifecycle::default(),
            granting: self.controller.is_some().then(Granting::new).transpose()?,
        });
        let mut threads = vec![pump::start(shared.clone())?];
        let control = control::start(&self, shared.clone());
        let free =
            shared.devices.iter().map(|state| Device::new(shared.clone(), state.clone())).collect();
        let mut source =
            Source { shared, free: catchment_verbs::sync::Mutex::new(free), threads: Vec::new() };
        threads.extend(control?);
        source.threads = threads;
        source.shared.life.wait_connected(&self.collector, self.patience)?;
        Ok(source)
    }

    /// Starts the thread that a controller grants leave to, if there is a controller.
    pub(super) fn start_granting(
        &self,
        security: &ClientSecurity,
        shared: &Arc<Shared>,
    ) -> Result<Option<std::thread::JoinHandle<()>>, SourceError> {
        let (Some(spec), Some(granting)) = (&self.controller, &shared.granting) else {
            return Ok(None);
        };
        let device = |(spec, state): (&DeviceSpec, &Arc<DeviceState>)| RegisteredDevice {
            name: state.name.clone(),
            class: spec.priority.clone(),
            deadline_us: spec
                .deadline
                .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            rate_max_bps: spec.rate_max_bps,
        };
        let device = |one: (&DeviceSpec, &Arc<DeviceState>)| DeviceWish {
            periodic: one.0.periodic_blocks(),
            registered: device(one),
        };
        let devices = self.devices.iter().zip(&shared.devices).map(device).collect();
        let known = Arc::downgrade(shared);
        let streams: Streams = Box::new(move |stream| {
            let shared = known.upgrade()?;
            let at = shared.devices.iter().position(|device| device.stream() == stream);
            at.and_then(|at| u32::try_from(at).ok())
        });
        let device =
            |state: &Arc<DeviceState>| (state.name.as_str().to_owned(), state.metrics.clone());
        let named = shared.devices.iter().map(device);
        let told = Told::new(&shared.metrics, named, self.on_missed.clone());
        Ok(Some(granting.start(spec, security.clone(), &self.collector, devices, streams, told)?))
    }

    fn device_states(
        &self,
        metrics: &Arc<SourceMetrics>,
    ) -> Result<Vec<Arc<DeviceState>>, SourceError> {
        let state = |spec: &DeviceSpec| {
            let format = spec.format.as_ref().map(FrameFormat::to_string);
            let text = format.as_deref().unwrap_or("");
            let name: DeviceName = spec.name.parse()?;
            Ok(Arc::new(DeviceState::new(
                name,
                format.clone(),
                spec.policy,
                spec.backlog_frames,
                metrics.add_device(&spec.name, text),
            )))
        };
        let states: Result<_, DeviceNameError> = self.devices.iter().map(state).collect();
        states.map_err(|e| SourceError::Config(e.to_string()))
    }

    fn check(&self) -> Result<(), SourceError> {
        let wrong = |text: String| Err(SourceError::Config(text));
        self.providers
            .rules
            .check(&self.providers.known())
            .map_err(|error| SourceError::Config(error.to_string()))?;
        if self.providers.authenticates() && self.tls.is_none() {
            return wrong(KEYS_IN_CLEAR.to_owned());
        }
        if self.devices.is_empty() {
            return wrong("a source needs at least one device".to_owned());
        }
        let mut names = BTreeSet::new();
        for device in &self.devices {
            if !names.insert(&device.name) {
                return wrong(format!("device {:?} is listed twice", device.name));
            }
            if let Some(bytes) = device.frame_bytes.filter(|b| *b == 0 || *b > FRAME_BYTES_MAX) {
                return wrong(format!(
                    "device {:?} has frames of {bytes} bytes; 1 to {FRAME_BYTES_MAX} are possible",
                    device.name
                ));
            }
        }
        if let Some(blocks) = self.blocks.filter(|n| *n == 0 || *n > BLOCKS_MAX) {
            return wrong(format!("{blocks} blocks requested; 1 to {BLOCKS_MAX} are allowed"));
        }
        if let Some(requests) = self.send_queue.filter(|n| *n < SEND_QUEUE_LEAST) {
            return wrong(format!(
                "a send queue of {requests} requests; a block takes {SEND_QUEUE_LEAST}"
            ));
        }
        let possible = BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX;
        match self.block_bytes {
            Some(bytes) if !possible.contains(&bytes) || bytes % 64 != 0 => wrong(format!(
                "blocks of {bytes} bytes requested; allowed are multiples of 64 from \
                 {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX}"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the ring to request.
    pub(super) fn wish(&self) -> Wish {
        let payload = self.devices.iter().filter_map(|d| d.frame_bytes).max();
        let fitting =
            payload.unwrap_or(PAYLOAD_BYTES).next_multiple_of(64) + TRAILER_BYTES as usize;
        let block_bytes = self.block_bytes.unwrap_or(fitting.min(BLOCK_BYTES_MOST) as u32);
        let fit = RING_BYTES / u64::from(block_bytes);
        let wanted =
            (self.devices.len() as u64 * BLOCKS_PER_DEVICE).clamp(BLOCKS_LEAST, BLOCKS_MOST);
        let usual = wanted.min(fit.max(BLOCKS_LEAST)) as u32;
        Wish { asked: self.blocks, usual, block_bytes, send_queue: self.send_queue }
    }
}
