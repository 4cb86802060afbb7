//! The modules on the way of a block, and the lines of them that may lock or allocate.

/// Modules on the way of a block, and what runs there for it. A folder ends with a slash.
pub(super) const MODULES: &[(&str, &str)] = &[
    (
        "crates/catchment/src/source/device.rs",
        "frame, commit: a block is claimed and posted",
    ),
    (
        "crates/catchment/src/source/link.rs",
        "the link that a frame goes to, and its waits",
    ),
    (
        "crates/catchment/src/source/shared.rs",
        "whether a source is open, asked for each frame",
    ),
    (
        "crates/catchment/src/collector/stream.rs",
        "blocks become frames, in order",
    ),
    ("crates/catchment/src/source/writer.rs", "a frame is filled"),
    (
        "crates/catchment/src/collector/receive/intake.rs",
        "blocks are taken from the rings",
    ),
    (
        "crates/catchment/src/collector/receive/sessions.rs",
        "which session has the next turn",
    ),
    (
        "crates/catchment/src/collector/receive/thread.rs",
        "sessions have their turns",
    ),
    (
        "crates/catchment/src/collector/growing.rs",
        "blocks wait for a worker",
    ),
    (
        "crates/catchment/src/collector/handover.rs",
        "a stream passes to a worker",
    ),
    (
        "crates/catchment/src/collector/ready.rs",
        "workers find streams, or sleep",
    ),
    (
        "crates/catchment/src/collector/workers.rs",
        "frames go to sinks",
    ),
    ("crates/catchment/src/source/gate.rs", "a commit goes in"),
    ("crates/catchment/src/source/fill.rs", "a frame is filled"),
    (
        "crates/catchment/src/collector/block.rs",
        "a block is released",
    ),
    (
        "crates/catchment/src/collector/staging.rs",
        "memory for frames of several blocks is counted",
    ),
    (
        "crates/catchment/src/collector/device.rs",
        "a frame goes to the sink of its device",
    ),
    ("crates/observe/src/histogram.rs", "latencies are counted"),
    ("crates/transfer/src/sender/", "claim, fill, commit, post"),
    ("crates/transfer/src/receiver/", "look, take, release"),
    (
        "crates/transfer/src/slot.rs",
        "a slot is published, taken and released",
    ),
    ("crates/transfer/src/commit.rs", "the commit word"),
    ("crates/transfer/src/status.rs", "status bytes"),
    ("crates/transfer/src/header.rs", "the header of a block"),
    (
        "crates/transfer/src/order.rs",
        "blocks of a stream in order",
    ),
    ("crates/transfer/src/checksum.rs", "checksum of a block"),
    ("crates/transfer/src/counters.rs", "blocks are counted"),
    ("crates/transfer/src/layout.rs", "where a slot lies"),
    ("crates/transfer/src/memory.rs", "a ring's memory"),
    ("crates/transfer/src/mirror.rs", "slots that are free"),
    ("crates/transfer/src/permit.rs", "asked before a claim"),
    (
        "crates/transfer/src/refill.rs",
        "when status bytes are read",
    ),
    (
        "crates/transfer/src/releases.rs",
        "when status bytes are written",
    ),
    ("crates/verbs/src/mem/", "a block is filled and read"),
    ("crates/verbs/src/wait/arm.rs", "whether somebody sleeps"),
    ("crates/verbs/src/wait/backoff.rs", "how long to sleep"),
    ("crates/verbs/src/wait/doorbell.rs", "sleepers are rung"),
    (
        "crates/verbs/src/wait/waiter.rs",
        "what to do between polls",
    ),
    (
        "crates/provider-shm/src/one_sided.rs",
        "WRITE and READ of a block",
    ),
    (
        "crates/provider-shm/src/qp/mod.rs",
        "a work request is posted",
    ),
    (
        "crates/provider-shm/src/keys.rs",
        "memory of a block is found by its key",
    ),
    (
        "crates/provider-shm/src/local.rs",
        "memory of a request is found",
    ),
    (
        "crates/provider-shm/src/remote.rs",
        "memory of a peer is found",
    ),
    ("crates/provider-roce/src/qp/", "a work request is posted"),
    (
        "crates/provider-roce/src/engine/",
        "packets of a block, both ways",
    ),
];

/// Lines that may stand in these modules: file, a part of the line, and why. At most
/// [`MOST_EXCEPTIONS`].
pub(super) const HOT_PATH_EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "crates/catchment/src/source/shared.rs",
        "backlog: Mutex<Backlog>",
        "locked only while frames wait in the source's memory",
    ),
    (
        "crates/catchment/src/source/shared.rs",
        "drained: Condvar",
        "waited on only while frames wait in the source's memory",
    ),
    (
        "crates/catchment/src/source/writer.rs",
        "Target::Staged(Vec::with_capacity(bytes))",
        "memory for a frame that finds no free block, or is larger than one",
    ),
    (
        "crates/catchment/src/collector/ready.rs",
        "needed: EventCount",
        "locked only by a worker that goes to sleep, and by who wakes one",
    ),
    (
        "crates/verbs/src/mem/region.rs",
        "format!(\"/proc/self/fd/{}\"",
        "a region is handed to a peer once, before its first block",
    ),
    (
        "crates/provider-shm/src/qp/mod.rs",
        "Vec::with_capacity(wr.sges.len())",
        "a block is a WRITE, which takes no receive",
    ),
    (
        "crates/provider-shm/src/keys.rs",
        "slots: RwLock<KeySlots",
        "read when a queue pair meets a key for the first time",
    ),
    (
        "crates/catchment/src/collector/device.rs",
        "sink: Mutex<Option<Box<dyn DeviceSink>>>",
        "locked when a session borrows the sink and gives it back",
    ),
    (
        "crates/catchment/src/collector/device.rs",
        "Box::new(NullSink)",
        "a box of nothing, made when a session gives the sink back",
    ),
    (
        "crates/provider-roce/src/engine/table.rs",
        "Box::new(make(place.qpn))",
        "a queue pair is created before its first block",
    ),
];
