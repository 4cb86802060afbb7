//! How late what is due may be handled: while nobody wants more than it has, nothing that is due lets anybody send.
use super::controller::Controller;

/// By about this time the source of a window that is over has said so.
const PATIENCE_NS: u64 = 5_000_000;

impl Controller {
    /// Returns by how much [`Output::Timeout`](super::Output::Timeout) may be late, nanoseconds: windows that are over only
    /// have to be known as such when somebody asks. 0 while somebody waits, or could get more.
    #[must_use]
    pub fn patience_ns(&self) -> u64 {
        let waits = self.paths.iter().any(|path| path.waiting_bytes > 0);
        let could_get_more = self.links.iter().any(|link| link.partial.is_some())
            || self.parts.iter().any(|part| part.running > 0 && !part.exact);
        let is_busy = waits || could_get_more || !self.starting.is_empty() || self.gives_up;
        if is_busy { 0 } else { PATIENCE_NS }
    }
}
