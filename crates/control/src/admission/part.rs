//! Links that share paths, and the paths that share these: what changes there concerns nobody else.
use super::recent::Recent;
use super::transfer::Key;
use super::{Config, NONE};

/// Links and paths that are planned together.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) links: Vec<usize>,
    pub(super) paths: Vec<usize>,
    /// The first of those that have a window.
    pub(super) granted: u32,
    pub(super) running: usize,
    /// All is to be planned anew.
    pub(super) stale: bool,
    /// Windows are what a plan of all would make them, but for what became free since.
    pub(super) exact: bool,
    /// Something became free.
    pub(super) freed: bool,
    /// It is among those that have changed.
    pub(super) listed: bool,
    /// The longest that a grant takes to those that waited lately.
    pub(super) delay: Recent,
}

/// The links between a source and a collector.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) links: Box<[usize]>,
    pub(super) part: usize,
    /// The longest guard of its links.
    pub(super) guard_ns: u64,
    /// The first transfer that found it full when all was planned last.
    pub(super) full_from: Option<Key>,
    /// Of those that wait.
    pub(super) waiting_bytes: u64,
}

impl Part {
    /// Returns whether what becomes free concerns one link alone.
    pub(super) const fn is_single(&self) -> bool {
        self.links.len() == 1
    }
}

/// Divides links and paths into parts; returns for each link its part, too.
pub(super) fn divide(config: &Config) -> (Vec<Part>, Vec<Path>, Vec<usize>) {
    let mut part_of: Vec<usize> = (0..config.links.len()).collect();
    fn root(part_of: &mut [usize], mut link: usize) -> usize {
        while part_of[link] != link {
            part_of[link] = part_of[part_of[link]];
            link = part_of[link];
        }
        link
    }
    for path in &config.paths {
        for link in &path[1..] {
            let one = root(&mut part_of, usize::from(path[0].0));
            let other = root(&mut part_of, usize::from(link.0));
            part_of[one.max(other)] = one.min(other);
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut numbers = vec![0; config.links.len()];
    for link in 0..config.links.len() {
        let first = root(&mut part_of, link);
        if first == link {
            numbers[link] = parts.len();
            parts.push(Part::new());
        }
        numbers[link] = numbers[first];
        parts[numbers[link]].links.push(link);
    }
    let mut paths = Vec::new();
    for (number, path) in config.paths.iter().enumerate() {
        let links: Box<[usize]> = path.iter().map(|link| usize::from(link.0)).collect();
        let part = numbers[links[0]];
        parts[part].paths.push(number);
        let guard_ns = links.iter().map(|link| config.links[*link].guard_ns).max();
        let guard_ns = guard_ns.unwrap_or_default();
        paths.push(Path { links, part, guard_ns, full_from: None, waiting_bytes: 0 });
    }
    (parts, paths, numbers)
}

impl Part {
    const fn new() -> Self {
        Self {
            links: Vec::new(),
            paths: Vec::new(),
            granted: NONE,
            running: 0,
            stale: false,
            exact: false,
            freed: false,
            listed: false,
            delay: Recent::greatest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkConfig, LinkId, Rules};
    use super::*;

    #[test]
    fn links_of_a_path_are_in_one_part_and_others_are_not() {
        let paths = [&[0, 4][..], &[1], &[2, 4], &[3], &[1]];
        let path = |links: &&[u16]| links.iter().map(|link| LinkId(*link)).collect();
        let links = vec![LinkConfig::new(1); 5];
        let config = Config::new(links, paths.iter().map(path).collect(), Rules::deadline());
        let (parts, paths, numbers) = divide(&config);
        let all: Vec<_> =
            parts.iter().map(|part| (part.links.clone(), part.paths.clone())).collect();
        let expected = [(vec![0, 2, 4], vec![0, 2]), (vec![1], vec![1, 4]), (vec![3], vec![3])];
        assert_eq!(all, expected);
        assert_eq!(numbers, [0, 1, 0, 2, 0]);
        let of_paths: Vec<usize> = paths.iter().map(|path| path.part).collect();
        assert_eq!(of_paths, [0, 1, 0, 2, 1]);
    }
}
