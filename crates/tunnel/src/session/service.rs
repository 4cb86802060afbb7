//! The end of services: it answers ends with clients, each with a session, a queue pair and a thread of its own.
use super::event::{Connected, Report, Totals, TunnelEvent};
use super::message::{EndCard, Hello, LABEL, Message, Welcome};
use super::{
    BLOCKS, HANDSHAKE, LAST_WORD, LEASE, Made, NotMade, PAYLOAD_BYTES, StartError, acquire,
    check_packets, connect, drain_events, hear, protection_text, say, unexpected, wait_for_stop,
};
use crate::mux::Limits;
use crate::relay::{Counters, Local, Relay};
use catchment_channel::ChannelShape;
use catchment_providers::{Ends, ProviderSet, Providers};
use catchment_session::SOFTWARE;
use catchment_session::host::Host;
use catchment_session::io::{
    Address, Arriving, Place, ServerSecurity, StreamListener, StreamReader, StreamWriter,
};
use catchment_session::names::is_service;
use catchment_session::path::SourceFacts;
use catchment_session::tls::Protection;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Connections that make their handshake at a time.
const HANDSHAKES: usize = 16;
/// Sessions at a time: each has a thread and the memory of a channel.
const SESSIONS: usize = 256;
/// What the end of services needs to know.
#[derive(Debug, Clone)]
pub struct ServiceConfig {
    /// Where ends with clients reach it.
    pub listen: Address,
    /// Services by name, and where each listens.
    pub services: Vec<(String, Local)>,
    /// With what bytes can be moved.
    pub providers: ProviderSet,
    /// How sessions are protected.
    pub security: ServerSecurity,
    /// Packets that are neither encrypted nor authenticated are good enough.
    pub insecure: bool,
    /// Most connections at a time, of a session.
    pub streams: u32,
    /// Bytes of a connection that this end takes before its service has read them.
    pub window_bytes: u32,
}

/// The end of services. Dropping it ends all sessions and connections.
pub struct ServiceEnd {
    local: Address,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ServiceEnd {
    /// Listens for ends with clients.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: ServiceConfig, report: Report) -> Result<Self, StartError> {
        if let Some((name, _)) = config.services.iter().find(|(name, _)| !is_service(name)) {
            return Err(StartError::Service(name.clone()));
        }
        let host = Host::read()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let bound = StreamListener::bind(&config.listen, config.security.clone());
        let listener = runtime.block_on(bound)?;
        let local = listener.local().clone();
        let counters = Arc::new(Counters::default());
        let (stop, stopped) = watch::channel(false);
        let desk = Arc::new(Desk {
            providers: Arc::new(Providers::new(&config.providers)),
            config,
            host,
            report,
            counters: Arc::clone(&counters),
            stopped,
        });
        let thread = std::thread::Builder::new().name("tunnel-session".to_owned());
        let thread = thread.spawn(move || desk.run(runtime, listener))?;
        Ok(Self { local, counters, stop, thread: Some(thread) })
    }

    /// Returns where ends with clients reach it, with the port that the system chose.
    #[must_use]
    pub const fn local(&self) -> &Address {
        &self.local
    }

    /// Returns what it has done, in all sessions.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }
}

impl Drop for ServiceEnd {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the sessions panicked");
        }
    }
}

struct Desk {
    config: ServiceConfig,
    host: Host,
    providers: Arc<Providers>,
    report: Report,
    counters: Arc<Counters>,
    stopped: watch::Receiver<bool>,
}

impl Desk {
    fn run(self: Arc<Self>, runtime: Runtime, listener: StreamListener) {
        let sessions = Arc::new(Semaphore::new(SESSIONS));
        runtime.block_on(async {
            let mut stopped = self.stopped.clone();
            tokio::select! {
                () = Arc::clone(&self).accept_all(listener, Arc::clone(&sessions)) => {}
                () = drain_events(Arc::clone(&self.providers)) => {}
                () = wait_for_stop(&mut stopped) => {}
            }
            // Sessions say their last words and end.
            let all = sessions.acquire_many(SESSIONS as u32);
            let _ = timeout(2 * LAST_WORD, all).await;
        });
        runtime.shutdown_background();
    }

    async fn accept_all(self: Arc<Self>, listener: StreamListener, sessions: Arc<Semaphore>) {
        let serve = |arriving: Arriving, place: Place| {
            let (desk, sessions) = (Arc::clone(&self), Arc::clone(&sessions));
            async move {
                let Ok(_session) = sessions.acquire_owned().await else { return };
                let peer = arriving.peer().to_string();
                let made = timeout(HANDSHAKE, Box::pin(desk.answer(arriving))).await;
                drop(place);
                let slow = || Err(NotMade::for_now(format!("no session within {HANDSHAKE:?}")));
                match made.unwrap_or_else(|_| slow()) {
                    Ok((made, service)) => desk.run_session(made, service).await,
                    Err(NotMade { reason, .. }) => {
                        (desk.report)(TunnelEvent::Refused { peer, reason });
                    }
                }
            }
        };
        listener.serve_each(HANDSHAKES, serve).await;
    }

