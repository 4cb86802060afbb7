//! What the two ends of a connection say beside messages of applications, in the slots of their channel. `docs/spec/agent.md`
//! describes it.
use crate::Rights;
use catchment_channel::{ChannelShape, RemoteMemory};
use catchment_session::names::{is_service, printable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest message.
pub const LONGEST_BYTES: usize = 1 << 30;
/// Messages and parts of messages that are under way in each direction, and the longest of them.
const SLOTS: u32 = 16;
pub(crate) const PART_BYTES: usize = 64 << 10;
/// Behind the slots: where an end writes to learn whether the peer is there.
const PROBE_BYTES: u32 = 64;
/// Regions that a peer is told of.
pub(crate) const MOST_REGIONS: usize = 256;

/// The shape of every connection.
pub(crate) fn shape() -> ChannelShape {
    ChannelShape::new(SLOTS, PART_BYTES as u32).with_shared(PROBE_BYTES)
}

/// What is in a slot: the number of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of a message, and others of it follow.
    Part,
    /// The last part of a message.
    Last,
    /// The regions of the sender, once, before all else.
    Regions,
    /// The sender sends nothing more, and waits to hear that all was taken.
    End,
    /// The sender sends nothing more, and takes nothing: also the answer to that.
    Left,
}

impl Kind {
    pub(crate) const fn stream(self) -> u32 {
        match self {
            Self::Part => 0,
            Self::Last => 1,
            Self::Regions => 2,
            Self::End => 3,
            Self::Left => 4,
        }
    }

    pub(crate) const fn of(stream: u32) -> Option<Self> {
        match stream {
            0 => Some(Self::Part),
            1 => Some(Self::Last),
            2 => Some(Self::Regions),
            3 => Some(Self::End),
            4 => Some(Self::Left),
            _ => None,
        }
    }
}

/// A region, as a peer is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) bytes: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A region of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theirs {
    pub(crate) memory: RemoteMemory,
    pub(crate) rights: Rights,
}

/// Reads what a peer tells of its regions.
pub(crate) fn read_regions(bytes: &[u8]) -> Result<BTreeMap<String, Theirs>, String> {
    let read: Result<Vec<Entry>, _> = serde_json::from_slice(bytes);
    let entries = read.map_err(|error| printable(&error.to_string(), 256))?;
    if entries.len() > MOST_REGIONS {
        return Err(format!("{} regions: at most {MOST_REGIONS} are allowed", entries.len()));
    }
    let mut regions = BTreeMap::new();
    for Entry { name, addr, rkey, bytes, read, write } in entries {
        let wrong = |what| Err(format!("the region \"{}\": {what}", printable(&name, 64)));
        if !is_service(&name) {
            return wrong("no name for one");
        }
        let Some(rights) = Rights::of(read, write) else { return wrong("no rights") };
        if addr.checked_add(bytes).is_none() {
            return wrong("it ends beyond all addresses");
        }
        let theirs = Theirs { memory: RemoteMemory { addr, rkey, bytes }, rights };
        if regions.contains_key(&name) {
            return wrong("it is there twice");
        }
        regions.insert(name, theirs);
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(name: &str) -> Entry {
        Entry { name: name.into(), addr: 4096, rkey: 7, bytes: 100, read: true, write: false }
    }

    #[test]
    fn regions_that_were_told_are_read() {
        let told = serde_json::to_vec(&[entry("a"), entry("b")]).unwrap();
        let regions = read_regions(&told).unwrap();
        let memory = RemoteMemory { addr: 4096, rkey: 7, bytes: 100 };
        assert_eq!(regions.len(), 2);
        assert_eq!(regions["a"], Theirs { memory, rights: Rights::Read });
    }

    #[test]
    fn as_many_regions_as_are_allowed_fit_a_part() {
        let longest = Entry { addr: u64::MAX - 9, rkey: u32::MAX, bytes: 9, ..entry("") };
        let name = |at: usize| format!("{at:064}");
        let all: Vec<_> =
            (0..MOST_REGIONS).map(|at| Entry { name: name(at), ..longest.clone() }).collect();
        let told = serde_json::to_vec(&all).unwrap();
        assert!(told.len() <= PART_BYTES, "{}", told.len());
        assert_eq!(read_regions(&told).unwrap().len(), MOST_REGIONS);
        let more = [all, vec![entry("more")]].concat();
        assert!(read_regions(&serde_json::to_vec(&more).unwrap()).unwrap_err().contains("257"));
    }

    #[test]
    fn what_no_honest_peer_tells_is_refused() {
        let told = |entries: &[Entry]| read_regions(&serde_json::to_vec(entries).unwrap());
        for (entries, said) in [
            (vec![entry("a b")], "\"a b\": no name"),
            (vec![entry("a"), entry("a")], "\"a\": it is there twice"),
            (vec![Entry { read: false, ..entry("a") }], "\"a\": no rights"),
            (vec![Entry { addr: u64::MAX, ..entry("a") }], "beyond all addresses"),
        ] {
            let refused = told(&entries).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(read_regions(b"[{\"name\": \"a\"}]").unwrap_err().contains("missing field"));
        assert!(read_regions(b"\xff").is_err());
    }

    proptest! {
        /// Whatever a peer tells: what is taken has a name, rights, and an end; what is refused has a reason.
        #[test]
        fn regions_are_taken_or_refused(
            all in prop::collection::vec(("[a-c ]{0,2}", any::<u64>(), any::<u64>(), 0_u8..4), 0..4),
            flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3),
        ) {
            let entry = |(name, addr, bytes, rights): (String, u64, u64, u8)| {
                let (read, write) = (rights & 1 > 0, rights & 2 > 0);
                Entry { name, addr, rkey: 7, bytes, read, write }
            };
            let all: Vec<_> = all.into_iter().map(entry).collect();
            let mut told = serde_json::to_vec(&all).unwrap();
            for (at, value) in flips {
                let at = at % told.len();
                told[at] = value;
            }
            match read_regions(&told) {
                Ok(regions) => for (name, theirs) in regions {
                    let RemoteMemory { addr, bytes, .. } = theirs.memory;
                    prop_assert!(is_service(&name) && addr.checked_add(bytes).is_some());
                },
                Err(reason) => {
                    let is_plain = reason.chars().all(|c| !c.is_control());
                    prop_assert!(!reason.is_empty() && is_plain);
                }
            }
        }
    }

    #[test]
    fn kinds_have_streams_of_their_own() {
        for kind in [Kind::Part, Kind::Last, Kind::Regions, Kind::End, Kind::Left] {
            assert_eq!(Kind::of(kind.stream()), Some(kind));
        }
        assert_eq!(Kind::of(5), None);
    }
}
