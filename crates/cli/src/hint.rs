//! Commands for the other side, which work as they are printed.
use crate::args::Security;
use crate::output::say;
use catchment::observe::Dashboard;
use catchment::session::io::Address;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;

/// A source for the collector that listens at `local`.
pub(crate) fn send(local: &Address, security: &Security) -> String {
    let address = dialled(local, security);
    format!("catchment send --input synthetic {address}{}", words(&address, security))
}

/// A collector at the address where a source looks for it.
pub(crate) fn collect(address: &Address, security: &Security) -> String {
    let words = words(address, &of_host(address, security));
    format!("catchment collect --listen {address} --out frames{words}")
}

/// What to open in a browser.
pub(crate) fn page(page: &Dashboard, security: &Security) -> String {
    let local = page.local_addr();
    page.url().replace(&local.to_string(), &dialled(&local.into(), security).to_string())
}

/// Says what `--insecure` means, where it means something.
pub(crate) fn warn_insecure(address: &Address, insecure: bool) {
    if insecure && is_remote(address) {
        say!(
            "warning: --insecure: nobody proves to be who they say at {address}, and whoever is on the \
             way can read and change everything; `catchment cert` makes certificates"
        );
    }
}

/// Returns whether other hosts can be meant by the address.
pub(crate) fn is_remote(address: &Address) -> bool {
    let Address::Tcp { host, .. } = address else { return false };
    let ip = host.parse::<IpAddr>();
    ip.map_or(host != "localhost", |ip| !ip.to_canonical().is_loopback())
}

/// The files of the host with this address: those of this side if they are for it, else those to which
/// `catchment cert` gives its name.
fn of_host(address: &Address, security: &Security) -> Security {
    let Address::Tcp { host, .. } = address else { return security.clone() };
    if security.files().is_none_or(|files| files.is_for(host)) {
        return security.clone();
    }
    let named = |path: &Option<PathBuf>, ending: &str| {
        let name = format!("{}.{ending}", host.replace(':', "_"));
        path.as_ref().map(|path| path.with_file_name(name))
    };
    let (cert, key) = (named(&security.cert, "pem"), named(&security.key, "key"));
    Security { cert, key, ..security.clone() }
}

/// The options that the address needs, with files that are on this host.
fn words(address: &Address, security: &Security) -> String {
    match security.files() {
        Some(files) => {
            let [cert, key, ca] = [&files.cert, &files.key, &files.ca].map(|path| path.display());
            let authenticate = if security.authenticate { " --authenticate" } else { "" };
            format!(" --cert {cert} --key {key} --ca {ca}{authenticate}")
        }
        None if security.insecure && is_remote(address) => " --insecure".to_owned(),
        None => String::new(),
    }
}

/// Where sources reach a collector: nobody can dial `0.0.0.0`.
fn dialled(local: &Address, security: &Security) -> Address {
    let Address::Tcp { host, port } = local else { return local.clone() };
    let any = match host.parse::<IpAddr>() {
        Ok(any) if any.is_unspecified() => any,
        _ => return local.clone(),
    };
    let addresses = [any, Ipv4Addr::UNSPECIFIED.into()].into_iter().filter_map(outward);
    let mut known: Vec<String> = addresses.map(|ip| ip.to_string()).collect();
    let files = security.files();
    if files.is_some() {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        known.push(name.trim().to_owned());
    }
    known.push("localhost".to_owned());
    let fits = |host: &&String| files.as_ref().is_none_or(|files| files.is_for(host));
    let host = known.iter().find(fits).unwrap_or(&known[0]).clone();
    Address::Tcp { host, port: *port }
}

/// The address by which this host reaches others; nothing is sent to find it.
fn outward(any: IpAddr) -> Option<IpAddr> {
    let far: IpAddr = match any {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(insecure: bool) -> Security {
        Security { cert: None, key: None, ca: None, insecure, authenticate: false }
    }

    #[test]
    fn hints_can_be_pasted() {
        let local = |text: &str| text.parse::<Address>().unwrap();
        let plain = send(&local("127.0.0.1:7"), &open(false));
        assert_eq!(plain, "catchment send --input synthetic 127.0.0.1:7");
        let insecure = send(&local("10.0.0.1:7"), &open(true));
        assert_eq!(insecure, "catchment send --input synthetic 10.0.0.1:7 --insecure");
        for any in ["0.0.0.0:7", "[::]:7"] {
            let somewhere = send(&local(any), &open(true));
            assert!(!somewhere.contains("0.0.0.0") && !somewhere.contains("[::]"), "{somewhere}");
            assert!(somewhere.contains(":7"), "{somewhere}");
        }
        let back = collect(&local("[fd00::1]:7"), &open(true));
        assert_eq!(back, "catchment collect --listen [fd00::1]:7 --out frames --insecure");
        assert!(!collect(&local("localhost:7"), &open(true)).contains("insecure"));
    }
}
