//! Valid ranges of every field of every message.
use crate::host::Host;
use crate::message::{
    Challenge, Connect, DEVICES_MAX, Device, FailedPath, Goodbye, GoodbyeAck, Hello, Message,
    PROVIDERS_MAX, Ping, Pong, Proof, ProtocolRange, ProviderOffer, Ready, Revoke, Ring, RingWish,
    STATS_STREAMS_MAX, SessionPath, SinkReport, SourceStats, Welcome, WhyNot,
};
use crate::names::{is_printable, printable};
use crate::refusal::Refusal;
use catchment_verbs::{Endpoint, NetEnd};
use std::fmt::Display;

/// Maximum characters of a reason or remedy.
pub(crate) const REASON_CHARS_MAX: usize = 1_024;
/// Maximum characters of a reason in a list.
pub const WHY_CHARS_MAX: usize = 512;
/// Largest packet number and counter: the largest integer that every JSON reader keeps exactly,
/// 2^53 - 1.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Maximum blocks of a ring.
pub const BLOCKS_MAX: u32 = 65_536;
/// Minimum size of a slot in bytes.
pub const BLOCK_BYTES_MIN: u32 = 128;
/// Maximum size of a slot in bytes.
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;
/// Shortest lease in milliseconds.
pub const LEASE_MS_MIN: u32 = 100;
/// Longest lease in milliseconds.
pub const LEASE_MS_MAX: u32 = 600_000;

/// A field of a message is outside of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {seen}; {allowed} is allowed")]
pub struct Invalid {
    /// Path of the field, such as `devices[3].next_packet`.
    pub field: String,
    /// The value, escaped and cut.
    pub seen: String,
    /// What the specification allows.
    pub allowed: &'static str,
}

type Checked = Result<(), Invalid>;

/// Fails with `field`, `seen` and `allowed` unless `ok`.
fn ensure(ok: bool, field: impl Display, seen: impl Display, allowed: &'static str) -> Checked {
    if ok {
        return Ok(());
    }
    Err(Invalid { field: field.to_string(), seen: printable(&seen.to_string(), 64), allowed })
}

fn number(value: u64, field: impl Display) -> Checked {
    ensure(value <= NUMBER_MAX, field, value, "0 to 9007199254740991")
}

fn text(value: &str, chars_max: usize, field: impl Display, allowed: &'static str) -> Checked {
    let chars = value.chars().count();
    let ok = (1..=chars_max).contains(&chars) && value.chars().all(is_printable);
    ensure(ok, field, format_args!("{value:?}"), allowed)
}

fn long_text(value: &str, field: &'static str) -> Checked {
    text(value, REASON_CHARS_MAX, field, "1 to 1024 printable characters")
}

fn epoch(value: u32) -> Checked {
    ensure(value != 0, "epoch", value, "1 to 4294967295")
}

fn protocol(value: u16, field: &'static str) -> Checked {
    ensure(value != 0, field, value, "1 to 65535")
}

fn is_provider(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=32).contains(&name.len()) && name.bytes().all(allowed)
}

fn provider(name: &str, field: impl Display) -> Checked {
    let allowed = "1 to 32 characters of [a-z0-9-]";
    ensure(is_provider(name), field, format_args!("{name:?}"), allowed)
}

fn ring_size(blocks: u32, block_bytes: u32, prefix: &'static str) -> Checked {
    let ok = (1..=BLOCKS_MAX).contains(&blocks);
    ensure(ok, format_args!("{prefix}.blocks"), blocks, "1 to 65536")?;
    let ok = (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes)
        && block_bytes.is_multiple_of(64);
    let allowed = "a multiple of 64 from 128 to 67108864";
    ensure(ok, format_args!("{prefix}.block_bytes"), block_bytes, allowed)
}

fn endpoint(value: &Endpoint) -> Checked {
    let (qpn, psn) = (value.qpn, value.psn);
    ensure(qpn < 1 << 24, "endpoint.qpn", qpn, "0 to 16777215")?;
    ensure(psn < 1 << 24, "endpoint.psn", psn, "0 to 16777215")?;
    net(value.net, "endpoint.net")
}

