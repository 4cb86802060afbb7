//! Limits of the process.
use super::{Cable, assert_says};
use catchment_conformance::ALL;
use catchment_verbs::{Context as _, VerbsError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const LIMIT_BYTES: u64 = 256 << 10;
const ASKED_BYTES: usize = 1 << 20;

/// The limit is the process's, the right to exceed it a thread's: this one drops it.
pub(super) fn memlock() {
    let cable = Cable::new();
    let context = cable.open();
    let pd = context.alloc_pd().unwrap();
    let old = getrlimit(Resource::Memlock);
    let limit = Rlimit { current: Some(LIMIT_BYTES), ..old };
    let refused = std::thread::spawn(move || {
        let mine = capabilities(None).unwrap();
        let less = CapabilitySets { effective: mine.effective - CapabilitySet::IPC_LOCK, ..mine };
        set_capabilities(None, less).unwrap();
        setrlimit(Resource::Memlock, limit).unwrap();
        let small = pd.alloc_mr(4096, ALL).map(drop);
        let refused = pd.alloc_mr(ASKED_BYTES, ALL).err();
        setrlimit(Resource::Memlock, old).unwrap();
        small.unwrap();
        refused
    });
    let refused = refused.join().unwrap().unwrap();
    assert!(
        matches!(
            refused,
            VerbsError::MemoryLock {
                asked_bytes,
                limit_bytes: LIMIT_BYTES,
                ..
            } if asked_bytes == ASKED_BYTES as u64
        ),
        "{refused}"
    );
    assert_says(
        &refused.to_string(),
        &["1048576 bytes", "262144", "ulimit -l", "LimitMEMLOCK", "IPC_LOCK"],
    );
}
