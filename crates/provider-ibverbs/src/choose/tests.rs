use super::*;
use crate::Unavailable;
use crate::report::GidReport;

fn address(ip: &str, netdev: &str) -> HostAddress {
    HostAddress { ip: ip.parse().unwrap(), netdev: netdev.to_owned() }
}

fn addresses() -> Vec<HostAddress> {
    vec![
        address("127.0.0.1", "lo"),
        address("10.0.0.1", "eth0"),
        address("fd00::1", "eth0"),
        address("fe80::1", "eth0"),
        address("192.168.1.9", "wlan0"),
        address("10.0.1.1", "eth1"),
        address("10.0.3.1", "eth3"),
        address("10.0.4.1", "ib0"),
        address("10.0.5.1", "eth5"),
    ]
}

fn gid(index: u32, ip: &str, kind: GidKind, netdev: &str) -> GidReport {
    let gid = Gid::from_ip(ip.parse().unwrap());
    GidReport::new(index, gid, kind, Some(netdev.to_owned()), &addresses())
}

fn port(number: u8, state: PortState, link: LinkLayer, gids: Vec<GidReport>) -> PortReport {
    let mut port = PortReport {
        number,
        state,
        link,
        active_mtu_bytes: Some(1024),
        max_mtu_bytes: Some(4096),
        rate: "100 Gb/sec (4X EDR)".to_owned(),
        netdevs: Vec::new(),
        gids: Vec::new(),
    };
    port.set_gids(gids);
    port
}

fn device(name: &str, node: NodeKind, ports: Vec<PortReport>) -> DeviceReport {
    DeviceReport {
        name: name.to_owned(),
        node,
        driver: None,
        firmware: String::new(),
        device_file: None,
        problem: None,
        ports,
    }
}

/// `mlx0` works; `mlx1` has a port that is down and one without the addresses of this namespace,
/// `mlx2` is RoCE v1 only, `mlx3` InfiniBand, `siw0` iWARP.
fn devices() -> Vec<DeviceReport> {
    use GidKind::{InfiniBand, RoceV1, RoceV2};
    let up = PortState::Active;
    let rdma = |name, ports| device(name, NodeKind::ChannelAdapter, ports);
    let ethernet = |number, state, gids| port(number, state, LinkLayer::Ethernet, gids);
    let working = vec![
        gid(0, "fe80::1", RoceV1, "eth0"),
        gid(1, "fe80::1", RoceV2, "eth0"),
        gid(2, "10.0.0.1", RoceV1, "eth0"),
        gid(3, "10.0.0.1", RoceV2, "eth0"),
        gid(5, "fd00::1", RoceV2, "eth0"),
    ];
    let down = ethernet(1, PortState::Down, vec![gid(3, "10.0.1.1", RoceV2, "eth1")]);
    let elsewhere = ethernet(2, up, vec![gid(7, "10.0.2.1", RoceV2, "eth2")]);
    let infiniband = vec![gid(0, "fe80::77", InfiniBand, "ib0")];
    let iwarp = ethernet(1, up, vec![gid(0, "fe80::99", GidKind::Unknown, "eth5")]);
    vec![
        rdma("mlx0", vec![ethernet(1, up, working)]),
        rdma("mlx1", vec![down, elsewhere]),
        rdma("mlx2", vec![ethernet(1, up, vec![gid(0, "10.0.3.1", RoceV1, "eth3")])]),
        rdma("mlx3", vec![port(1, up, LinkLayer::InfiniBand, infiniband)]),
        device("siw0", NodeKind::Iwarp, vec![iwarp]),
    ]
}

fn chosen(address: &str) -> Result<String, NoDevice> {
    Ok(by_address(address.parse().unwrap(), &devices(), &addresses())?.to_string())
}

#[test]
fn an_address_stands_for_its_roce_v2_gid() {
    for (address, place) in [
        ("10.0.0.1", "mlx0/1/3"),
        ("::ffff:10.0.0.1", "mlx0/1/3"),
        ("fd00::1", "mlx0/1/5"),
        ("fe80::1", "mlx0/1/1"),
    ] {
        assert_eq!(chosen(address).as_deref(), Ok(place), "{address}");
    }
}

