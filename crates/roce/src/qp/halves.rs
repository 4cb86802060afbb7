//! The halves of a queue pair, by its service type.
use crate::config::Config;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::responder::receives::Receives;
use crate::unreliable::{DatagramReceiver, UnreliableReceiver, UnreliableSender};
use catchment_verbs_types::Service;

/// The halves that a service type has.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all queue pairs are RC, and a box would cost each packet a cache miss"
)]
#[derive(Debug)]
pub(super) enum Halves {
    Rc { requester: Requester, responder: Responder },
    Uc { sender: UnreliableSender, receiver: UnreliableReceiver },
    Ud { sender: UnreliableSender, receiver: DatagramReceiver },
}

impl Halves {
    pub(super) fn new(config: &Config) -> Self {
        match config.service {
            Service::Rc => {
                Self::Rc { requester: Requester::new(config), responder: Responder::new(config) }
            }
            Service::Uc => Self::Uc {
                sender: UnreliableSender::new(config),
                receiver: UnreliableReceiver::default(),
            },
            Service::Ud => Self::Ud {
                sender: UnreliableSender::new(config),
                receiver: DatagramReceiver::default(),
            },
        }
    }

    pub(super) fn stop_waiting_for_pacer(&mut self) {
        match self {
            Self::Rc { requester, responder } => {
                requester.paced = false;
                responder.paced = false;
            }
            Self::Uc { sender, .. } | Self::Ud { sender, .. } => sender.paced = false,
        }
    }

    pub(super) fn receives(&self) -> &Receives {
        match self {
            Self::Rc { responder, .. } => &responder.receives,
            Self::Uc { receiver, .. } => &receiver.receives,
            Self::Ud { receiver, .. } => &receiver.receives,
        }
    }

    pub(super) fn receives_mut(&mut self) -> &mut Receives {
        match self {
            Self::Rc { responder, .. } => &mut responder.receives,
            Self::Uc { receiver, .. } => &mut receiver.receives,
            Self::Ud { receiver, .. } => &mut receiver.receives,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.receives().heap_bytes()
            + match self {
                Self::Rc { requester, responder } => {
                    requester.heap_bytes() + responder.heap_bytes()
                }
                Self::Uc { sender, .. } | Self::Ud { sender, .. } => sender.heap_bytes(),
            }
    }
}