fn net(value: Option<NetEnd>, field: impl Display + Copy) -> Checked {
    let Some(net) = value else { return Ok(()) };
    ensure(net.udp_port > 0, format_args!("{field}.udp_port"), net.udp_port, "1 to 65535")?;
    path_mtu(Some(net.path_mtu), format_args!("{field}.path_mtu"))
}

fn path_mtu(value: Option<u32>, field: impl Display) -> Checked {
    let Some(mtu) = value else { return Ok(()) };
    let ok = [256, 512, 1024, 2048, 4096].contains(&mtu);
    ensure(ok, field, mtu, "256, 512, 1024, 2048 or 4096")
}

impl Message {
    /// Checks every field against the range that the specification gives it.
    ///
    /// # Errors
    /// The first field that is outside of its range.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Hello(message) => message.check(),
            Self::Challenge(Challenge { nonce: _ }) | Self::Proof(Proof { signature: _ }) => Ok(()),
            Self::Welcome(message) => message.check(),
            Self::Refused(message) => message.check(),
            Self::Connect(message) => message.check(),
            Self::Ready(Ready { epoch: value })
            | Self::Ping(Ping { epoch: value, seq: _ })
            | Self::Pong(Pong { epoch: value, seq: _ }) => epoch(*value),
            Self::SourceStats(message) => message.check(),
            Self::SinkReport(message) => message.check(),
            Self::Revoke(message) => message.check(),
            Self::Goodbye(message) => message.check(),
            Self::GoodbyeAck(message) => message.check(),
        }
    }
}

impl Hello {
    fn check(&self) -> Checked {
        let ProtocolRange { min, max } = self.protocol;
        protocol(min, "protocol.min")?;
        ensure(min <= max, "protocol.max", max, "protocol.min or more")?;
        text(&self.software, 128, "software", "1 to 128 printable characters")?;
        self.host.check()?;
        number(self.attempt, "attempt")?;
        ensure(self.attempt > 0, "attempt", self.attempt, "1 to 9007199254740991")?;
        let len = self.devices.len();
        ensure(len <= DEVICES_MAX, "devices", len, "0 to 65536 devices")?;
        for (i, device) in self.devices.iter().enumerate() {
            device.check(i)?;
        }
        let len = self.providers.len();
        ensure((1..=PROVIDERS_MAX).contains(&len), "providers", len, "1 to 16 providers")?;
        for (i, offer) in self.providers.iter().enumerate() {
            offer.check(format_args!("providers[{i}]"))?;
        }
        for (i, why) in self.missing.iter().enumerate() {
            why.check(format_args!("missing[{i}]"))?;
        }
        for (i, failed) in self.failed.iter().enumerate() {
            failed.check(format_args!("failed[{i}]"))?;
        }
        let RingWish { blocks, block_bytes } = self.wish;
        ring_size(blocks, block_bytes, "wish")
    }
}

impl ProviderOffer {
    fn check(&self, at: impl Display + Copy) -> Checked {
        provider(&self.name, format_args!("{at}.name"))?;
        if let Some(device) = &self.device {
            text(device, 64, format_args!("{at}.device"), "1 to 64 printable characters")?;
        }
        net(self.net, format_args!("{at}.net"))
    }
}

impl WhyNot {
    fn check(&self, at: impl Display + Copy) -> Checked {
        provider(&self.provider, format_args!("{at}.provider"))?;
        why(&self.reason, format_args!("{at}.reason"))
    }
}

impl SessionPath {
    fn check(&self, at: impl Display + Copy) -> Checked {
        provider(&self.source, format_args!("{at}.source"))?;
        provider(&self.collector, format_args!("{at}.collector"))?;
        path_mtu(self.path_mtu, format_args!("{at}.path_mtu"))
    }
}

impl FailedPath {
    fn check(&self, at: impl Display + Copy) -> Checked {
        self.path.check(format_args!("{at}.path"))?;
        why(&self.reason, format_args!("{at}.reason"))
    }
}

fn why(reason: &str, field: impl Display) -> Checked {
    text(reason, WHY_CHARS_MAX, field, "1 to 512 printable characters")
}