    async fn run_session(&self, made: Made, service: Local) {
        let (relayed, kept, connected) = made.split(Some(service));
        let (peer, service) = (connected.peer.clone(), connected.service.clone());
        let relay = match Relay::start(None, Arc::clone(&self.counters)) {
            Ok(relay) => relay,
            Err(error) => {
                (self.report)(TunnelEvent::Refused { peer, reason: error.to_string() });
                return;
            }
        };
        relay.connect(relayed);
        let mut kept = kept;
        // Only now: what the other end sends finds this one at work.
        if let Err(NotMade { reason, .. }) = say(&mut kept.writer, &Message::Ready {}).await {
            (self.report)(TunnelEvent::Refused { peer, reason });
            return;
        }
        (self.report)(TunnelEvent::Connected(connected));
        let reason = kept.keep(self.stopped.clone()).await;
        drop(relay);
        (self.report)(TunnelEvent::Disconnected { peer, service, reason });
    }

    /// Makes the handshake, up to the last message of it. An end that is refused is told why.
    async fn answer(&self, arriving: Arriving) -> Result<(Made, Local), NotMade> {
        let stream = arriving.secure(LABEL).await.map_err(NotMade::for_good)?;
        let ends = Ends { local: stream.local_ip(), peer: stream.peer().ip() };
        let (protection, peer) = (stream.protection(), stream.peer().to_string());
        let certificate = stream.certificate().map(str::to_owned);
        let (mut reader, mut writer) = stream.split();
        let made = self.agree(&mut reader, &mut writer, ends, protection).await;
        match made {
            Ok(agreed) => {
                let Agreed { channel, limits, service, local, mut connected } = agreed;
                (connected.peer, connected.certificate) = (peer, certificate);
                connected.service = service;
                let payload_bytes = PAYLOAD_BYTES;
                let lease = LEASE;
                let made =
                    Made { channel, limits, payload_bytes, lease, reader, writer, connected };
                Ok((made, local))
            }
            Err(not_made) => {
                let NotMade { reason, transient } = not_made.clone();
                let _ = say(&mut writer, &Message::Refused { reason, transient }).await;
                writer.close().await;
                Err(not_made)
            }
        }
    }

    async fn agree(
        &self,
        reader: &mut StreamReader,
        writer: &mut StreamWriter,
        ends: Ends,
        protection: Protection,
    ) -> Result<Agreed, NotMade> {
        let Message::Hello(hello) = hear(reader).await? else { return Err(unexpected()) };
        let local = self.find(&hello)?;
        let source = SourceFacts {
            host: &hello.host,
            offers: &hello.providers,
            missing: &hello.missing,
            failed: &[],
            seen: ends.peer,
        };
        let chosen = self.providers.choose(&self.host, &source, ends);
        let refused = |refusal: catchment_session::refusal::Refusal| NotMade {
            transient: refusal.retry_after_ms.is_some(),
            reason: format!("{}; {}", refusal.reason, refusal.remedy),
        };
        let (choice, context) = chosen.map_err(refused)?;
        let nets = [choice.collector.net, choice.source.net];
        let data = check_packets(protection, nets, self.config.insecure && hello.insecure)?;
        let shape = ChannelShape::new(BLOCKS, PAYLOAD_BYTES).with_mode(hello.mode);
        let resources = acquire(context, shape).await?;
        let streams = hello.streams.min(self.config.streams);
        let welcome = Welcome {
            software: SOFTWARE.to_owned(),
            path: choice.path.clone(),
            reason: choice.reason.clone(),
            end: EndCard::of(&resources.card()),
            window_bytes: self.config.window_bytes,
            streams,
            lease_ms: LEASE.as_millis() as u32,
            mode: hello.mode,
        };
        say(writer, &Message::Welcome(welcome)).await?;
        let Message::Connect(end) = hear(reader).await? else { return Err(unexpected()) };
        let card = end.read(choice.path.path_mtu).map_err(NotMade::for_good)?;
        let channel = connect(resources, card).await?;
        let limits = Limits {
            streams,
            window_bytes: self.config.window_bytes,
            peer_window_bytes: hello.window_bytes,
        };
        let connected = Connected {
            peer: String::new(),
            certificate: None,
            service: String::new(),
            provider: choice.path.collector,
            peer_provider: choice.path.source,
            reason: choice.reason,
            mode: hello.mode.to_string(),
            session_protection: protection_text(protection).to_owned(),
            data_protection: data.to_owned(),
        };
        Ok(Agreed { channel, limits, service: hello.service, local, connected })
    }

    fn find(&self, hello: &Hello) -> Result<Local, NotMade> {
        let services = &self.config.services;
        let found = services.iter().find(|(name, _)| *name == hello.service);
        found.map(|(_, local)| local.clone()).ok_or_else(|| {
            let names: Vec<&str> = services.iter().map(|(name, _)| name.as_str()).collect();
            NotMade::for_good(format!(
                "there is no service {:?}; there are: {}",
                hello.service,
                names.join(", ")
            ))
        })
    }
}

/// What a handshake came to.
struct Agreed {
    channel: catchment_channel::Channel,
    limits: Limits,
    service: String,
    local: Local,
    connected: Connected,
}
