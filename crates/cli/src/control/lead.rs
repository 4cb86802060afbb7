//! Controllers that stand in for each other: what each says of who leads.
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::{self, say};
use crate::stop::Stop;
use catchment::session::io::Address;
use catchment::session::names::printable;
use catchment_controller::leader::{Candidate, Leader, Leadership, Standing};
use serde_json::json;
use std::time::Duration;

/// A signal is seen after this time.
const LOOK: Duration = Duration::from_millis(50);

/// A process that leads from now on.
pub(super) struct Begins {
    pub(super) leadership: Leadership,
    pub(super) term: u32,
    /// How long what the leader before has granted may still be used, if it said so.
    pub(super) left: Option<Duration>,
}

/// Stands by until this process leads, or `None` when it is to end.
pub(super) fn stand_by(
    leader: &Leader,
    listen: &Address,
    json: bool,
    stop: &Stop,
) -> Result<Option<Begins>, Failure> {
    let leadership = Leadership::start(leader, listen.to_string()).or_fail(Code::Failed)?;
    let mut standing = leadership.standing();
    loop {
        if stop.wait(Duration::ZERO) {
            return Ok(None);
        }
        let now = leadership.wait(&standing, LOOK);
        if let Standing::Leads { term, left, .. } = now {
            return Ok(Some(Begins { leadership, term, left }));
        }
        if now != standing
            && let Standing::StandsBy { leader, why_not } = &now
        {
            tell(leader.as_ref(), why_not.as_deref(), json)?;
        }
        standing = now;
    }
}

fn tell(leader: Option<&Candidate>, why_not: Option<&str>, json: bool) -> Result<(), Failure> {
    let address = leader.map(|leader| printable(&leader.address, 256));
    let why = why_not.map(|why| printable(why, 512));
    if json {
        let term = leader.map(|leader| leader.term);
        let event = json!({"event": "standing_by", "leader": address, "term": term, "why": why});
        return output::print_json(&event);
    }
    match (address, why) {
        (Some(address), _) => say!("standing by: the controller at {address} leads"),
        (None, Some(why)) => say!("standing by: who leads is not known: {why}"),
        (None, None) => say!("standing by: nobody leads"),
    }
    Ok(())
}

/// Looks whether a leader still leads.
#[derive(Default)]
pub(super) struct Watch {
    is_alone: bool,
}

impl Watch {
    /// Returns whether another one leads, or may; `superseded` says that a source knows a higher term.
    pub(super) fn is_over(
        &mut self,
        leadership: &Leadership,
        superseded: bool,
        json: bool,
    ) -> Result<bool, Failure> {
        let why = match leadership.standing() {
            Standing::Ended { why } => Some(why),
            Standing::Leads { alone, .. } => {
                self.note(alone.map(|(_, why)| why));
                superseded.then(|| "sources obey a controller of a higher term".to_owned())
            }
            Standing::StandsBy { .. } => None,
        };
        let Some(why) = why else { return Ok(false) };
        if json {
            output::print_json(&json!({"event": "deposed", "why": printable(&why, 512)}))?;
        } else {
            say!("does not lead any more: {}", printable(&why, 512));
        }
        Ok(true)
    }

    /// Warns of a store that is away, once, and says when it is back.
    fn note(&mut self, why: Option<String>) {
        let before = std::mem::replace(&mut self.is_alone, why.is_some());
        match why {
            Some(why) if !before => say!(
                "warning: the store does not answer ({}): leading on; nobody can take over meanwhile",
                printable(&why, 512)
            ),
            None if before => say!("the store answers again"),
            Some(_) | None => {}
        }
    }
}
