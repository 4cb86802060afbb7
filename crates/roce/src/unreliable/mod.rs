//! Unreliable services: UC and UD. Requests complete when sent; losses are not recovered.
mod datagram;
mod receiver;
mod sender;

pub(crate) use datagram::DatagramReceiver;
pub(crate) use receiver::UnreliableReceiver;
pub(crate) use sender::UnreliableSender;
