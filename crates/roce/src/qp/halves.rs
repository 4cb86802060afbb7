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
    pub(super) fn new(config: &Config) -> Halves {
        match config.service {
            Service::Rc => {
                Halves::Rc { requester: Requester::new(config), responder: Responder::new(config) }
            }
            Service::Uc => Halves::Uc {
                sender: UnreliableSender::new(config),
                receiver: UnreliableReceiver::default(),
            },
            Service::Ud => Halves::Ud {
                sender: UnreliableSender::new(config),
                receiver: DatagramReceiver::default(),
            },
        }
    }

    pub(super) fn stop_waiting_for_pacer(&mut self) {
        match self {
            Halves::Rc { requester, responder } => {
                requester.paced = false;
                responder.paced = false;
            }
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.paced = false,
        }
    }

    pub(super) fn receives(&self) -> &Receives {
        match self {
            Halves::Rc { responder, .. } => &responder.receives,
            Halves::Uc { receiver, .. } => &receiver.receives,
            Halves::Ud { receiver, .. } => &receiver.receives,
        }
    }

    pub(super) fn receives_mut(&mut self) -> &mut Receives {
        match self {
            Halves::Rc { responder, .. } => &mut responder.receives,
            Halves::Uc { receiver, .. } => &mut receiver.receives,
            Halves::Ud { receiver, .. } => &mut receiver.receives,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.receives().heap_bytes()
            + match self {
                Halves::Rc { requester, responder } => {
                    requester.heap_bytes() + responder.heap_bytes()
                }
                Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.heap_bytes(),
            }
    }
}
