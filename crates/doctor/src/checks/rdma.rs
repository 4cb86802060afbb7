//! RDMA through libibverbs: library, modules, devices, memory that may be locked.
use super::facts::{Facts, binary};
use super::{Check, Works};
use catchment_provider_ibverbs::{
    DeviceReport, GidKind, PortReport, PortState, Report, Unavailable,
};

/// Number of `CAP_IPC_LOCK`, with which no limit of locked memory holds.
const CAP_IPC_LOCK: u32 = 14;
/// What one source's ring takes by default at most: it is registered, and so locked.
const LOCKED_WANTED: u64 = 1 << 30;
const MODULES: [&str; 8] =
    ["ib_core", "ib_uverbs", "rdma_cm", "rdma_rxe", "siw", "mlx5_ib", "irdma", "bnxt_re"];

pub(super) struct Rdma {
    library: Result<String, String>,
    modules: Vec<&'static str>,
    devices: Vec<Device>,
    no_devices: Option<String>,
    memlock_bytes: Option<u64>,
    may_lock_all: bool,
}

struct Device {
    name: String,
    problem: Option<String>,
    ports: Vec<String>,
    /// A port of it carries packets and has a RoCE v2 GID of this network namespace.
    is_usable: bool,
}

impl Rdma {
    pub(super) fn of(report: &Report, facts: &Facts) -> Self {
        let devices = report.devices.as_ref();
        Self {
            library: report.library.clone().map_err(|why| why.to_string()),
            modules: MODULES.into_iter().filter(|m| facts.has_module(m)).collect(),
            devices: devices.map_or(Vec::new(), |all| all.iter().map(device).collect()),
            no_devices: report.devices.as_ref().err().map(Unavailable::to_string),
            memlock_bytes: report.memlock_bytes,
            may_lock_all: facts.has_capability(CAP_IPC_LOCK),
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        self.library.is_ok() && self.devices.iter().any(|device| device.is_usable)
    }

    pub(super) fn works(&self) -> Works {
        let how = match (&self.library, &self.no_devices) {
            (Err(why), _) | (Ok(_), Some(why)) => why.clone(),
            (Ok(_), None) if self.is_usable() => {
                let usable = self.devices.iter().filter(|device| device.is_usable);
                let names: Vec<&str> = usable.map(|device| device.name.as_str()).collect();
                format!("through {}", names.join(", "))
            }
            (Ok(_), None) => "no device can be used; its check says why".to_owned(),
        };
        Works { name: catchment_provider_ibverbs::INFO.name, works: self.is_usable(), how }
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.library(), self.modules()];
        checks.extend(self.devices.iter().map(Device::check));
        checks.push(self.memlock());
        checks
    }

    fn library(&self) -> Check {
        let name = "libibverbs";
        match &self.library {
            Ok(path) => Check::ok(name, path),
            Err(why) if self.devices.is_empty() => {
                Check::note(name, why, "only RDMA devices need it: roce does without")
            }
            Err(why) => Check::problem(
                name,
                why,
                "there is an RDMA device, which nothing can use without the library",
            ),
        }
    }

    fn modules(&self) -> Check {
        let name = "modules";
        let seen = if self.modules.is_empty() {
            "no RDMA module is loaded".to_owned()
        } else {
            format!("loaded: {}", self.modules.join(", "))
        };
        match &self.no_devices {
            Some(why) => Check::note(name, format!("{seen}; {why}"), "without RDMA there is roce"),
            None => Check::ok(name, seen),
        }
    }

    fn memlock(&self) -> Check {
        let name = "memlock";
        let Some(limit) = self.memlock_bytes else {
            return Check::ok(name, "no limit of locked memory");
        };
        let seen = format!("this process may lock {}", binary(limit));
        if self.may_lock_all {
            return Check::ok(name, format!("{seen}, and more by CAP_IPC_LOCK"));
        }
        if limit >= LOCKED_WANTED {
            return Check::ok(name, seen);
        }
        if self.devices.is_empty() {
            return Check::ok(name, format!("{seen}; only RDMA devices need more"));
        }
        Check::problem(
            name,
            format!(
                "{seen}; a source's ring, which an RDMA device locks, takes up to {}",
                binary(LOCKED_WANTED)
            ),
            "ulimit -l unlimited; in a systemd unit LimitMEMLOCK=infinity; for a user a line \
             `* - memlock unlimited` in /etc/security/limits.d; podman --ulimit memlock=-1:-1; in \
             Kubernetes the capability IPC_LOCK, as root in the container",
        )
    }
}