impl Host {
    fn check(&self) -> Checked {
        let ok = (1..=64).contains(&self.boot_id.len())
            && self.boot_id.bytes().all(|b| b.is_ascii_graphic());
        let allowed = "1 to 64 ASCII characters without spaces";
        ensure(ok, "host.boot_id", format_args!("{:?}", self.boot_id), allowed)?;
        number(self.netns, "host.netns")
    }
}

impl Device {
    fn check(&self, index: usize) -> Checked {
        if let Some(format) = &self.format {
            let field = format_args!("devices[{index}].format");
            text(format, 128, field, "1 to 128 printable characters")?;
        }
        number(self.next_packet, format_args!("devices[{index}].next_packet"))
    }
}

impl Welcome {
    fn check(&self) -> Checked {
        protocol(self.protocol, "protocol")?;
        epoch(self.epoch)?;
        self.path.check("path")?;
        long_text(&self.reason, "reason")?;
        let Ring { addr: _, rkey: _, blocks, block_bytes, layout_hash: _, checksum: _ } = self.ring;
        ring_size(blocks, block_bytes, "ring")?;
        endpoint(&self.endpoint)?;
        ensure(
            (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&self.lease_ms),
            "lease_ms",
            self.lease_ms,
            "100 to 600000",
        )?;
        let len = self.streams.len();
        ensure(len <= DEVICES_MAX, "streams", len, "0 to 65536 streams")?;
        for (i, grant) in self.streams.iter().enumerate() {
            let next = grant.next_packet.unwrap_or(0);
            number(next, format_args!("streams[{i}].next_packet"))?;
        }
        Ok(())
    }
}

impl Refusal {
    fn check(&self) -> Checked {
        text(self.code.as_str(), 64, "code", "1 to 64 printable characters")?;
        long_text(&self.reason, "reason")?;
        long_text(&self.remedy, "remedy")
    }
}

impl Revoke {
    fn check(&self) -> Checked {
        epoch(self.epoch)?;
        self.clone().into_refusal().check()
    }
}

impl Connect {
    fn check(&self) -> Checked {
        epoch(self.epoch)?;
        endpoint(&self.endpoint)?;
        for (i, start) in self.streams.iter().enumerate() {
            number(start.first_packet, format_args!("streams[{i}].first_packet"))?;
        }
        Ok(())
    }
}

impl SourceStats {
    fn check(&self) -> Checked {
        epoch(self.epoch)?;
        number(self.cpu_us, "cpu_us")?;
        let len = self.streams.len();
        ensure(len <= STATS_STREAMS_MAX, "streams", len, "0 to 256 streams")?;
        for (i, stats) in self.streams.iter().enumerate() {
            let counters = [
                ("sent_frames", stats.sent_frames),
                ("sent_bytes", stats.sent_bytes),
                ("dropped_oldest", stats.dropped_oldest),
                ("dropped_newest", stats.dropped_newest),
                ("dropped_reconnect", stats.dropped_reconnect),
                ("blocked_us", stats.blocked_us),
            ];
            for (name, value) in counters {
                number(value, format_args!("streams[{i}].{name}"))?;
            }
        }
        Ok(())
    }
}

impl SinkReport {
    fn check(&self) -> Checked {
        epoch(self.epoch)?;
        let fits = self.reason.is_some() == (self.refusing > 0);
        let field = "refusing";
        ensure(fits, field, self.refusing, "0 without a reason, or 1 or more with one")?;
        self.reason.as_ref().map_or(Ok(()), |reason| why(reason, "reason"))
    }
}

impl Goodbye {
    fn check(&self) -> Checked {
        epoch(self.epoch)?;
        for (i, end) in self.streams.iter().enumerate() {
            number(end.end_packet, format_args!("streams[{i}].end_packet"))?;
        }
        Ok(())
    }
}

impl GoodbyeAck {
    fn check(&self) -> Checked {
        epoch(self.epoch)?;
        for (i, done) in self.delivered.iter().enumerate() {
            number(done.next_packet, format_args!("delivered[{i}].next_packet"))?;
            number(done.frames, format_args!("delivered[{i}].frames"))?;
            number(done.lost, format_args!("delivered[{i}].lost"))?;
        }
        Ok(())
    }
}
