//! Requests on their way from a program to the engine, with the memory that they name.
//!
//! A request holds its regions, so they stay mapped until it has completed, whatever the program
//! drops. One element, or a few inline bytes, need no allocation.
use crate::{ah::AhCore, mr::MrCore};
use catchment_roce as roce;
use catchment_verbs::provider::Handle;
use std::sync::Arc;

/// Inline bytes up to this length are kept in place.
const SHORT_INLINE: usize = 48;

type Regions = Box<[Arc<MrCore>]>;

/// The regions of a request.
#[derive(Default)]
pub(crate) enum Held {
    #[default]
    None,
    One(Arc<MrCore>),
    Many(Regions),
    /// Of a datagram, with its address handle.
    Datagram(Arc<Handle<AhCore>>, Option<Arc<MrCore>>),
    DatagramMany(Box<(Arc<Handle<AhCore>>, Regions)>),
}

// A request is copied on its way to the engine.
const _: () = assert!(size_of::<Held>() == 24);

impl Held {
    /// The same regions, and an address handle.
    pub(crate) fn with_way(self, ah: Arc<Handle<AhCore>>) -> Held {
        match self {
            Held::None => Held::Datagram(ah, None),
            Held::One(mr) => Held::Datagram(ah, Some(mr)),
            Held::Many(all) => Held::DatagramMany(Box::new((ah, all))),
            Held::Datagram(_, mr) => Held::Datagram(ah, mr),
            Held::DatagramMany(both) => Held::DatagramMany(Box::new((ah, both.1))),
        }
    }

    /// The address handle of this number, if the request names it.
    fn way(&self, handle: u64) -> Option<&AhCore> {
        let ah = match self {
            Held::Datagram(ah, _) => ah,
            Held::DatagramMany(both) => &both.0,
            Held::None | Held::One(_) | Held::Many(_) => return None,
        };
        (u64::from(ah.number()) == handle).then_some(&ah.object)
    }

    /// The region of this key, if the request names it.
    pub(crate) fn find(&self, key: u32) -> Option<&Arc<MrCore>> {
        match self {
            Held::None => None,
            Held::One(mr) => (mr.key() == key).then_some(mr),
            Held::Many(all) => all.iter().find(|mr| mr.key() == key),
            Held::Datagram(_, mr) => mr.as_ref().filter(|mr| mr.key() == key),
            Held::DatagramMany(both) => both.1.iter().find(|mr| mr.key() == key),
        }
    }
}

/// The bytes of a request.
pub(crate) enum Stored {
    /// No bytes, or bytes of one element.
    One(roce::Sge),
    Many(Box<[roce::Sge]>),
    Short(u8, [u8; SHORT_INLINE]),
    Long(Box<[u8]>),
    /// It cannot be done: a local key, its bounds or its rights are wrong, or the address of an
    /// atomic, which a responder would refuse with this status.
    Wrong(roce::WcStatus),
    Datagram(roce::Destination, DatagramBytes),
}

/// The bytes of a datagram.
pub(crate) enum DatagramBytes {
    /// No bytes, or bytes of one element.
    One(roce::Sge),
    Many(Box<[roce::Sge]>),
    Inline(Box<[u8]>),
    /// A local key, its bounds or its rights are wrong.
    Wrong,
}

impl DatagramBytes {
    /// Elements, copied.
    pub(crate) fn elements(sges: &[catchment_verbs::Sge]) -> DatagramBytes {
        match sges {
            [] => DatagramBytes::One(roce::Sge::default()),
            [one] => DatagramBytes::One(element(one)),
            many => DatagramBytes::Many(many.iter().map(element).collect()),
        }
    }

    fn payload(&self) -> roce::Payload<'_> {
        match self {
            DatagramBytes::One(sge) if sge.bytes == 0 => roce::Payload::Sges(&[]),
            DatagramBytes::One(sge) => roce::Payload::Sges(std::slice::from_ref(sge)),
            DatagramBytes::Many(sges) => roce::Payload::Sges(sges),
            DatagramBytes::Inline(data) => roce::Payload::Inline(data),
            DatagramBytes::Wrong => roce::Payload::Sges(&[]),
        }
    }
}

impl Stored {
    /// Elements, copied.
    pub(crate) fn elements(sges: &[catchment_verbs::Sge]) -> Stored {
        match sges {
            [] => Stored::One(roce::Sge::default()),
            [one] => Stored::One(element(one)),
            many => Stored::Many(many.iter().map(element).collect()),
        }
    }

    /// Inline bytes, copied.
    pub(crate) fn inline(data: &[u8]) -> Stored {
        if data.len() > SHORT_INLINE {
            return Stored::Long(data.into());
        }
        let mut short = [0; SHORT_INLINE];
        short[..data.len()].copy_from_slice(data);
        Stored::Short(data.len() as u8, short)
    }

