//! Which process an application is, by its user and control group.
use super::Rule;
use catchment_provider_shm::seqpacket::Credentials;

/// A process, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who {
    /// Its user.
    pub user: u32,
    /// Its number.
    pub process: u32,
}

impl From<Credentials> for Who {
    fn from(Credentials { user, process, .. }: Credentials) -> Self {
        Self { user, process }
    }
}

/// Returns the control group in a `/proc/PID/cgroup`: of the unified hierarchy where processes are in one, else of systemd's.
fn group_of(text: &str) -> Option<&str> {
    let path = |of: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines.find(|(controllers, _)| *controllers == of).map(|(_, path)| path)
    };
    path("").filter(|path| *path != "/").or_else(|| path("name=systemd")).or_else(|| path(""))
}

/// Returns whether a group is `other`, or below it.
fn is_within(group: &str, other: &str) -> bool {
    let below = group.strip_prefix(other.trim_end_matches('/'));
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

impl Rule {
    pub(super) fn check_user(&self, user: u32) -> Result<(), String> {
        if self.user.is_none() && self.cgroup.is_some() {
            return Ok(());
        }
        let allowed = self.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        if user == allowed {
            return Ok(());
        }
        Err(format!("application {:?} is for user {allowed}, not for user {user}", self.name))
    }

    pub(super) fn check_cgroup(&self, process: u32) -> Result<(), String> {
        let Some(allowed) = &self.cgroup else { return Ok(()) };
        let wrong = |what| {
            Err(format!("application {:?} is for control group {allowed}, and {what}", self.name))
        };
        match std::fs::read_to_string(format!("/proc/{process}/cgroup")) {
            Ok(text) => match group_of(&text) {
                Some(group) if is_within(group, allowed) => Ok(()),
                Some(group) => wrong(format!("process {process} is in {group}")),
                None => wrong(format!("process {process} is in none")),
            },
            Err(error) => wrong(format!("that of process {process} cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_is_that_of_the_unified_hierarchy_or_of_systemd() {
        let unified = "0::/system.slice/vision.service\n";
        assert_eq!(group_of(unified), Some("/system.slice/vision.service"));
        let hybrid = "9:name=systemd:/user.slice/a\n4:memory:/x:y\n0::/\n";
        assert_eq!(group_of(hybrid), Some("/user.slice/a"));
        assert_eq!(group_of("4:memory:/x\n0::/\n"), Some("/"));
        assert_eq!(group_of("4:memory:/x\nnonsense"), None);
    }

    #[test]
    fn a_group_has_those_below_it_and_none_beside_it() {
        for (group, other, within) in [
            ("/a/b", "/a", true),
            ("/a/b", "/a/", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
            ("/a", "/", true),
        ] {
            assert_eq!(is_within(group, other), within, "{group} {other}");
        }
    }

    #[test]
    fn a_rule_for_a_control_group_is_for_who_is_in_it() {
        let rule = |members: &str| {
            let text = format!(r#"{{"applications": [{{"name": "a", {members}}}]}}"#);
            super::super::Policy::parse(&text).unwrap().applications.remove(0)
        };
        let process = std::process::id();
        let any = rule(r#""cgroup": "/""#);
        assert_eq!((any.check_user(12_345), any.check_cgroup(process)), (Ok(()), Ok(())));
        let other = rule(r#""cgroup": "/no.slice", "user": 7"#);
        assert!(other.check_user(8).unwrap_err().contains("is for user 7, not for user 8"));
        let refused = other.check_cgroup(process).unwrap_err();
        assert!(refused.contains("is for control group /no.slice, and process"), "{refused}");
        assert!(any.check_cgroup(0).unwrap_err().contains("cannot be read"));
    }
}
