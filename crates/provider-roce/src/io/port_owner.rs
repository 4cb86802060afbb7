//! The owner of a taken UDP port.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::{fs, io};

/// Returns the owner of this UDP port on all addresses, or on one, of the network namespace of the
/// calling thread, and what helps; `None` while it is free. Binds the port itself for a moment.
pub fn port_owner(port: u16) -> Option<String> {
    let all = [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    ];
    let taken = |address: &SocketAddr| {
        UdpSocket::bind(address).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    all.into_iter().find(taken).map(advice)
}

/// Describes the owner of `address`, as far as this process may know, and what helps.
pub(super) fn advice(address: SocketAddr) -> String {
    let who = owner(address);
    format!(
        "{who}. One process can own a RoCE port of an address. Remedies: stop the owner; another \
         port, which works between two of our own stacks only; another network namespace, which \
         has ports of its own; `rmmod rdma_rxe`, or `devlink dev param set ... enable_roce false` \
         for an RNIC"
    )
}

/// Looks at the kernel's tables: while other sockets close, a table that takes several reads may lack a line.
const LOOKS: usize = 32;

fn owner(address: SocketAddr) -> String {
    let inode = (0..LOOKS).find_map(|_| inode_of(address));
    let process = inode.and_then(process_of);
    match (process, inode) {
        (Some(process), _) => format!("process {} ({}) owns it", process.pid, process.name),
        (None, _) if rxe_is_loaded() => {
            "the kernel's Soft-RoCE (rdma_rxe) is loaded, which owns the RoCE port of all \
             addresses in its network namespace"
                .to_owned()
        }
        (None, Some(_)) => {
            "a process that this user may not inspect owns it, or the kernel".to_owned()
        }
        (None, None) => {
            "something in this network namespace owns it, perhaps the kernel".to_owned()
        }
    }
}

fn rxe_is_loaded() -> bool {
    Path::new("/sys/module/rdma_rxe").exists()
}

/// Returns the socket that owns the address: its inode, as `/proc/net/udp` and `udp6` list it.
fn inode_of(address: SocketAddr) -> Option<u64> {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let texts = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    let mut found = texts.filter_map(|text| inode_in(&text, address));
    found.next()
}

/// Returns the inode of the first line whose local address is in the way of `address`. Columns: number, local address
/// and port in hexadecimal, remote address, state, queues, timer, retransmissions, user, timeout, inode.
fn inode_in(table: &str, address: SocketAddr) -> Option<u64> {
    let mut lines = table.lines().skip(1).map(str::split_whitespace);
    let line = lines.find(|line| {
        let local = line.clone().nth(1).and_then(local_address);
        local.is_some_and(|local| is_in_the_way(local, address))
    })?;
    line.clone().nth(9)?.parse().ok()
}

/// Other sockets may have the same port of another address.
fn is_in_the_way(held: SocketAddr, wanted: SocketAddr) -> bool {
    let (here, there) = (held.ip().to_canonical(), wanted.ip().to_canonical());
    let meet = here == there || here.is_unspecified() || there.is_unspecified();
    held.port() == wanted.port() && meet
}

/// Reads words of an address, each as a number of this machine, and a port.
fn local_address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word =
        |at: usize| Some(u32::from_str_radix(words.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = if words.len() == 8 {
        IpAddr::from(word(0)?)
    } else {
        let all = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
        IpAddr::from(<[u8; 16]>::try_from(all).ok()?)
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns the process that has the socket open, if this user may see that.
fn process_of(inode: u64) -> Option<Holder> {
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holders = pids.filter(|pid| has_open(*pid, &link)).filter_map(Holder::read).collect();
    eldest(holders)
}

/// A process that has the socket open.
struct Holder {
    pid: u32,
    parent: u32,
    name: String,
}

impl Holder {
    /// `None` if the process has ended.
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may itself contain spaces and parentheses.
        let (before, after) = stat.rsplit_once(") ")?;
        let parent = after.split_whitespace().nth(1)?.parse().ok()?;
        Some(Self { pid, parent, name: before.split_once('(')?.1.to_owned() })
    }
}

/// Returns who holds the socket by itself: a child has all that its parent has open, for good or until it starts a
/// program, and its number may be smaller.
fn eldest(mut holders: Vec<Holder>) -> Option<Holder> {
    let is_child = |one: &Holder| holders.iter().any(|other| other.pid == one.parent);
    let at = holders.iter().position(|one| !is_child(one))?;
    Some(holders.swap_remove(at))
}

fn has_open(pid: u32, link: &str) -> bool {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    folder
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| target.as_os_str() == link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_kernels_tables_are_read() {
        let rest = "07 00000000:00000000 00:00000000 00000000     0        0";
        let table = format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             11: 0200007F:12B7 00000000:0000 {rest} 4710 2 0000000000000000 0\n\
             12: 0100007F:12B7 00000000:0000 {rest} 4711 2 0000000000000000 0\n\
             13: 00000000:12B8 00000000:0000 {rest} 4712 2 0000000000000000 0\n"
        );
        let inode = |table: &str, address: &str| inode_in(table, address.parse().unwrap());
        assert_eq!(inode(&table, "127.0.0.1:4791"), Some(4711));
        assert_eq!(inode(&table, "0.0.0.0:4791"), Some(4710), "any is in the way");
        assert_eq!(inode(&table, "127.0.0.3:4791"), None);
        assert_eq!(inode(&table, "127.0.0.3:4792"), Some(4712));
        assert_eq!(inode("", "127.0.0.1:4791"), None);
        let six = format!(
            "  sl  local_address\n\
             5: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 {rest} 4713 2 0000000000000000 0\n\
             6: 0000000000000000FFFF00000100007F:12B9 00000000000000000000000000000000:0000 {rest} 4714 2 0000000000000000 0\n"
        );
        assert_eq!(inode(&six, "[::1]:4791"), Some(4713));
        assert_eq!(inode(&six, "[fe80::1]:4791"), None);
        assert_eq!(inode(&six, "127.0.0.1:4793"), Some(4714));
    }

    #[test]
    fn the_parent_owns_what_its_children_hold_too() {
        let holder = |pid, parent| Holder { pid, parent, name: String::new() };
        let owner = |holders| eldest(holders).map(|one| one.pid);
        assert_eq!(
            owner(vec![holder(30, 29_000), holder(29_000, 1), holder(31, 30)]),
            Some(29_000)
        );
        assert_eq!(owner(vec![holder(8, 1)]), Some(8));
        assert_eq!(owner(Vec::new()), None);
    }

    #[test]
    fn a_process_is_read_with_its_parent() {
        let me = Holder::read(std::process::id()).unwrap();
        assert_eq!(me.parent, std::os::unix::process::parent_id());
        assert_eq!(me.name, fs::read_to_string("/proc/self/comm").unwrap().trim_end());
    }
}
