//! The owner of a taken UDP port.
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
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
const LOOKS: usize = 8;

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

/// Returns the socket that owns the port: its inode, as `/proc/net/udp` and `udp6` list it.
fn inode_of(address: SocketAddr) -> Option<u64> {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let texts = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    let mut found = texts.filter_map(|text| inode_in(&text, address.port()));
    found.next()
}

/// Returns the inode of the line whose local port is `port`. Columns: number, local address and
/// port in hexadecimal, remote address, state, queues, timer, retransmissions, user, timeout,
/// inode.
fn inode_in(table: &str, port: u16) -> Option<u64> {
    let wanted = format!(":{port:04X}");
    let mut lines = table.lines().skip(1).map(str::split_whitespace);
    let line = lines.find(|line| line.clone().nth(1).is_some_and(|a| a.ends_with(&wanted)))?;
    line.clone().nth(9)?.parse().ok()
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
    fn the_kernels_table_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             12: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 0\n";
        assert_eq!(inode_in(table, 4791), Some(4711));
        assert_eq!(inode_in(table, 4792), None);
        assert_eq!(inode_in("", 4791), None);
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
