//! The end with the clients: it listens for them, and keeps a session with the end of their service.
use super::event::{Connected, Report, Totals, TunnelEvent};
use super::message::{EndCard, Hello, Message, VERSION};
use super::{
    HANDSHAKE, Made, NotMade, StartError, acquire, check_packets, connect, dial, drain_events,
    hear, protection_text, say, shape_of, unexpected, wait_for_stop,
};
use crate::mux::Limits;
use crate::relay::{Counters, Local, Relay};
use catchment_channel::Mode;
use catchment_providers::{Ends, ProviderSet, Providers};
use catchment_session::SOFTWARE;
use catchment_session::backoff::Backoff;
use catchment_session::host::Host;
use catchment_session::io::{Address, ClientSecurity};
use catchment_session::names::is_service;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;

/// Tries after which the pauses between them grow no more.
const MOST_TRIES: u32 = 16;

/// What the end with the clients needs to know.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Where clients connect.
    pub listen: Local,
    /// The end of the service.
    pub to: Address,
    /// The name of the service there.
    pub service: String,
    /// With what bytes can be moved.
    pub providers: ProviderSet,
    /// How the session is protected.
    pub security: ClientSecurity,
    /// Packets that are neither encrypted nor authenticated are good enough.
    pub insecure: bool,
    /// Most connections at a time.
    pub streams: u32,
    /// Bytes of a connection that this end takes before its client has read them.
    pub window_bytes: u32,
    /// How messages travel, both ways.
    pub mode: Mode,
}

/// The end with the clients. Dropping it ends the session and all connections.
pub struct ClientEnd {
    local: Local,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ClientEnd {
    /// Listens, and dials the other end until it is there. Clients are turned away until then.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: ClientConfig, report: Report) -> Result<Self, StartError> {
        if !is_service(&config.service) {
            return Err(StartError::Service(config.service));
        }
        let host = Host::read()?;
        let failed = |source| StartError::Listen { address: config.listen.clone(), source };
        let listener = config.listen.listen().map_err(failed)?;
        let local = match &config.listen {
            Local::Tcp(addr) => {
                let bound = listener.local_addr().map(|addr| addr.as_socket());
                Local::Tcp(bound.ok().flatten().unwrap_or(*addr))
            }
            Local::Unix(path) => Local::Unix(path.clone()),
        };
        let counters = Arc::new(Counters::default());
        let relay = Relay::start(Some(listener), Arc::clone(&counters))?;
        let providers = Arc::new(Providers::new(&config.providers));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let dialer = Dialer { config, host, providers, report };
        let thread = std::thread::Builder::new().name("tunnel-session".to_owned());
        let thread = thread.spawn(move || dialer.run(runtime, &relay, stopped))?;
        Ok(Self { local, counters, stop, thread: Some(thread) })
    }

    /// Returns where clients connect, with the port that the system chose.
    #[must_use]
    pub const fn local(&self) -> &Local {
        &self.local
    }

    /// Returns what it has done.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the session panicked");
        }
        if let Local::Unix(path) = &self.local {
            let _ = std::fs::remove_file(path);
        }
    }
}

struct Dialer {
    config: ClientConfig,
    host: Host,
    providers: Arc<Providers>,
    report: Report,
}

impl Dialer {
    fn run(&self, runtime: Runtime, relay: &Relay, stopped: watch::Receiver<bool>) {
        runtime.block_on(async {
            let mut end = stopped.clone();
            tokio::select! {
                () = self.keep_dialing(relay, stopped) => {}
                () = drain_events(Arc::clone(&self.providers)) => {}
                // What the session says last has its time.
                () = async {
                    wait_for_stop(&mut end).await;
                    tokio::time::sleep(2 * super::LAST_WORD).await;
                } => {}
            }
        });
        // A name that is being looked up keeps nobody waiting.
        runtime.shutdown_background();
    }

