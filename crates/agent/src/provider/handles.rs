//! An open agent and a protection domain, as held by the application and their objects: all keep the
//! connection open. `context` opens agents, and creates objects from them.
use super::link::Link;
use crate::protocol::Request;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The application's open agent. The last handle ends the connection.
#[derive(Clone)]
pub(super) struct AgentContext(Arc<Opened>);

struct Opened {
    link: Arc<Link>,
    thread: Option<JoinHandle<()>>,
}

impl AgentContext {
    pub(super) fn of(link: Arc<Link>, thread: JoinHandle<()>) -> Self {
        Self(Arc::new(Opened { link, thread: Some(thread) }))
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.0.link
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.link.end();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The application's protection domain. What is made from it keeps it.
#[derive(Clone)]
pub(super) struct AgentPd(Arc<Domain>);

struct Domain {
    number: u32,
    context: AgentContext,
}

impl AgentPd {
    pub(super) fn of(number: u32, context: AgentContext) -> Self {
        Self(Arc::new(Domain { number, context }))
    }

    /// Returns its number at the agent.
    pub(super) fn number(&self) -> u32 {
        self.0.number
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        self.0.context.link()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let _ = self.context.link().call(&Request::DropPd { pd: self.number }, &[]);
    }
}