fn device(report: &DeviceReport) -> Device {
    let is_usable = |port: &PortReport| {
        let here =
            |gid: &catchment_provider_ibverbs::GidReport| gid.here && gid.kind == GidKind::RoceV2;
        port.state == PortState::Active && port.gids.iter().any(here)
    };
    Device {
        name: report.name.clone(),
        problem: report.problem.as_ref().map(Unavailable::to_string),
        ports: report.ports.iter().map(port).collect(),
        is_usable: report.problem.is_none() && report.ports.iter().any(is_usable),
    }
}

fn port(port: &PortReport) -> String {
    let gids = port.gids.iter().filter(|gid| gid.here);
    let gids: Vec<String> = gids.map(|gid| format!("{} ({})", gid.gid.ip(), gid.kind)).collect();
    let gids = if gids.is_empty() {
        "no GID of this network namespace".to_owned()
    } else {
        gids.join(", ")
    };
    let mtu = port.active_mtu_bytes.map_or(String::new(), |mtu| format!(", path MTU {mtu}"));
    format!(
        "port {} {} on {}{mtu}, {}, {gids}",
        port.number,
        port.state,
        port.netdevs.join(", "),
        port.rate
    )
}

impl Device {
    fn check(&self) -> Check {
        let name = "device";
        let seen = format!("{}: {}", self.name, self.ports.join("; "));
        if let Some(problem) = &self.problem {
            return Check::problem(
                name,
                format!("{}: {problem}", self.name),
                "as it says; docs/guide/rdma-in-containers.md has what a container needs",
            );
        }
        if self.is_usable {
            return Check::ok(name, seen);
        }
        Check::note(
            name,
            seen,
            "it needs a port that is ACTIVE (ip link set dev ... up) and a RoCE v2 GID of an \
             interface in this network namespace (ip address add ...)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Level;

    fn rnic(problem: Option<&str>, is_usable: bool) -> Device {
        Device {
            name: "mlx5_0".to_owned(),
            problem: problem.map(str::to_owned),
            ports: vec!["port 1 ACTIVE on eth0".to_owned()],
            is_usable,
        }
    }

    fn machine(devices: Vec<Device>) -> Rdma {
        Rdma {
            library: Ok("/usr/lib/libibverbs.so.1".to_owned()),
            modules: vec!["ib_core", "ib_uverbs"],
            devices,
            no_devices: None,
            memlock_bytes: Some(8 << 20),
            may_lock_all: false,
        }
    }

    fn level(rdma: &Rdma, name: &str) -> Level {
        rdma.checks().iter().find(|check| check.name == name).unwrap().level
    }

    #[test]
    fn a_small_limit_of_locked_memory_is_a_problem_where_there_is_a_device() {
        let check = machine(vec![rnic(None, true)]).memlock();
        assert_eq!(check.level, Level::Problem);
        assert!(check.seen.contains("8 MiB"), "{check:?}");
        let remedy = check.remedy.unwrap();
        for words in ["LimitMEMLOCK", "IPC_LOCK", "--ulimit memlock=-1:-1"] {
            assert!(remedy.contains(words), "{remedy}");
        }
        let may = Rdma { may_lock_all: true, ..machine(vec![rnic(None, true)]) };
        assert_eq!(level(&may, "memlock"), Level::Ok);
        assert_eq!(level(&machine(Vec::new()), "memlock"), Level::Ok);
    }

    #[test]
    fn a_machine_without_rdma_has_notes_and_no_problem() {
        let none = Rdma {
            library: Err("libibverbs cannot be loaded".to_owned()),
            no_devices: Some("the kernel knows no RDMA".to_owned()),
            modules: Vec::new(),
            ..machine(Vec::new())
        };
        assert!(none.checks().iter().all(|c| c.level < Level::Problem));
        let works = none.works();
        assert!(!works.works && works.how.contains("cannot be loaded"));
    }

    #[test]
    fn a_device_that_nothing_can_reach_is_a_problem() {
        let no_library = Rdma {
            library: Err("libibverbs cannot be loaded".to_owned()),
            ..machine(vec![rnic(None, true)])
        };
        assert_eq!(level(&no_library, "libibverbs"), Level::Problem);
        assert!(!no_library.is_usable());
        let hidden = machine(vec![rnic(Some("no permission for /dev/infiniband/uverbs0"), false)]);
        assert_eq!(level(&hidden, "device"), Level::Problem);
        assert!(!hidden.is_usable());
        assert_eq!(level(&machine(vec![rnic(None, false)]), "device"), Level::Note);
        let works = machine(vec![rnic(None, true)]).works();
        assert_eq!((works.works, works.how.as_str()), (true, "through mlx5_0"));
    }
}
