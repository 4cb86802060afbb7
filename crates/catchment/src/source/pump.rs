//! The thread that sends what waits in the backlogs, in order.
use super::SourceError;
use super::backlog::Waiting;
use super::link::{Link, Reserve};
use super::shared::{DeviceState, Shared};
use catchment_transfer::BlockMeta;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest sleep of the pump while frames wait for room. Without frames it sleeps until rung.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Result of an attempt to send a waiting frame.
enum Try {
    Sent,
    /// No block is free for this device at the moment.
    Full,
    /// The link is gone.
    Dead,
}

pub(super) fn start(shared: Arc<Shared>) -> Result<JoinHandle<()>, SourceError> {
    std::thread::Builder::new()
        .name("catchment-pump".to_owned())
        .spawn(move || run(&shared))
        .map_err(|e| SourceError::Config(format!("cannot start a thread: {e}")))
}

fn run(shared: &Shared) {
    let mut rung = 0;
    while !shared.life.is_stopped() {
        let Some(link) = shared.life.link().filter(|link| !link.is_closed()) else {
            rung = shared.life.wait_for_pump(rung);
            continue;
        };
        match round(shared, &link) {
            Round::Idle => rung = shared.life.wait_for_pump(rung),
            Round::Dead => {
                shared.life.control.notify_one();
                rung = shared.life.wait_for_pump(rung);
            }
            Round::Waiting(stream) => link.wait_for_room(stream, POLL_INTERVAL),
            Round::Moved => {}
        }
    }
}

enum Round {
    /// Nothing waits.
    Idle,
    /// Something waits, and no block was free; one of the streams that wait.
    Waiting(u32),
    /// Something was sent.
    Moved,
    /// The link is gone: the control thread makes another one.
    Dead,
}

/// Sends one frame of every device that has one.
fn round(shared: &Shared, link: &Link) -> Round {
    let mut outcome = Round::Idle;
    for device in &shared.devices {
        let Some((number, frame)) = device.take_first() else { continue };
        let tried = send(device, link, number, &frame);
        if !matches!(tried, Try::Sent) {
            device.put_back();
        }
        match tried {
            Try::Sent => outcome = Round::Moved,
            Try::Full if matches!(outcome, Round::Idle) => {
                outcome = Round::Waiting(device.stream())
            }
            Try::Full => {}
            Try::Dead => return Round::Dead,
        }
    }
    outcome
}

/// Sends one frame, over several blocks if needed. The first block is only tried; once it is out,
/// the others follow, however long it takes.
fn send(device: &DeviceState, link: &Link, number: u64, frame: &Waiting) -> Try {
    let total = frame.bytes.len();
    let piece = link.payload_bytes_max;
    let mut offset = 0;
    // A lost frame is one empty block.
    loop {
        let bytes = piece.min(total - offset);
        let block = match link.reserve(device.stream(), bytes) {
            Reserve::Block(block) => block,
            Reserve::Dead => return Try::Dead,
            Reserve::Full if offset == 0 => return Try::Full,
            Reserve::Full => {
                link.wait_for_room(device.stream(), POLL_INTERVAL);
                continue;
            }
        };
        if block.memory().write_at(0, &frame.bytes[offset..offset + bytes]).is_err() {
            return Try::Dead;
        }
        let Some(_inside) = link.gate.enter() else { return Try::Dead };
        let meta = BlockMeta {
            packet_number: number,
            frame_bytes: total as u64,
            frame_offset: offset as u64,
            capture_time_ns: frame.capture_time_ns,
            skipped: frame.skipped,
            flags: 0,
        };
        if let Err(error) = block.commit(&meta, link.has_checksum()) {
            tracing::debug!(%error, "a waiting frame was not sent");
            return Try::Dead;
        }
        offset += bytes;
        if offset == total {
            // Still in the gate: the thread that collects what this link holds finds the frame
            // either waiting, or in the link's last block and among the kept ones.
            device.sent(frame.counted, (total > piece).then_some(link.quota));
            if !frame.counted {
                device.metrics.frame_sent(total as u64);
            }
            return Try::Sent;
        }
    }
}
