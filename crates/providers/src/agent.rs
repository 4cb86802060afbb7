//! An agent's device as sources and collectors use it: opened when a peer is known, since the agent may be
//! started later than this process.
use super::{Ends, Found, PathProvider, ProviderOptions};
use catchment_agent::{AgentOptions, AgentProvider, INFO};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{AsyncEvent, Context, Provider as _, ProviderInfo};
use std::sync::Arc;

impl ProviderOptions for AgentOptions {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    fn provider(&self) -> Arc<dyn PathProvider> {
        Arc::new(Agent { options: self.clone(), open: Mutex::new(None) })
    }
}

struct Agent {
    options: AgentOptions,
    open: Mutex<Option<Arc<dyn Context>>>,
}

impl PathProvider for Agent {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    fn open_for(&self, _: Ends) -> Result<Found, String> {
        let mut open = self.open.lock();
        let context = match &*open {
            Some(context) => Arc::clone(context),
            None => {
                let provider = AgentProvider::new(self.options.clone());
                provider.open(&self.options.agent).map_err(|error| error.to_string())?
            }
        };
        *open = Some(Arc::clone(&context));
        Ok(Found { device: Some(self.options.agent.clone()), context })
    }

    fn may_return(&self, _: Ends) -> bool {
        true
    }

    /// The end of the agent is one: the next peer looks for another agent of the name.
    fn take_events(&self) -> bool {
        let mut open = self.open.lock();
        let Some(context) = open.clone() else { return false };
        let events: Vec<AsyncEvent> = std::iter::from_fn(|| context.async_event()).collect();
        if events.contains(&AsyncEvent::DeviceFatal) {
            *open = None;
        }
        !events.is_empty()
    }
}
