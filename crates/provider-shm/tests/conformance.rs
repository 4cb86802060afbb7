//! The conformance suite on shared memory.
use catchment_provider_shm::ShmProvider;

catchment_conformance::conformance!(catchment_conformance::Bench::new(
    std::sync::Arc::new(ShmProvider::new()),
    "shm0",
));
