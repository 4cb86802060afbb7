//! Unnamed namespaces, and the veth pair that joins two.
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Output};
use std::time::Duration;
use std::{io, thread};

const OWN: &str = "/proc/thread-self/ns/net";
const INTERFACE: &str = "veth0";
/// How long to wait for the first packet before sending another, and how often.
const ASK_AGAIN: Duration = Duration::from_millis(10);
const ASK_MAX: usize = 1000;

/// A namespace or its network could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// A system call failed.
    #[error(
        "{call}: {source} (network namespaces need root, or user namespaces: try unshare -Urn)"
    )]
    Os {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// `ip` or `tc` is missing or failed.
    #[error("{program} {arguments}: {reason} (`{program}` is in the package iproute2)")]
    Tool {
        /// Which of them.
        program: &'static str,
        /// Its arguments.
        arguments: String,
        /// Its error message.
        reason: String,
    },
}

pub(crate) fn os(call: &'static str) -> impl Fn(rustix::io::Errno) -> NetnsError {
    move |errno| NetnsError::Os { call, source: errno.into() }
}

/// An unnamed network namespace.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// Creates a namespace with its loopback up.
    ///
    /// # Errors
    /// [`NetnsError`].
    pub fn new() -> Result<Self, NetnsError> {
        // On a thread of its own, so that the caller stays in its namespace.
        let made = thread::scope(|scope| scope.spawn(unshared).join());
        let namespace = match made {
            Ok(made) => Self { fd: made? },
            Err(panic) => std::panic::resume_unwind(panic),
        };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Returns a path by which other programs of this host reach the namespace while this value lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    /// Opens the namespace at the [`Namespace::path`] of another process.
    ///
    /// # Errors
    /// [`NetnsError::Os`].
    pub fn open(path: &str) -> Result<Self, NetnsError> {
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(os("open of a namespace"))?;
        Ok(Self { fd })
    }

    /// Runs `work` on a thread inside. Sockets that it opens and processes that it starts stay inside.
    ///
    /// # Errors
    /// [`NetnsError::Os`] if the namespace cannot be entered.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        let inside = || {
            self.enter()?;
            Ok(work())
        };
        match thread::scope(|scope| scope.spawn(inside).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Moves the calling thread inside permanently.
    ///
    /// # Errors
    /// [`NetnsError::Os`].
    pub fn enter(&self) -> Result<(), NetnsError> {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(self.fd.as_fd(), kind).map_err(os("setns"))
    }

    /// Runs ip(8) inside.
    ///
    /// # Errors
    /// [`NetnsError::Tool`] with its error message.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), NetnsError> {
        self.tool("ip", arguments).map(drop)
    }

    /// Runs tc(8) inside.
    ///
    /// # Errors
    /// [`NetnsError::Tool`] with its error message.
    pub fn tc(&self, arguments: &[&str]) -> Result<(), NetnsError> {
        self.tool("tc", arguments).map(drop)
    }

    /// Runs a program of iproute2 inside; returns what it prints.
    pub(crate) fn tool(
        &self,
        program: &'static str,
        arguments: &[&str],
    ) -> Result<String, NetnsError> {
        let refused = |reason: String| {
            let arguments = arguments.join(" ");
            NetnsError::Tool { program, arguments, reason }
        };
        let output = self.run(|| Command::new(program).args(arguments).output())?;
        match output {
            Ok(Output { status, stdout, .. }) if status.success() => {
                Ok(String::from_utf8_lossy(&stdout).into_owned())
            }
            Ok(output) => Err(refused(String::from_utf8_lossy(&output.stderr).trim().into())),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// Lets the first processor take all that arrives at an interface: two may put packets into another order.
    ///
    /// # Errors
    /// [`NetnsError::Os`]: not everybody may mount sysfs, and not each kernel steers.
    pub(crate) fn steer(&self, interface: &str) -> Result<(), NetnsError> {
        let set = || {
            // The mounts of this thread alone, which ends after that; `/sys` then shows the interfaces of this namespace.
            // SAFETY: as `unshared`; a thread's mounts concern no memory either.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", private)?;
            rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", MountFlags::empty(), None)?;
            std::fs::write(format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus"), "1")
        };
        let call = "steering what arrives";
        self.run(set)?.map_err(|source: io::Error| NetnsError::Os { call, source })
    }

    /// Sets the addresses of an interface and brings it up, without duplicate address detection, which takes a
    /// second.
    pub(crate) fn connect(
        &self,
        interface: &str,
        v4: IpAddr,
        v6: IpAddr,
        link_local: &str,
    ) -> Result<(), NetnsError> {
        self.ip(&["link", "set", interface, "addrgenmode", "none"])?;
        self.ip(&["addr", "add", &format!("{v4}/24"), "dev", interface])?;
        for address in [v6.to_string().as_str(), link_local] {
            let address = format!("{address}/64");
            self.ip(&["addr", "add", &address, "dev", interface, "nodad"])?;
        }
        self.ip(&["link", "set", interface, "up"])
    }
}

/// Creates a namespace; the calling thread moves into it and must end.
fn unshared() -> Result<OwnedFd, NetnsError> {
    // SAFETY: a new network namespace concerns descriptors opened later and nothing in memory; the
    // unsafe kinds of unshare are those that split the address space or the descriptor table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(os("unshare"))?;
    rustix::fs::open(OWN, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(os("open(/proc/thread-self/ns/net)"))
}

/// Two namespaces joined by a cable.
///
/// Dropping it, or any end of the process, removes both.
#[derive(Debug)]
pub struct VethPair {
    /// One end: `10.99.0.1`, `fd99::1`, `fe80::1`.
    pub left: Namespace,
    /// The other end: `10.99.0.2`, `fd99::2`, `fe80::2`.
    pub right: Namespace,
}

impl VethPair {
    /// IPv4 address of the left end.
    pub const LEFT_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1));
    /// IPv4 address of the right end.
    pub const RIGHT_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
    /// IPv6 address of the left end.
    pub const LEFT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1));
    /// IPv6 address of the right end.
    pub const RIGHT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2));

    /// Creates two namespaces with an interface `veth0` each, of this MTU in bytes.
    ///
    /// # Errors
    /// [`NetnsError`]; nothing is left behind.
    pub fn new(mtu: u32) -> Result<Self, NetnsError> {
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        let mtu_text = mtu.to_string();
        // A descriptor of this process names the other end.
        let peer = right.path();
        left.ip(&[
            "link", "add", INTERFACE, "mtu", &mtu_text, "type", "veth", "peer", "name", INTERFACE,
            "mtu", &mtu_text, "netns", &peer,
        ])?;
        let pair = Self { left, right };
        pair.left.connect(INTERFACE, Self::LEFT_V4, Self::LEFT_V6, "fe80::1")?;
        pair.right.connect(INTERFACE, Self::RIGHT_V4, Self::RIGHT_V6, "fe80::2")?;
        let ends = [(Self::LEFT_V4, Self::RIGHT_V4), (Self::LEFT_V6, Self::RIGHT_V6)];
        for (from, to) in ends {
            wait_until_crosses((&pair.left, from), (&pair.right, to))?;
        }
        Ok(pair)
    }

    /// Changes the MTU at both ends.
    ///
    /// # Errors
    /// [`NetnsError::Tool`].
    pub fn set_mtu(&self, mtu: u32) -> Result<(), NetnsError> {
        let mtu = mtu.to_string();
        for end in [&self.left, &self.right] {
            end.ip(&["link", "set", INTERFACE, "mtu", &mtu])?;
        }
        Ok(())
    }
}

