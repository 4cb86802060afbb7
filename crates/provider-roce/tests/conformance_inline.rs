//! The conformance suite with inline polling.
mod common;

catchment_conformance::conformance!(common::bench(
    "127.0.0.1",
    catchment_provider_roce::RoceOptions { inline_polling: true, ..common::any_port() }
));
