//! A protection domain, and the memory in it that peers may reach: of a service and all its callers, or of one call.
use crate::Error;
use crate::wire::{Entry, MOST_REGIONS};
use catchment_agent::Application as Agent;
use catchment_channel::{ChannelError, ChannelShape, Resources};
use catchment_session::names::is_service;
use catchment_verbs::mem::MemError;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Access, Context, Mr, Pd};
use std::fmt;
use std::sync::Arc;

/// What a peer may do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    pub(crate) const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }

    pub(crate) const fn of(reads: bool, writes: bool) -> Option<Self> {
        match (reads, writes) {
            (true, true) => Some(Self::ReadWrite),
            (true, false) => Some(Self::Read),
            (false, true) => Some(Self::Write),
            (false, false) => None,
        }
    }

    fn access(self) -> Access {
        let read = if self.reads() { Access::REMOTE_READ } else { Access::empty() };
        let write = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Access::LOCAL_WRITE | read | if self.writes() { write } else { Access::empty() }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read and write",
        })
    }
}

/// Memory of this process that peers reach under a name, and this process as it likes. Peers may write while it is read:
/// what it holds is only as consistent as the two agree on. It ends with its service and the last connection that has it.
#[derive(Clone)]
pub struct Region {
    name: Arc<str>,
    rights: Rights,
    mr: Arc<dyn Mr>,
}

impl Region {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what peers may do with it.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// Returns its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mr.bytes()
    }

    fn beyond(&self, error: &MemError, offset: usize, bytes: usize) -> Error {
        let available = self.bytes() as u64;
        if offset as u64 + bytes as u64 > available {
            let (name, offset, bytes) = (self.name.to_string(), offset as u64, bytes as u64);
            return Error::Bounds { name, offset, bytes, available };
        }
        Error::broken(error)
    }

    /// Reads bytes of it, as they are at the moment.
    ///
    /// # Errors
    /// [`Error::Bounds`].
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let bytes = out.len();
        let read = self.mr.region().whole().read_at(offset, out);
        read.map_err(|error| self.beyond(&error, offset, bytes))
    }

    /// Writes bytes of it.
    ///
    /// # Errors
    /// [`Error::Bounds`]; nothing is written then.
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        let written = self.mr.region().whole().write_at(offset, data);
        written.map_err(|error| self.beyond(&error, offset, data.len()))
    }
}

/// See the module.
pub(crate) struct Domain {
    regions: Mutex<Vec<Region>>,
    // Before the device: it must be gone first.
    pd: Arc<dyn Pd>,
    context: Arc<dyn Context>,
}

impl Domain {
    pub(crate) fn new(agent: &Agent) -> Result<Arc<Self>, Error> {
        let context = agent.context();
        let pd = context.alloc_pd().map_err(|error| Error::agent(&error))?;
        Ok(Arc::new(Self { regions: Mutex::default(), pd, context }))
    }

    /// Makes memory that is zero.
    pub(crate) fn region(&self, name: &str, bytes: usize, rights: Rights) -> Result<Region, Error> {
        let wrong = |reason| Err(Error::Name { name: name.to_owned(), reason });
        if !is_service(name) {
            return wrong("1 to 64 letters, digits, '-', '_' or '.' are a name");
        }
        if bytes == 0 {
            return wrong("it has no bytes");
        }
        let mut regions = self.regions.lock();
        if regions.iter().any(|region| &*region.name == name) {
            return wrong("there is one of this name already");
        }
        if regions.len() >= MOST_REGIONS {
            return wrong("there are as many as peers can be told of");
        }
        let mr = self.memory(bytes, rights.access())?;
        let region = Region { name: name.into(), rights, mr };
        regions.push(region.clone());
        Ok(region)
    }

    /// Makes memory for this end alone, or for peers.
    pub(crate) fn memory(&self, bytes: usize, access: Access) -> Result<Arc<dyn Mr>, Error> {
        self.pd.alloc_mr(bytes, access).map_err(|error| Error::agent(&error))
    }

    pub(crate) fn acquire(&self, shape: ChannelShape) -> Result<Resources, ChannelError> {
        Resources::acquire_in(Arc::clone(&self.context), &self.pd, shape)
    }

    /// Returns what a peer is told of the regions.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let regions = self.regions.lock();
        let entry = |region: &Region| Entry {
            name: region.name.to_string(),
            addr: region.mr.addr(),
            rkey: region.mr.rkey(),
            bytes: region.bytes() as u64,
            read: region.rights.reads(),
            write: region.rights.writes(),
        };
        regions.iter().map(entry).collect()
    }
}
