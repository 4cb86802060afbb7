//! Machines without libibverbs: everything reports it, nothing panics.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider, NoDevice, Unavailable};
use catchment_verbs::{Provider as _, VerbsError};
use std::path::PathBuf;

fn provider(library: &str) -> IbverbsProvider {
    IbverbsProvider::new(IbverbsOptions {
        library: PathBuf::from(library),
        ..IbverbsOptions::default()
    })
}

#[test]
fn a_missing_library_is_an_error_that_says_how_to_install_it() {
    let provider = provider("libibverbs-that-nobody-has.so.1");
    for error in [provider.devices().unwrap_err(), provider.open("mlx5_0").err().unwrap()] {
        assert!(matches!(error, VerbsError::Unavailable { provider: "ibverbs", .. }));
        let text = error.to_string();
        for part in ["libibverbs-that-nobody-has.so.1", "apt install", "dnf install"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
    let reason = provider.device_for("127.0.0.1".parse().unwrap());
    assert!(matches!(reason, Err(NoDevice::Unavailable(Unavailable::NoLibrary(_)))));
    assert!(matches!(provider.report().library, Err(Unavailable::NoLibrary(_))));
}

#[test]
fn a_library_that_is_something_else_is_an_error_that_names_what_it_lacks() {
    // Every program here has this one loaded.
    let error = provider("libc.so.6").devices().unwrap_err().to_string();
    for part in ["libc.so.6", "ibv_get_device_list@IBVERBS_1.1"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn a_machine_has_devices_or_a_reason_why_not() {
    match IbverbsProvider::new(IbverbsOptions::default()).report().devices {
        Ok(devices) => assert!(!devices.is_empty()),
        Err(reason) => {
            assert!(matches!(reason, Unavailable::NoModule(_) | Unavailable::NoDevice), "{reason}")
        }
    }
}
