//! A switch: forwards each frame at once to the link of its destination. Queues are in the links, but for a port
//! that serves urgent frames first.
use crate::{Context, Frame, Node};
use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

pub(crate) struct Switch {
    ports: Vec<Ipv6Addr>,
    /// Frames to others go to the port after those.
    has_uplink: bool,
    priority: Option<Priority>,
}

/// A port with two queues that drop their tail. Frames of the first always go before those of the second.
struct Priority {
    port: usize,
    /// Most bytes in each queue.
    queue_bytes: usize,
    queues: [VecDeque<Frame>; 2],
    bytes: [usize; 2],
    /// When its link is idle again, if frames wait for that.
    idle_at: Option<Duration>,
    /// Frames that found their queue full.
    dropped: [u64; 2],
}

impl Switch {
    pub(crate) fn new(ports: Vec<Ipv6Addr>) -> Self {
        Self { ports, has_uplink: false, priority: None }
    }

    /// Sends frames to others than its ports' to one more port.
    pub(crate) fn with_uplink(self) -> Self {
        Self { has_uplink: true, ..self }
    }

    /// Lets urgent frames go first at this port; its link needs no queue then.
    pub(crate) fn with_priority(self, port: usize, queue_bytes: usize) -> Self {
        let (queues, bytes, dropped) = (Default::default(), [0; 2], [0; 2]);
        let priority = Priority { port, queue_bytes, queues, bytes, idle_at: None, dropped };
        Self { priority: Some(priority), ..self }
    }

    /// Returns the frames that found a queue of the port with priorities full: urgent ones, then others.
    pub(crate) fn dropped(&self) -> [u64; 2] {
        self.priority.as_ref().map_or([0; 2], |priority| priority.dropped)
    }
}

impl Priority {
    fn queue(&mut self, frame: Frame) {
        let class = usize::from(!frame.is_urgent());
        if self.bytes[class] + frame.len() > self.queue_bytes {
            self.dropped[class] += 1;
            return;
        }
        self.bytes[class] += frame.len();
        self.queues[class].push_back(frame);
    }

    /// Sends the next frame if the link is idle, and finds out when it will be.
    fn serve(&mut self, context: &mut Context<'_>) {
        if context.backlog_bytes(self.port) == 0 {
            let class = usize::from(self.queues[0].is_empty());
            if let Some(frame) = self.queues[class].pop_front() {
                self.bytes[class] -= frame.len();
                context.send(self.port, frame);
            }
        }
        let waits = self.queues.iter().any(|queue| !queue.is_empty());
        self.idle_at = waits.then(|| context.drained_to(self.port, 0));
    }
}

impl Node for Switch {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>) {
        let destination = frame.bytes().get(24..40);
        let destination = destination.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        let port = self.ports.iter().position(|port| Some(port.octets()) == destination);
        let port = port.or(self.has_uplink.then_some(self.ports.len()));
        let port = port.expect("hosts send to each other only");
        match &mut self.priority {
            Some(priority) if priority.port == port => {
                priority.queue(frame);
                priority.serve(context);
            }
            Some(_) | None => context.send(port, frame),
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        if let Some(priority) = &mut self.priority {
            priority.serve(context);
        }
    }

    fn wake_at(&self) -> Option<Duration> {
        self.priority.as_ref().and_then(|priority| priority.idle_at)
    }
}