    async fn keep_dialing(&self, relay: &Relay, mut stopped: watch::Receiver<bool>) {
        let backoff = Backoff::new(u64::from(std::process::id()));
        let (mut tries, mut known, mut had_one) = (0, String::new(), false);
        while !*stopped.borrow() {
            let made = tokio::select! {
                made = timeout(HANDSHAKE, self.make()) => made,
                () = wait_for_stop(&mut stopped) => return,
            };
            let slow = || NotMade::for_now(format!("no session within {HANDSHAKE:?}"));
            match made.unwrap_or_else(|_| Err(slow())) {
                Ok(made) => {
                    (tries, had_one) = (0, true);
                    known.clear();
                    let (relayed, kept, connected) = made.split(None);
                    let peer = connected.peer.clone();
                    relay.connect(relayed);
                    (self.report)(TunnelEvent::Connected(connected));
                    let reason = kept.keep(stopped.clone()).await;
                    relay.disconnect();
                    let service = self.config.service.clone();
                    (self.report)(TunnelEvent::Disconnected { peer, service, reason });
                }
                Err(NotMade { reason, transient }) => {
                    let to = self.config.to.to_string();
                    if !transient && !had_one {
                        (self.report)(TunnelEvent::Failed { to, reason });
                        return;
                    }
                    if reason != known {
                        known.clone_from(&reason);
                        (self.report)(TunnelEvent::Waiting { to, reason });
                    }
                }
            }
            let pause = backoff.delay(tries, Duration::ZERO);
            tries = (tries + 1).min(MOST_TRIES);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = wait_for_stop(&mut stopped) => return,
            }
        }
    }

    async fn make(&self) -> Result<Made, NotMade> {
        let config = &self.config;
        let stream = dial(&config.to, &config.security).await?;
        let ends = Ends { local: stream.local_ip(), peer: stream.peer().ip() };
        let (protection, peer) = (stream.protection(), stream.peer().to_string());
        let (mut reader, mut writer) = stream.split();
        let offers = self.providers.for_source(ends);
        let hello = Hello {
            version: VERSION,
            software: SOFTWARE.to_owned(),
            host: self.host.clone(),
            service: config.service.clone(),
            providers: offers.list(),
            missing: offers.missing.clone(),
            window_bytes: config.window_bytes,
            streams: config.streams,
            insecure: config.insecure,
            mode: config.mode,
        };
        say(&mut writer, &Message::Hello(hello)).await?;
        let Message::Welcome(welcome) = hear(&mut reader).await? else { return Err(unexpected()) };
        let path_mtu = welcome.path.path_mtu;
        if welcome.mode != config.mode {
            let (asked, told) = (config.mode, welcome.mode);
            return Err(NotMade::for_good(format!(
                "the other end speaks the mode {told} in answer to {asked}: use --mode {told}, or update it"
            )));
        }
        let card = welcome.end.read(path_mtu).map_err(NotMade::for_good)?;
        let context = offers.context(&welcome.path);
        let context =
            context.ok_or_else(|| NotMade::for_good("a path was chosen that was not offered"))?;
        let data = check_packets(protection, [context.net(), card.endpoint.net], config.insecure)?;
        let shape = shape_of(&card, config.mode)?;
        let resources = acquire(Arc::clone(context), shape).await?;
        say(&mut writer, &Message::Connect(EndCard::of(&resources.card()))).await?;
        let Message::Ready {} = hear(&mut reader).await? else { return Err(unexpected()) };
        let channel = connect(resources, card).await?;
        let limits = Limits {
            streams: welcome.streams.min(config.streams),
            window_bytes: config.window_bytes,
            peer_window_bytes: welcome.window_bytes,
        };
        let connected = Connected {
            peer,
            certificate: None,
            service: config.service.clone(),
            provider: welcome.path.source.clone(),
            peer_provider: welcome.path.collector.clone(),
            reason: catchment_session::names::printable(&welcome.reason, 1024),
            mode: config.mode.to_string(),
            session_protection: protection_text(protection).to_owned(),
            data_protection: data.to_owned(),
        };
        let lease = Duration::from_millis(welcome.lease_ms.into());
        Ok(Made {
            channel,
            limits,
            payload_bytes: shape.payload_bytes,
            lease,
            reader,
            writer,
            connected,
        })
    }
}
