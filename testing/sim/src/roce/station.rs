//! Hosts and the switches between them, as nodes of one simulation.
use crate::{Context, Frame, Node, Switch};
use std::time::Duration;

/// A node of a network of hosts and switches.
pub(crate) enum Station<H> {
    Host(Box<H>),
    Switch(Switch),
}

impl<H: Node> Node for Station<H> {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>) {
        match self {
            Self::Host(host) => host.receive(frame, context),
            Self::Switch(switch) => switch.receive(frame, context),
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        match self {
            Self::Host(host) => host.wake(context),
            Self::Switch(switch) => switch.wake(context),
        }
    }

    fn wake_at(&self) -> Option<Duration> {
        match self {
            Self::Host(host) => host.wake_at(),
            Self::Switch(switch) => switch.wake_at(),
        }
    }
}
