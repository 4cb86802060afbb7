//! Requests passed from an application to the engine, with the memory that they name.
//!
//! The poster creates the work queue element that the protocol keeps. The request holds its
//! regions, so they stay mapped until it has completed, even when the application drops them. One
//! element, or a few inline bytes, need no allocation.
use crate::address_vector::AhCore;
use crate::region::MrCore;
use catchment_roce::{RecvWqe, SendWqe};
use catchment_verbs::WcStatus;
use catchment_verbs::provider::Handle;
use std::sync::Arc;

type Regions = Box<[Arc<MrCore>]>;

/// The regions of a request, or why it cannot be executed.
#[derive(Default)]
pub(crate) enum Held {
    #[default]
    None,
    One(Arc<MrCore>),
    Many(Regions),
    /// Of a datagram, with its address handle.
    Datagram(Arc<Handle<AhCore>>, Option<Arc<MrCore>>),
    DatagramMany(Box<(Arc<Handle<AhCore>>, Regions)>),
    /// A local key, its bounds or its rights are wrong, or the address of an atomic, which a
    /// responder would refuse with this status.
    Wrong(WcStatus),
}

// A request is copied when it is passed to the engine.
const _: () = assert!(size_of::<Held>() == 24);

impl Held {
    pub(crate) fn with_address_handle(self, ah: Arc<Handle<AhCore>>) -> Self {
        match self {
            Self::None => Self::Datagram(ah, None),
            Self::One(mr) => Self::Datagram(ah, Some(mr)),
            Self::Many(all) => Self::DatagramMany(Box::new((ah, all))),
            Self::Datagram(_, mr) => Self::Datagram(ah, mr),
            Self::DatagramMany(both) => Self::DatagramMany(Box::new((ah, both.1))),
            Self::Wrong(status) => Self::Wrong(status),
        }
    }

    fn address_handle(&self, number: u32) -> Option<&AhCore> {
        let ah = match self {
            Self::Datagram(ah, _) => ah,
            Self::DatagramMany(both) => &both.0,
            Self::None | Self::One(_) | Self::Many(_) | Self::Wrong(_) => return None,
        };
        (ah.number() == number).then_some(&ah.object)
    }

    /// Returns the region of this key, if the request names it.
    pub(crate) fn find(&self, key: u32) -> Option<&Arc<MrCore>> {
        match self {
            Self::None | Self::Wrong(_) => None,
            Self::One(mr) => (mr.key == key).then_some(mr),
            Self::Many(all) => all.iter().find(|mr| mr.key == key),
            Self::Datagram(_, mr) => mr.as_ref().filter(|mr| mr.key == key),
            Self::DatagramMany(both) => both.1.iter().find(|mr| mr.key == key),
        }
    }
}

pub(crate) struct PostedSend {
    pub(crate) wqe: SendWqe,
    pub(crate) held: Held,
}

/// A receive.
pub(crate) struct PostedRecv {
    pub(crate) wqe: RecvWqe,
    pub(crate) held: Held,
}

/// A send that cannot be executed: it fails when all before it are done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrongSend {
    pub(crate) wr_id: u64,
    pub(crate) status: WcStatus,
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
    /// Returns the number of the next request.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.requests.len() as u64
    }

    pub(crate) fn push(&mut self, request: InFlight) {
        self.requests.push_back(request);
    }

    /// Removes request `seq`, which has completed, and all before it; returns its `wr_id`.
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

    /// Forgets all requests; returns the number of the next one.
    pub(crate) fn clear(&mut self) -> u64 {
        self.first = self.next();
        self.requests.clear();
        self.first
    }

    /// A region that was deregistered after a request that names it was posted.
    pub(crate) fn find(&self, key: u32) -> Option<&Arc<MrCore>> {
        self.requests.iter().find_map(|request| request.held.find(key))
    }

    pub(crate) fn address_handle(&self, number: u32) -> Option<&AhCore> {
        self.requests.iter().find_map(|request| request.held.address_handle(number))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.requests.capacity() * size_of::<InFlight>()
    }
}