#[test]
fn a_reason_says_why_an_address_has_no_device() {
    let reason = |address: &str| chosen(address).unwrap_err();
    assert!(matches!(reason("10.9.9.9"), NoDevice::NotLocal(_)));
    assert!(matches!(
        reason("10.0.2.1"),
        NoDevice::OtherNamespace { device, port: 2, index: 7, .. } if device == "mlx1"
    ));
    for (address, interface) in [("192.168.1.9", "wlan0"), ("127.0.0.1", "lo")] {
        assert!(matches!(
            reason(address),
            NoDevice::NoRdma { netdev, known, .. }
                if netdev == interface && known.contains(&"mlx0 on eth0".to_owned())
        ));
    }
    assert!(matches!(
        reason("10.0.1.1"),
        NoDevice::PortDown { device, port: 1, state: PortState::Down, .. } if device == "mlx1"
    ));
    assert!(matches!(
        reason("10.0.3.1"),
        NoDevice::OnlyRoceV1 { device, .. } if device == "mlx2"
    ));
    assert!(matches!(reason("10.0.4.1"), NoDevice::NotRoce { kind: "InfiniBand", .. }));
    assert!(matches!(reason("10.0.5.1"), NoDevice::NotRoce { kind: "iWARP", .. }));
}

#[test]
fn an_address_that_the_table_lacks_is_named() {
    let mut devices = devices();
    devices[0].ports[0].gids.truncate(2);
    let error = by_address("10.0.0.1".parse().unwrap(), &devices, &addresses()).unwrap_err();
    assert!(matches!(&error, NoDevice::NoGid { device, .. } if device == "mlx0"));
    assert!(error.to_string().contains("ip address show eth0"), "{error}");
}

#[test]
fn a_device_that_cannot_be_opened_is_named() {
    let mut devices = devices();
    devices[0].problem = Some(Unavailable::Permission {
        device: "mlx0".to_owned(),
        path: "/dev/infiniband/uverbs0".to_owned(),
        reason: "Permission denied".to_owned(),
    });
    let found = by_address("10.0.0.1".parse().unwrap(), &devices, &addresses());
    let error = found.unwrap_err().to_string();
    for part in ["10.0.0.1", "mlx0", "/dev/infiniband/uverbs0", "permission"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

fn opened(name: &str) -> Result<String, VerbsError> {
    let parsed = name.parse().map_err(VerbsError::Invalid)?;
    Ok(resolve(name, &parsed, &devices(), &addresses())?.to_string())
}

#[test]
fn names_stand_for_devices_ports_and_gids() {
    for (name, place) in [
        ("mlx0", "mlx0/1/3"),
        ("mlx0/1", "mlx0/1/3"),
        ("mlx0/1/5", "mlx0/1/5"),
        ("mlx0/1/2", "mlx0/1/2"),
        ("10.0.0.1", "mlx0/1/3"),
        ("[fd00::1]", "mlx0/1/5"),
    ] {
        assert_eq!(opened(name).unwrap(), place, "{name}");
    }
}

#[test]
fn a_name_that_stands_for_nothing_is_an_error_that_helps() {
    for (name, part) in [
        ("mlx9", "mlx1/2"),
        ("mlx0/2", "mlx0"),
        ("mlx0/1/9", "10.0.0.1 (RoCE v2, eth0)"),
        ("mlx1/1", "DOWN"),
        ("mlx1/2", "network namespace"),
        ("mlx1", "DOWN"),
        ("mlx3", "InfiniBand"),
        ("siw0", "iWARP"),
        ("10.9.9.9", "no network interface"),
        ("", "no name"),
        ("mlx0/x", "1 to 255"),
        ("mlx0/0", "1 to 255"),
        ("mlx0/300", "1 to 255"),
        ("mlx0/1/x", "not a number"),
        ("mlx0/1/2/3", "too many slashes"),
    ] {
        let error = opened(name).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {part:?} is not in {error:?}");
    }
}

#[test]
fn ports_of_a_device_with_several_have_names_of_their_own() {
    assert_eq!(names(&devices()), ["mlx0", "mlx1/1", "mlx1/2", "mlx2", "mlx3", "siw0"]);
}
