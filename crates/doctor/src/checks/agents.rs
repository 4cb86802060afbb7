//! Agents of this host: those whose sockets the kernel lists in this network namespace.
use super::Check;
use catchment_agent::explain::Observer;
use catchment_agent::protocol::socket_name;
use std::collections::BTreeSet;

/// Asks each agent how it stands.
pub(super) fn agents() -> Vec<Check> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    names(&sockets).into_iter().map(agent).collect()
}

/// Returns the names of agents among the kernel's list of sockets.
fn names(sockets: &str) -> BTreeSet<&str> {
    let prefix = socket_name("");
    let paths =
        sockets.lines().filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let names = paths.filter_map(|path| path.strip_prefix(&*prefix));
    names.filter(|name| !name.is_empty()).collect()
}

fn agent(name: &str) -> Check {
    let check = "agent";
    let view = match Observer::new(name).look() {
        Ok(view) => view,
        Err(error) => {
            let remedy = "look at its log; an agent that stands still is killed and started anew";
            return Check::problem(check, error.to_string(), remedy);
        }
    };
    let connected = view.accounts.len();
    let there = view.peers.iter().filter(|peer| peer.connected).count();
    let mut seen = format!("{name}; applications connected: {connected}");
    if !view.peers.is_empty() {
        seen += &format!("; sessions with other agents: {there} of {}", view.peers.len());
    }
    let apart = view.peers.iter().find(|peer| !peer.connected);
    match apart {
        None => Check::ok(check, seen),
        Some(peer) => {
            let whom = peer.address.as_ref().unwrap_or(&peer.name);
            Check::note(check, seen, format!("{whom}: {}", peer.reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_found_among_other_sockets() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    ffff0: 00000002 00000000 00010000 0005 01 21 @catchment-agent-agent0\n\
                    ffff0: 00000003 00000000 00000000 0005 03 22 @catchment-agent-agent0\n\
                    ffff0: 00000002 00000000 00010000 0001 01 23 @catchment-agent-\n\
                    ffff0: 00000002 00000000 00010000 0001 01 24 /run/catchment-agent-x\n\
                    ffff0: 00000002 00000000 00010000 0001 01 25\n";
        assert_eq!(names(list).into_iter().collect::<Vec<_>>(), ["agent0"]);
        assert!(names("").is_empty());
    }
}
