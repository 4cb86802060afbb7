//! What a source gets of what it claims.
use crate::config::Settings;
use catchment_control::admission::{ClassId, DeviceSpec, PathId, SourceId};
use catchment_session::registration::{Register, RegisteredDevice};
use std::net::IpAddr;

/// A source that may register.
pub(crate) struct Admitted {
    pub(crate) path: PathId,
    pub(crate) specs: Vec<DeviceSpec>,
    /// By device: its class.
    pub(crate) classes: Vec<String>,
    /// What is not as it was claimed, with the place of the device.
    pub(crate) notes: Vec<(usize, String)>,
}

/// Returns what the devices of a source may do.
pub(crate) fn admit(
    settings: &Settings,
    register: &Register,
    from: IpAddr,
    certificate: Option<&str>,
) -> Result<Admitted, String> {
    register.check()?;
    let path = settings.path(from, &register.collector).ok_or_else(|| {
        format!("no [[path]] is for sources at {from} with the collector {}", register.collector)
    })?;
    let mut admitted = Admitted { path, specs: Vec::new(), classes: Vec::new(), notes: Vec::new() };
    for (place, device) in register.devices.iter().enumerate() {
        let mut notes = Vec::new();
        let (spec, class) = one(settings, device, path, certificate, &mut notes)?;
        admitted.notes.extend(notes.into_iter().map(|note| (place, note)));
        admitted.specs.push(spec);
        admitted.classes.push(class);
    }
    Ok(admitted)
}

fn one(
    settings: &Settings,
    device: &RegisteredDevice,
    path: PathId,
    certificate: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(DeviceSpec, String), String> {
    let name = &device.name;
    let rules = settings.rules(certificate, name.as_str());
    if rules.is_none() && !settings.allow.is_empty() {
        let who = certificate.unwrap_or("nobody in particular");
        return Err(format!("no [[allow]] lets {who} send device {name}"));
    }
    let names =
        || settings.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
    let last = settings.classes.len() - 1;
    let claimed = match &device.class {
        None => last,
        Some(class) => {
            settings.classes.iter().position(|known| known.name == *class).ok_or_else(|| {
                format!("device {name} claims a class that is not there; there are: {}", names())
            })?
        }
    };
    // The most urgent that is not more urgent than the claim, or else the last that it may have.
    let may = rules.map(|rules| &rules.classes);
    let at = may.map_or(claimed, |may| {
        let next = may.iter().copied().find(|at| *at >= claimed);
        next.or(may.last().copied()).unwrap_or(last)
    });
    let class = settings.classes[at].name.clone();
    if at != claimed && device.class.is_some() {
        let wanted = &settings.classes[claimed].name;
        notes.push(format!("device {name} may not claim class {wanted} and has {class}"));
    }
    let path_bps = settings.capacity_bps(path);
    let allowed_bps = rules.and_then(|rules| rules.rate_max_bps).unwrap_or(path_bps);
    let rate_bps = device.rate_max_bps.unwrap_or(path_bps).min(allowed_bps).min(path_bps).max(1);
    if device.rate_max_bps.is_some_and(|asked| asked > rate_bps) {
        notes.push(format!("device {name} gets at most {rate_bps} bit/s"));
    }
    let class_id = ClassId(u8::try_from(at).unwrap_or(u8::MAX));
    // The source is set by the controller's end.
    let mut spec = DeviceSpec::new(SourceId(0), path, class_id, rate_bps);
    spec.weight = rules.map_or(1, |rules| rules.weight);
    spec.small_bps = rules.map_or(0, |rules| rules.small_bps);
    spec.deadline_ns = device.deadline_us.map(|time_us| time_us.saturating_mul(1000));
    Ok((spec, class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EXAMPLE;
    use catchment_session::registration::Secret;

    fn ask(
        certificate: Option<&str>,
        device: &str,
        class: Option<&str>,
        rate_max_bps: Option<u64>,
    ) -> Result<Admitted, String> {
        let settings = Settings::parse(EXAMPLE, &"127.0.0.1:1".parse().unwrap()).unwrap();
        let device = RegisteredDevice {
            name: device.parse().unwrap(),
            class: class.map(str::to_owned),
            deadline_us: Some(5_000),
            rate_max_bps,
        };
        let register = Register::new(Secret([1; 16]), "other:1".to_owned(), vec![device]);
        admit(&settings, &register, "10.1.0.1".parse().unwrap(), certificate)
    }

    #[test]
    fn a_claim_beyond_what_is_allowed_gets_what_is_and_says_so() {
        let urgent = ask(Some("cam-host.lab"), "cam0", Some("urgent"), None).unwrap();
        assert_eq!((urgent.classes, urgent.notes.len()), (vec!["urgent".to_owned()], 0));
        assert_eq!((urgent.specs[0].weight, urgent.specs[0].deadline_ns), (2, Some(5_000_000)));
        assert_eq!(urgent.specs[0].rate_max_bps, 10_000_000_000, "of the certificate");
        let other = ask(Some("other.lab"), "cam0", Some("urgent"), Some(90_000_000_000)).unwrap();
        assert_eq!(other.classes, ["tolerant"]);
        assert!(other.notes[0].1.contains("may not claim class urgent"), "{:?}", other.notes);
        assert!(other.notes[1].1.contains("at most 20000000000"), "{:?}", other.notes);
    }

    #[test]
    fn without_a_class_a_device_has_the_last_and_a_wrong_one_is_refused() {
        assert_eq!(ask(Some("cam-host.lab"), "cam0", None, None).unwrap().classes, ["tolerant"]);
        let error = ask(Some("cam-host.lab"), "cam0", Some("vip"), None).err().unwrap();
        assert!(error.contains("urgent, tolerant"), "{error}");
    }
}
