//! What the objects of a device and its engine share: addresses, limits, keys, events, and the
//! carrier of the packets.
use crate::RoceOptions;
use crate::address_vector::{self, AhCore};
use crate::dirty::DirtySet;
use crate::io::Datagrams;
use crate::keys::KeyTable;
use catchment_roce::wire::PathMtu;
use catchment_verbs::provider::{EventQueue, HandleTable};
use catchment_verbs::sync::RwLock;
use catchment_verbs::{Caps, Gid, NetEnd, VerbsError};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

/// Events kept in case the application does not take them; the oldest are dropped.
const MAX_EVENTS: usize = 1024;
/// The smallest useful window, whatever the buffer.
const LEAST_WINDOW_BYTES: u64 = 64 << 10;

/// See the module.
pub(crate) struct DeviceCore {
    pub(crate) gid: Gid,
    pub(crate) local: SocketAddr,
    pub(crate) path_mtu: PathMtu,
    pub(crate) caps: Caps,
    pub(crate) options: RoceOptions,
    /// The carrier of the packets.
    pub(crate) datagrams: Box<dyn Datagrams>,
    /// Queue pairs with posted requests that the engine has not taken.
    pub(crate) dirty: DirtySet,
    /// Threads that wait for the engine or the keys; the engine's thread yields to them.
    pub(crate) contenders: AtomicU32,
    keys: RwLock<KeyTable>,
    /// Address handles; looked up when a datagram names a different one than the last.
    pub(crate) ahs: HandleTable<AhCore>,
    /// For the application.
    pub(crate) events: EventQueue,
    ids: AtomicU64,
    origin: Instant,
}

impl DeviceCore {
    pub(crate) fn new(
        datagrams: Box<dyn Datagrams>,
        path_mtu: PathMtu,
        caps: Caps,
        options: RoceOptions,
    ) -> Result<Self, VerbsError> {
        Ok(Self {
            gid: Gid::from_ip(datagrams.local().ip()),
            local: datagrams.local(),
            path_mtu,
            caps,
            options,
            datagrams,
            dirty: DirtySet::new(),
            contenders: AtomicU32::new(0),
            keys: RwLock::default(),
            ahs: address_vector::table(),
            events: EventQueue::new(MAX_EVENTS),
            ids: AtomicU64::new(1),
            origin: Instant::now(),
        })
    }

    /// Returns what peers must know of the network side.
    pub(crate) fn net(&self) -> NetEnd {
        let selective = u32::from(self.options.selective_repeat) * NetEnd::SELECTIVE_REPEAT;
        let authenticated = u32::from(self.options.authenticate) * NetEnd::AUTHENTICATED;
        let end = NetEnd {
            udp_port: self.local.port(),
            path_mtu: self.path_mtu.bytes() as u32,
            extensions: selective | authenticated | NetEnd::CHALLENGES,
            key: None,
        };
        end.with_window_bytes(self.window_bytes().max(self.options.long_window_bytes))
    }

    /// Returns the window of a queue pair. It must fit the peer's receive buffer, whose size is unknown, so
    /// our own is used.
    pub(crate) fn window_bytes(&self) -> u64 {
        let buffer = self.datagrams.capabilities().receive_buffer_bytes as u64;
        self.options.window_bytes.min(buffer / 4).max(LEAST_WINDOW_BYTES)
    }

    /// Returns a number that this device never used before.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the nanoseconds since the device was opened: the clock of the protocol.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Returns the keys, for lookups.
    #[inline]
    pub(crate) fn keys(&self) -> RwLockReadGuard<'_, KeyTable> {
        self.keys.read()
    }

    /// Returns the keys, to change them. The engine's turn that sees the old ones is over when this
    /// returns.
    pub(crate) fn keys_mut(&self) -> RwLockWriteGuard<'_, KeyTable> {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let keys = self.keys.write();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        keys
    }
}