/// Waits until a packet crosses. The kernel checks the carrier only once a second, and IPv6 finds no neighbour
/// before that.
pub(crate) fn wait_until_crosses(
    (from, left): (&Namespace, IpAddr),
    (to, right): (&Namespace, IpAddr),
) -> Result<(), NetnsError> {
    let left = from.run(|| UdpSocket::bind((left, 0)))?;
    let right = to.run(|| UdpSocket::bind((right, 0)))?;
    let crossed = left.and_then(|left| crosses(&left, &right?));
    crossed.map_err(|source| NetnsError::Os { call: "the first packet", source })
}

/// Sends until a packet arrives.
fn crosses(left: &UdpSocket, right: &UdpSocket) -> io::Result<()> {
    right.set_read_timeout(Some(ASK_AGAIN))?;
    let to = right.local_addr()?;
    for _ in 0..ASK_MAX {
        // Sending may fail while there is no neighbour yet.
        let _ = left.send_to(&[0], to);
        match right.recv_from(&mut [0; 8]) {
            Ok(_) => return Ok(()),
            // An interruption counts as a try.
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_privilege;

    #[test]
    fn packets_cross_the_cable_in_both_families_at_once() {
        let name = "namespace::tests::packets_cross_the_cable_in_both_families_at_once";
        with_privilege(name, || {
            let pair = VethPair::new(9000).unwrap();
            for (from, to) in
                [(VethPair::LEFT_V4, VethPair::RIGHT_V4), (VethPair::LEFT_V6, VethPair::RIGHT_V6)]
            {
                let left = pair.left.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
                let right = pair.right.run(|| UdpSocket::bind((to, 0))).unwrap().unwrap();
                let limit = Some(Duration::from_millis(500));
                right.set_read_timeout(limit).unwrap();
                left.send_to(b"hello", right.local_addr().unwrap()).unwrap();
                let mut bytes = [0; 8];
                let (count, peer) = right.recv_from(&mut bytes).unwrap();
                assert_eq!((&bytes[..count], peer), (&b"hello"[..], left.local_addr().unwrap()));
            }
        });
    }

    #[test]
    fn a_namespace_ends_with_its_last_descriptor_and_errors_of_ip_have_a_reason() {
        let name = "namespace::tests::a_namespace_ends_with_its_last_descriptor_and_errors_of_ip_have_a_reason";
        with_privilege(name, || {
            let pair = VethPair::new(1500).unwrap();
            let wrong = pair.left.ip(&["link", "set", "no-such-0", "up"]).unwrap_err();
            assert!(wrong.to_string().contains("no-such-0"), "{wrong}");
            let path = pair.left.path();
            Namespace::open(&path).unwrap();
            drop(pair);
            assert!(Namespace::open(&path).is_err());
        });
    }
}
