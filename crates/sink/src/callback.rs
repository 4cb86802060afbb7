//! Frames to a function of the application.
use super::{DeviceSink, Rejected, Sink, SinkError};
use crate::Frame;
use std::sync::Arc;

/// Calls a function with every frame, on the collector's worker threads: in packet order for one
/// device, at the same time for several.
pub struct CallbackSink<F>(Arc<F>);

impl<F: Fn(Frame) + Send + Sync + 'static> CallbackSink<F> {
    /// A sink that calls `function`.
    pub fn new(function: F) -> Self {
        Self(Arc::new(function))
    }
}

impl<F: Fn(Frame) + Send + Sync + 'static> Sink for CallbackSink<F> {
    fn open(&self, _device: &str) -> Result<Box<dyn DeviceSink>, SinkError> {
        Ok(Box::new(Calls(self.0.clone())))
    }
}

struct Calls<F>(Arc<F>);

impl<F: Fn(Frame) + Send + Sync> DeviceSink for Calls<F> {
    fn next_packet(&self) -> Option<u64> {
        None
    }

    fn accept(&mut self, frame: Frame) -> Result<(), Rejected> {
        (self.0)(frame);
        Ok(())
    }
}
