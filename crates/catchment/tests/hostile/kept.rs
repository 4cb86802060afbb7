//! Blocks that a consumer keeps, as their source sees them.
use super::bad::{Bad, header};
use super::world::{World, eventually};
use catchment::Frame;
use catchment::sink::{DeviceSink, Rejected, Sink, SinkError};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Keeps the frames of one device, and says so.
type Kept = Arc<Mutex<Vec<Frame>>>;

/// State 2 is set by the collector's side, on blocks that it has (S1.17): the source sees it, goes on with
/// other blocks, and gets the slot back when the consumer is done.
#[test]
fn s1_17_a_block_that_a_consumer_keeps_is_unavailable_until_it_is_dropped() {
    let kept = Kept::default();
    let keep = kept.clone();
    let world = World::start(|collector| {
        collector.on_frame(move |mut frame| {
            if frame.device() == "cam" {
                if frame.packet_number() != 1 {
                    frame.hold();
                }
                keep.lock().unwrap().push(frame);
            }
        })
    });
    let ringed = Bad::new(&world).ringed("cam", 8, 0);
    for number in 0..3 {
        ringed.commit(number, 1, &header(number.into(), 10));
        eventually("the frame", || kept.lock().unwrap().len() == number as usize + 1);
    }
    assert!(ringed.is_held(0, 1) && ringed.is_held(2, 1));
    assert!(!ringed.is_held(1, 1) && !ringed.is_released(1, 1), "kept, and not said to be");
    kept.lock().unwrap().clear();
    eventually("all are back", || (0..3).all(|slot| ringed.is_released(slot, 1)));
    drop(ringed);
    world.finish_uncounted();
}

/// A sink that takes nothing of one device while it is full.
struct Full(Arc<AtomicBool>);

impl Sink for Full {
    fn open(&self, device: &str) -> Result<Box<dyn DeviceSink>, SinkError> {
        let full = if device == "cam" { self.0.clone() } else { Arc::default() };
        Ok(Box::new(FullDevice(full)))
    }
}

struct FullDevice(Arc<AtomicBool>);

impl DeviceSink for FullDevice {
    fn next_packet(&self) -> Option<u64> {
        None
    }

    fn accept(&mut self, frame: Frame) -> Result<(), Rejected> {
        if !self.0.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (action, source) = ("store", io::Error::other("full"));
        let error = SinkError::Io { action, path: "here".into(), source };
        Err(Rejected { frame, error })
    }
}

/// So does a frame that the sink refused, which the collector keeps until the sink takes it (S1.17).
#[test]
fn s1_17_a_block_that_a_sink_refused_is_unavailable_until_it_is_taken() {
    let full = Arc::new(AtomicBool::new(true));
    let world = World::start(|collector| collector.sink(Full(full.clone())));
    let ringed = Bad::new(&world).ringed("cam", 8, 0);
    ringed.commit(0, 1, &header(0, 10));
    eventually("it is kept", || ringed.is_held(0, 1));
    full.store(false, Ordering::SeqCst);
    eventually("it is taken", || ringed.is_released(0, 1));
    drop(ringed);
    world.finish_uncounted();
}
