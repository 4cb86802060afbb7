//! What must hold for any file of a controller: shared by the fuzz target and the ordinary test of its corpus.
use catchment_control::admission::{Controller, Output};
use catchment_controller::config::Settings;

/// Checks a file. One that is refused is refused with its line; one that is read has names that it declares, and a
/// controller can be made of it, or it is said why not.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let listen = "127.0.0.1:7118".parse().expect("an address");
    let read = Settings::parse(text, &listen);
    assert_eq!(read, Settings::parse(text, &listen), "it is read the same each time");
    let settings = match read {
        Ok(settings) => settings,
        Err(error) => {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&error.line), "line {} of {lines}", error.line);
            assert!(!error.what.is_empty() && !error.remedy.is_empty(), "{error}");
            return;
        }
    };
    let (links, classes) = (settings.links.len(), settings.classes.len());
    assert!(settings.paths.iter().flat_map(|path| &path.links).all(|link| *link < links));
    assert!(settings.allow.iter().flat_map(|allow| &allow.classes).all(|class| *class < classes));
    ask(&settings);
    let Ok(mut controller) = Controller::new(1_000_000_000, settings.admission()) else { return };
    let rests = (0..100).any(|_| matches!(controller.poll(), Output::Timeout(_)));
    assert!(rests, "nobody has asked for anything");
    assert_eq!(settings.fixed_difference(&settings), None);
}

/// Asks what a controller asks of its settings when a source comes.
fn ask(settings: &Settings) {
    let hosts = ["", "collector.lab", "collector.lab:7117", "unix:/run/collector"];
    let froms = ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1"].map(|from| from.parse().expect("one"));
    for (from, host) in froms.into_iter().zip(hosts.into_iter().cycle()) {
        let Some(path) = settings.path(from, host) else { continue };
        let capacity_bps = settings.capacity_bps(path);
        assert!(capacity_bps > 0, "a path has links, and each carries something");
        let parts = u64::from(settings.safe_sources) + u64::from(settings.safe_parts_more());
        let safe_bps = settings.safe_part_bps(path).saturating_mul(parts);
        assert!(safe_bps <= capacity_bps, "safe rates fit together: {safe_bps}");
    }
    for certificate in ["", "cam-host.lab", "a*b"] {
        let rules = settings.rules(Some(certificate), "cam7");
        assert!(rules.is_none_or(|rules| rules.weight > 0 && !rules.classes.is_empty()));
        let is_named = settings.allow.iter().any(|allow| allow.is_admin);
        assert!(is_named || !settings.is_admin(certificate), "nobody is called admin");
    }
}
