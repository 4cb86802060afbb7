use super::*;
use std::os::unix::fs::{PermissionsExt as _, symlink};

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn device(&self, name: &str, uverbs: &str) -> String {
        let device = format!("sys/class/infiniband/{name}");
        self.put(&format!("{device}/node_type"), "1: CA\n");
        self.put(&format!("{device}/fw_ver"), "22.31.1014\n");
        self.put(&format!("{device}/parent"), "eth0\n");
        let port = format!("{device}/ports/1");
        self.put(&format!("{port}/state"), "4: ACTIVE\n");
        self.put(&format!("{port}/link_layer"), "Ethernet\n");
        self.put(&format!("{port}/rate"), "100 Gb/sec (4X EDR)\n");
        self.put(&format!("sys/class/infiniband_verbs/{uverbs}/ibdev"), &format!("{name}\n"));
        self.put(&format!("dev/infiniband/{uverbs}"), "");
        port
    }

    fn gid(&self, port: &str, index: u32, gid: &str, kind: &str) {
        self.put(&format!("{port}/gids/{index}"), &format!("{gid}\n"));
        if !kind.is_empty() {
            self.put(&format!("{port}/gid_attrs/types/{index}"), kind);
            self.put(&format!("{port}/gid_attrs/ndevs/{index}"), "eth0\n");
        }
    }

    fn roots(&self) -> Roots {
        Roots { sys: self.0.path().join("sys"), dev: self.0.path().join("dev") }
    }

    fn devices(&self) -> Result<Vec<DeviceReport>, Unavailable> {
        devices(&self.roots())
    }
}

const UNUSED: &str = "0000:0000:0000:0000:0000:0000:0000:0000";
const LINK_LOCAL: &str = "fe80:0000:0000:0000:5054:00ff:fe12:3456";
const V4: &str = "0000:0000:0000:0000:0000:ffff:0a00:0001";

#[test]
fn a_device_is_read_as_the_kernel_writes_it() {
    let tree = Tree::new();
    let port = tree.device("mlx5_0", "uverbs3");
    tree.gid(&port, 0, LINK_LOCAL, "IB/RoCE v1\n");
    tree.gid(&port, 1, LINK_LOCAL, "RoCE v2\n");
    tree.gid(&port, 10, V4, "RoCE v2\n");
    tree.gid(&port, 2, UNUSED, "");
    let mut found = tree.devices().unwrap();
    let addresses = [HostAddress { ip: "10.0.0.1".parse().unwrap(), netdev: "eth0".to_owned() }];
    add_gids(&tree.roots(), &mut found[0], &addresses);
    let [device] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(device.name, "mlx5_0");
    assert_eq!((device.node, device.problem.as_ref()), (NodeKind::ChannelAdapter, None));
    assert_eq!(device.firmware, "22.31.1014");
    assert!(device.device_file.as_ref().unwrap().ends_with("/uverbs3"));
    let port = &device.ports[0];
    assert_eq!((port.number, port.state), (1, PortState::Active));
    assert_eq!(
        (port.link, port.netdevs.as_slice()),
        (LinkLayer::Ethernet, &["eth0".to_owned()][..])
    );
    let seen: Vec<_> = port.gids.iter().map(|gid| (gid.index, gid.kind, gid.here)).collect();
    assert_eq!(
        seen,
        [(0, GidKind::RoceV1, false), (1, GidKind::RoceV2, false), (10, GidKind::RoceV2, true)]
    );
}

#[test]
fn an_infiniband_port_has_infiniband_gids() {
    let tree = Tree::new();
    let port = tree.device("mlx5_0", "uverbs0");
    tree.put(&format!("{port}/link_layer"), "InfiniBand\n");
    tree.put(&format!("{port}/state"), "2: INIT\n");
    tree.gid(&port, 0, LINK_LOCAL, "IB/RoCE v1\n");
    let mut found = tree.devices().unwrap();
    add_gids(&tree.roots(), &mut found[0], &[]);
    let port = &found[0].ports[0];
    assert_eq!((port.link, port.state), (LinkLayer::InfiniBand, PortState::Init));
    assert_eq!(port.gids[0].kind, GidKind::InfiniBand);
}

#[test]
fn a_gid_that_moved_is_found_again() {
    let tree = Tree::new();
    let port = tree.device("mlx5_0", "uverbs0");
    tree.gid(&port, 0, LINK_LOCAL, "RoCE v2\n");
    tree.gid(&port, 1, V4, "IB/RoCE v1\n");
    tree.gid(&port, 2, V4, "RoCE v2\n");
    let path = port_path(&tree.roots(), "mlx5_0", 1);
    let gid = Gid::from_ip("10.0.0.1".parse().unwrap());
    for hint in [0, 1, 2, 99] {
        assert_eq!(gid_index(&path, hint, gid, GidKind::RoceV2), Some(2), "from {hint}");
    }
    let other = Gid::from_ip("10.0.0.2".parse().unwrap());
    assert_eq!(gid_index(&path, 2, other, GidKind::RoceV2), None);
}

#[test]
fn what_is_missing_is_named() {
    let tree = Tree::new();
    assert!(matches!(tree.devices(), Err(Unavailable::NoModule(_))));
    fs::create_dir_all(tree.0.path().join("sys/class/infiniband")).unwrap();
    assert_eq!(tree.devices(), Err(Unavailable::NoDevice));

    tree.device("mlx5_0", "uverbs0");
    let problem = || tree.devices().unwrap()[0].problem.clone();
    assert_eq!(problem(), None);
    fs::remove_file(tree.0.path().join("dev/infiniband/uverbs0")).unwrap();
    let missing = problem().unwrap();
    assert!(matches!(missing, Unavailable::NoDeviceFile { .. }));
    assert!(missing.to_string().contains("--device"), "{missing}");

    fs::remove_dir_all(tree.0.path().join("sys/class/infiniband_verbs")).unwrap();
    let unreachable = problem().unwrap();
    assert!(unreachable.to_string().contains("modprobe ib_uverbs"), "{unreachable}");
}

#[test]
fn a_device_file_that_may_not_be_opened_is_named() {
    let tree = Tree::new();
    tree.device("mlx5_0", "uverbs0");
    let file = tree.0.path().join("dev/infiniband/uverbs0");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&file, 0o600);
    mode(tree.0.path(), 0o755);
    let roots = tree.roots();
    // Another user than the owner of the file: the change concerns this thread only.
    let problem = std::thread::spawn(move || {
        if rustix::process::getuid().is_root() {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
        } else {
            mode(Path::new(&roots.dev.join("infiniband/uverbs0")), 0o000);
        }
        devices(&roots).unwrap()[0].problem.clone()
    });
    let problem = problem.join().unwrap().unwrap();
    assert!(matches!(problem, Unavailable::Permission { .. }), "{problem:?}");
    let text = problem.to_string();
    assert!(text.contains("Permission denied") && text.contains("0666"), "{text}");
    // A file of the wrong kind is neither missing nor forbidden.
    fs::remove_file(&file).unwrap();
    symlink("uverbs0", &file).unwrap();
    let problem = tree.devices().unwrap()[0].problem.clone();
    assert!(matches!(problem, Some(Unavailable::Os { .. })), "{problem:?}");
}