    /// Why it cannot be done.
    pub(crate) fn wrong(&self) -> Option<roce::WcStatus> {
        match self {
            Stored::Wrong(status) => Some(*status),
            Stored::Datagram(_, DatagramBytes::Wrong) => Some(roce::WcStatus::LocalProtection),
            Stored::One(_)
            | Stored::Many(_)
            | Stored::Short(..)
            | Stored::Long(_)
            | Stored::Datagram(..) => None,
        }
    }

    /// The bytes, and for a datagram whom they are for.
    fn payload(&self) -> (roce::Payload<'_>, Option<roce::Destination>) {
        let payload = match self {
            Stored::One(sge) if sge.bytes == 0 => roce::Payload::Sges(&[]),
            Stored::One(sge) => roce::Payload::Sges(std::slice::from_ref(sge)),
            Stored::Many(sges) => roce::Payload::Sges(sges),
            Stored::Short(bytes, data) => roce::Payload::Inline(&data[..usize::from(*bytes)]),
            Stored::Long(data) => roce::Payload::Inline(data),
            Stored::Wrong(_) => roce::Payload::Sges(&[]),
            Stored::Datagram(to, bytes) => return (bytes.payload(), Some(*to)),
        };
        (payload, None)
    }
}

fn element(sge: &catchment_verbs::Sge) -> roce::Sge {
    roce::Sge {
        addr: sge.addr,
        bytes: sge.bytes,
        lkey: sge.lkey,
    }
}

/// A send request.
pub(crate) struct PostedSend {
    pub(crate) wr_id: u64,
    pub(crate) op: roce::SendOp,
    pub(crate) stored: Stored,
    pub(crate) held: Held,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
}

impl PostedSend {
    /// As the protocol takes it, under the number `seq`.
    pub(crate) fn request(&self, seq: u64) -> roce::SendWr<'_> {
        let (payload, destination) = self.stored.payload();
        roce::SendWr {
            wr_id: seq,
            op: self.op,
            payload,
            signaled: self.signaled,
            fence: self.fence,
            solicited: self.solicited,
            destination,
        }
    }
}

/// A receive.
pub(crate) struct PostedRecv {
    pub(crate) wr_id: u64,
    pub(crate) stored: Stored,
    pub(crate) held: Held,
}

impl PostedRecv {
    /// As the protocol takes it, under the number `seq`.
    pub(crate) fn request(&self, seq: u64) -> roce::RecvWr<'_> {
        let sges = match &self.stored {
            Stored::One(sge) if sge.bytes == 0 => &[],
            Stored::One(sge) => std::slice::from_ref(sge),
            Stored::Many(sges) => sges,
            Stored::Short(..) | Stored::Long(_) | Stored::Wrong(_) | Stored::Datagram(..) => &[],
        };
        roce::RecvWr { wr_id: seq, sges }
    }
}

/// A request that the protocol has: what its completion needs.
pub(crate) struct InFlight {
    pub(crate) wr_id: u64,
    pub(crate) held: Held,
}

/// Requests of one queue that the protocol has, in the order of posting, numbered.
#[derive(Default)]
pub(crate) struct InFlightQueue {
    requests: std::collections::VecDeque<InFlight>,
    /// Number of the first one.
    first: u64,
}

impl InFlightQueue {
    /// The number that the next request gets.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.requests.len() as u64
    }

    /// Adds a request.
    pub(crate) fn push(&mut self, request: InFlight) {
        self.requests.push_back(request);
    }

    /// Request number `seq` has completed, and so have all before it; its `wr_id`.
    pub(crate) fn complete(&mut self, seq: u64) -> u64 {
        let mut wr_id = 0;
        while self.first <= seq
            && let Some(request) = self.requests.pop_front()
        {
            self.first += 1;
            wr_id = request.wr_id;
        }
        wr_id
    }

    /// Forgets all requests; the number of the next one.
    pub(crate) fn clear(&mut self) -> u64 {
        self.first = self.next();
        self.requests.clear();
        self.first
    }

    /// A region that was deregistered after a request that names it was posted.
    pub(crate) fn find(&self, key: u32) -> Option<&Arc<MrCore>> {
        self.requests
            .iter()
            .find_map(|request| request.held.find(key))
    }

    /// The address handle of this number, which a request names.
    pub(crate) fn way(&self, handle: u64) -> Option<&AhCore> {
        self.requests
            .iter()
            .find_map(|request| request.held.way(handle))
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.requests.capacity() * size_of::<InFlight>()
    }
}
