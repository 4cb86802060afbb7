//! Socket addresses as the kernel takes them.
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IPv4 or IPv6 socket address in the kernel's layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Name {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Bytes of the longer of the two.
pub(super) const NAME_BYTES: usize = mem::size_of::<Name>();

impl Name {
    /// No address.
    pub(super) fn none() -> Self {
        // SAFETY: all members are plain numbers, for which zero is valid.
        unsafe { mem::zeroed() }
    }

    /// Returns the address, and how many bytes of it count.
    pub(super) fn of(address: SocketAddr) -> (Self, usize) {
        let mut name = Self::none();
        match address {
            SocketAddr::V4(a) => {
                name.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (name, mem::size_of::<libc::sockaddr_in>())
            }
            SocketAddr::V6(a) => {
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                (name, mem::size_of::<libc::sockaddr_in6>())
            }
        }
    }

    /// Returns the address, if it is one of the two kinds.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        // SAFETY: every byte of the union is initialised, by `none` or `of` or the kernel over it,
        // and all members are plain numbers.
        let (family, v4, v6) = unsafe { (self.family, self.v4, self.v6) };
        match i32::from(family) {
            libc::AF_INET => Some(SocketAddr::V4(from_v4(v4))),
            libc::AF_INET6 => Some(SocketAddr::V6(from_v6(v6))),
            _ => None,
        }
    }
}

fn from_v4(a: libc::sockaddr_in) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes()), u16::from_be(a.sin_port))
}

fn from_v6(a: libc::sockaddr_in6) -> SocketAddrV6 {
    let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
    SocketAddrV6::new(ip, u16::from_be(a.sin6_port), a.sin6_flowinfo, a.sin6_scope_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["10.1.2.3:4791", "[2001:db8::7]:4791", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let (name, bytes) = Name::of(address);
            assert_eq!(name.address(), Some(address));
            assert!(bytes <= NAME_BYTES);
        }
        assert_eq!(Name::none().address(), None);
    }
}
