//! Requests come out of the applications' rings.
use super::application::Application;
use super::{BATCH, Engine};
use crate::daemon::connection::Connection;
use crate::entry::{Request, Work};
use crate::scheduler::{ConnectionId, Scheduler};

/// In one turn of so many the rings of those are looked at who have enough waiting.
const TAKE_TURNS: usize = 8;

impl Engine {
    /// Returns whether requests are to be taken of an application in this turn. While there is something to do, who has
    /// more waiting than go to the device in a turn loses nothing if the next ones stay in his ring for a few.
    #[inline]
    pub(super) fn is_due(&self, at: usize) -> bool {
        let Some(application) = &self.applications[at] else { return false };
        !self.is_busy
            || self.scheduler.waiting(application.id) < BATCH as u64
            || (self.turns as usize).wrapping_add(at).is_multiple_of(TAKE_TURNS)
    }

    /// Takes requests of an application; returns whether there were any.
    #[inline]
    pub(super) fn take(&mut self, at: usize, most: usize) -> bool {
        let Some(application) = &mut self.applications[at] else { return false };
        let mut taken = 0;
        while taken < most {
            let Some(request) = application.end.take() else { break };
            taken += 1;
            let outcome = match request {
                Ok(request) => {
                    let posted = &mut self.posted;
                    let connections = &mut self.connections;
                    accept(&mut self.scheduler, (connections, posted), application, request)
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = outcome {
                application.hang_up(&reason);
                break;
            }
        }
        if taken > 0 {
            self.lookout.note(at);
            application.end.free();
            if application.end.is_broken() {
                application.hang_up("a page of its request pool could not be had");
            }
        }
        self.announce_posted();
        taken > 0
    }
}

/// Takes one request.
#[inline]
fn accept(
    scheduler: &mut Scheduler,
    (connections, posted): (&mut [Option<Connection>], &mut Vec<ConnectionId>),
    application: &mut Application,
    request: Request,
) -> Result<(), String> {
    let id = application.connection(request.queue_pair);
    let connection = id.and_then(|id| connections[id.index()].as_mut());
    let Some(connection) = connection else {
        return Err(format!("queue pair {} is not one of its own", request.queue_pair));
    };
    let too_many = |_| "more requests than its queue pair holds".to_owned();
    match request.work {
        Work::Receive => {
            connection.post_receive(request).map_err(too_many)?;
            if connection.shared.is_some() && posted.last() != Some(&connection.id) {
                posted.push(connection.id);
            }
            connection.count(&mut application.outstanding);
            Ok(())
        }
        Work::Send { op, .. } => {
            if !op.exists_on(connection.service) {
                let service = connection.service;
                return Err(format!("{op:?} is no operation of {service}, which it asks of it"));
            }
            let ah = application.ahs.of(&op, connection.pd);
            let ah = ah.map_err(|ah| format!("address handle {ah} is not one of its own"))?;
            application.account.requests += 1;
            let shape = connection.ask(&request, application.end.rest(), ah).map_err(too_many)?;
            if let Some((bytes, splits)) = shape {
                scheduler.push(connection.id, bytes, splits);
            }
            Ok(())
        }
    }
}
