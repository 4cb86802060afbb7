//! One conformance suite for every verbs provider.
