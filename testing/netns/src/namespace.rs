//! Namespaces without a name, and the veth pair between two.
use rustix::{
    fs::{Mode, OFlags},
    thread::{LinkNameSpaceType, UnshareFlags},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, OwnedFd},
    process::{Command, Output},
    thread,
};

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";
/// Name of the interface at both ends.
const INTERFACE: &str = "veth0";

/// A namespace or its network could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// The system refused.
    #[error(
        "{call}: {source} (network namespaces need root, or user namespaces: try unshare -Urn)"
    )]
    Os {
        /// The system call.
        call: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// `ip` is missing or refused.
    #[error("ip {arguments}: {reason} (`ip` is in the package iproute2)")]
    Ip {
        /// What it was asked.
        arguments: String,
        /// What it said.
        reason: String,
    },
}

fn os(call: &'static str) -> impl Fn(rustix::io::Errno) -> NetnsError {
    move |errno| NetnsError::Os {
        call,
        source: errno.into(),
    }
}

/// A network namespace without a name.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// A new one, with its loopback up.
    ///
    /// # Errors
    /// [`NetnsError`].
    pub fn new() -> Result<Namespace, NetnsError> {
        // A thread of its own: the caller stays where it is.
        let made = thread::scope(|scope| scope.spawn(unshared).join());
        let namespace = match made {
            Ok(made) => Namespace { fd: made? },
            Err(panic) => std::panic::resume_unwind(panic),
        };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Runs `work` on a thread inside. Sockets that it opens stay inside, and so do processes that
    /// it starts.
    ///
    /// # Errors
    /// [`NetnsError::Os`] if the namespace cannot be entered.
    ///
    /// # Panics
    /// If `work` does.
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

    /// Moves the calling thread inside, for good.
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
    /// [`NetnsError::Ip`] with what it printed.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), NetnsError> {
        let refused = |reason: String| NetnsError::Ip {
            arguments: arguments.join(" "),
            reason,
        };
        let output = self.run(|| Command::new("ip").args(arguments).output())?;
        match output {
            Ok(Output { status, .. }) if status.success() => Ok(()),
            Ok(output) => Err(refused(
                String::from_utf8_lossy(&output.stderr).trim().into(),
            )),
            Err(error) => Err(refused(error.to_string())),
        }
    }
}

/// A new namespace, made on a thread that ends with this.
fn unshared() -> Result<OwnedFd, NetnsError> {
    // SAFETY: a new network namespace concerns descriptors opened later and nothing in memory; the
    // unsafe kinds of unshare are those that split the address space or the descriptor table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(os("unshare"))?;
    rustix::fs::open(OWN, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(os("open(/proc/thread-self/ns/net)"))
}

/// Two namespaces joined by a cable.
///
/// Dropping it, or the end of the process by any means, removes both.
#[derive(Debug)]
pub struct VethPair {
    /// One end: `10.99.0.1`, `fd99::1`.
    pub left: Namespace,
    /// The other end: `10.99.0.2`, `fd99::2`.
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

    /// Two namespaces with an interface `veth0` each, of this MTU in bytes.
    ///
    /// # Errors
    /// [`NetnsError`]; nothing is left then.
    pub fn new(mtu: u32) -> Result<VethPair, NetnsError> {
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        let mtu_text = mtu.to_string();
        // The other end is named by a descriptor of this process, which needs no name anywhere.
        let peer = descriptor_path(&right)?;
        left.ip(&[
            "link", "add", INTERFACE, "mtu", &mtu_text, "type", "veth", "peer", "name", INTERFACE,
            "mtu", &mtu_text, "netns", &peer,
        ])?;
        let pair = VethPair { left, right };
        pair.address(&pair.left, Self::LEFT_V4, Self::LEFT_V6)?;
        pair.address(&pair.right, Self::RIGHT_V4, Self::RIGHT_V6)?;
        Ok(pair)
    }

    fn address(&self, end: &Namespace, v4: IpAddr, v6: IpAddr) -> Result<(), NetnsError> {
        end.ip(&["addr", "add", &format!("{v4}/24"), "dev", INTERFACE])?;
        // Without duplicate address detection, which would take seconds.
        end.ip(&[
            "addr",
            "add",
            &format!("{v6}/64"),
            "dev",
            INTERFACE,
            "nodad",
        ])?;
        end.ip(&["link", "set", INTERFACE, "up"])
    }

    /// Changes the MTU at both ends.
    ///
    /// # Errors
    /// [`NetnsError::Ip`].
    pub fn set_mtu(&self, mtu: u32) -> Result<(), NetnsError> {
        let mtu = mtu.to_string();
        for end in [&self.left, &self.right] {
            end.ip(&["link", "set", INTERFACE, "mtu", &mtu])?;
        }
        Ok(())
    }
}

/// A path by which `ip` reaches the namespace.
fn descriptor_path(namespace: &Namespace) -> Result<String, NetnsError> {
    use std::os::fd::AsRawFd;
    let pid = std::process::id();
    Ok(format!("/proc/{pid}/fd/{}", namespace.fd.as_raw_fd()))
}
