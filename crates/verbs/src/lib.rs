//! The verbs vocabulary: providers, queue pairs, memory regions, work requests and completions.
