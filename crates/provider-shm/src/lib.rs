//! Verbs between processes of one host: sealed memfds, requests executed by the initiator.
