//! What a stranger can write from docs/spec/shm.md: sockets, messages and memory, without a line of the crate.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use sha2::{Digest as _, Sha256};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) type Gid = [u8; 16];

pub(crate) const HELLO: u16 = 1;
pub(crate) const OPEN_QP: u16 = 2;
pub(crate) const RESOLVE: u16 = 3;
pub(crate) const TABLES: u16 = 101;
pub(crate) const QP: u16 = 102;
pub(crate) const REGION: u16 = 103;
pub(crate) const KNOWN: u16 = 104;
pub(crate) const REFUSED: u16 = 105;

pub(crate) const TOO_MANY: u32 = 7;

pub(crate) const VALID_BYTES: usize = 65_536 * 8;
pub(crate) const BELLS_BYTES: usize = 65_536 * 16;

fn address(name: &str) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

pub(crate) fn name(gid: Gid) -> String {
    let digest: [u8; 32] = Sha256::digest(gid).into();
    let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("catchment-shm-{hex}")
}

#[test]
fn the_name_is_that_of_the_page() {
    assert_eq!(name([0xab; 16]), "catchment-shm-5a2cfe8ab935918525d44fd6fd87c70f");
}

fn socket() -> OwnedFd {
    let (unix, seqpacket) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(unix, seqpacket, SocketFlags::CLOEXEC, None).unwrap()
}

pub(crate) fn listen(gid: Gid) -> OwnedFd {
    let fd = socket();
    rustix::net::bind(&fd, &address(&name(gid))).unwrap();
    rustix::net::listen(&fd, 16).unwrap();
    fd
}

pub(crate) struct Message {
    pub(crate) kind: u16,
    bytes: [u8; 64],
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Message {
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    pub(crate) fn gid(&self, at: usize) -> Gid {
        self.bytes[at..at + 16].try_into().unwrap()
    }
}

/// Returns the 64 bytes of a message.
pub(crate) fn message(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"CShm\x04\0".to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(rest);
    bytes.resize(64, 0);
    bytes
}

pub(crate) struct Socket(pub(crate) OwnedFd);

impl Socket {
    pub(crate) fn dial(gid: Gid) -> Self {
        Self::dial_name(&name(gid))
    }

    pub(crate) fn dial_name(name: &str) -> Self {
        let fd = socket();
        retry_on_intr(|| rustix::net::connect(&fd, &address(name))).unwrap();
        Self(fd)
    }

    /// Says Hello, and returns what is answered.
    pub(crate) fn hello(&self, ours: Gid, theirs: Gid) -> Option<Message> {
        self.send(HELLO, &[ours, theirs].concat(), &[]);
        self.receive()
    }

    pub(crate) fn accept(listener: &OwnedFd) -> Self {
        Self(rustix::net::accept_with(listener, SocketFlags::CLOEXEC).unwrap())
    }

    pub(crate) fn send(&self, kind: u16, rest: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        self.send_bytes(&message(kind, rest), descriptors)
    }

    /// Returns false if the other side has hung up already.
    pub(crate) fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let flags = SendFlags::NOSIGNAL;
        let pieces = &[IoSlice::new(bytes)];
        retry_on_intr(|| rustix::net::sendmsg(&self.0, pieces, &mut control, flags)).is_ok()
    }

    /// Returns the next message, or `None` after a hang-up.
    pub(crate) fn receive(&self) -> Option<Message> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = retry_on_intr(|| rustix::event::poll(&mut fds, Some(&patience)));
        assert_eq!(ready, Ok(1), "no answer");
        let mut bytes = [0; 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let pieces = &mut [IoSliceMut::new(&mut bytes)];
        let seen = rustix::net::recvmsg(&self.0, pieces, &mut control, flags).ok()?.bytes;
        if seen == 0 {
            return None;
        }
        assert_eq!((seen, &bytes[..6]), (64, &b"CShm\x04\0"[..]));
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        Some(Message { kind: u16::from_le_bytes([bytes[6], bytes[7]]), bytes, descriptors })
    }
}

/// Shared memory, mapped.
pub(crate) struct Memory {
    ptr: *mut u8,
    bytes: usize,
}

// SAFETY: nothing of it belongs to a thread, and all access is through pointers and atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the own mapping, of which no reference is left.
        let _ = unsafe { rustix::mm::munmap(self.ptr.cast(), self.bytes) };
    }
}

impl Memory {
    /// Creates memory with the seals of what peers may write.
    pub(crate) fn create(bytes: usize) -> (Self, OwnedFd) {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("second", flags).unwrap();
        rustix::fs::ftruncate(&fd, bytes as u64).unwrap();
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        (Self::map(fd.as_fd(), bytes, true), fd)
    }

    /// Checks and maps memory of a peer.
    pub(crate) fn of_peer(fd: &OwnedFd, bytes: usize, writable: bool) -> Self {
        assert!(rustix::fs::fcntl_get_seals(fd).unwrap().contains(SealFlags::SHRINK));
        assert_eq!(rustix::fs::fstatfs(fd).unwrap().f_type, 0x0102_1994);
        assert!(rustix::fs::fstat(fd).unwrap().st_size as usize >= bytes);
        Self::map(fd.as_fd(), bytes, writable)
    }

    fn map(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> Self {
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, writable);
        let (at, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping.
        let ptr = unsafe { rustix::mm::mmap(at, bytes, prot, flags, fd, 0) }.unwrap();
        Self { ptr: ptr.cast(), bytes }
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: inside of the mapping.
        unsafe { self.ptr.add(offset) }
    }

    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: mapped and aligned.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    pub(crate) fn count(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: mapped and aligned.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    pub(crate) fn put(&self, offset: usize, data: &[u8]) {
        // SAFETY: mapped for writing; no reference to these bytes exists.
        unsafe { self.at(offset, data.len()).copy_from(data.as_ptr(), data.len()) };
    }

    pub(crate) fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        // SAFETY: mapped; `out` has the length.
        unsafe { self.at(offset, bytes).copy_to(out.as_mut_ptr(), bytes) };
        out
    }
}
