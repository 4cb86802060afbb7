//! Unreliable services: UC and UD. What is sent is done, what is lost is lost.
mod datagram;
mod receiver;
mod sender;

pub(crate) use datagram::DatagramReceiver;
pub(crate) use receiver::UnreliableReceiver;
pub(crate) use sender::UnreliableSender;
