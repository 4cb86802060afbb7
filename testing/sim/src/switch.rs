//! A switch: forwards each frame at once to the link of its destination. Queues are in the links.
use crate::{Context, Frame, Node};
use std::net::Ipv6Addr;
use std::time::Duration;

pub(super) struct Switch {
    ports: Vec<Ipv6Addr>,
}

impl Switch {
    pub(super) fn new(ports: Vec<Ipv6Addr>) -> Self {
        Self { ports }
    }
}

impl Node for Switch {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>) {
        let destination = frame.bytes().get(24..40);
        let destination = destination.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        let port = self.ports.iter().position(|port| Some(port.octets()) == destination);
        context.send(port.expect("hosts send to each other only"), frame);
    }

    fn wake(&mut self, _: &mut Context<'_>) {}

    fn wake_at(&self) -> Option<Duration> {
        None
    }
}
