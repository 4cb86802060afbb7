//! Transfer mechanisms over verbs: the block pool and the status-byte protocol.
