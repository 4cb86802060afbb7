//! One session without devices: up to the proof that packets pass, and no further.

use super::ExplainError;
use catchment::observe::SessionSnapshot;
use catchment::providers::Offers;
use catchment::session::io::{Connection, RecvError, SendError};
use catchment::session::message::{FailedPath, Hello, SessionPath, Welcome};
use catchment::session::path::KnownProviders;
use catchment::session::refusal::{Refusal, RefusalCode};
use catchment::session::source_side::{
    Ended, Input, Output, SourceEvent, SourceSide, SourceSideConfig,
};
use catchment::source::probe::{
    Connecting, LinkError, Prepared, SEND_WRS, check_welcome, unusable,
};
use std::time::{Duration, Instant};

/// A way over which packets passed.
#[derive(Clone)]
pub(super) struct Proven {
    pub(super) session: SessionSnapshot,
    /// The time that the proof took.
    pub(super) took: Duration,
}

/// A way over which they did not.
struct Refuted {
    /// The path MTU that was too large, if that is all.
    path_mtu: Option<u32>,
    reason: String,
}

/// How one session without devices ended.
pub(super) enum Attempt {
    Proven(Proven),
    Failed(FailedPath),
    Refused(Refusal),
}

/// One session without devices.
pub(super) struct Visit {
    connection: Connection,
    offers: Offers,
    side: SourceSide,
    prepared: Option<(Prepared, Welcome)>,
    /// The proof that is under way; it gives the time that it took.
    proving: Option<Connecting<Duration>>,
    path: Option<SessionPath>,
    /// What the proof showed: the session and how long it took, or why not.
    outcome: Option<Result<Proven, Refuted>>,
}

impl Visit {
    /// Begins with `hello`, which has no devices.
    pub(super) fn new(
        connection: Connection,
        offers: Offers,
        known: KnownProviders,
        hello: Hello,
    ) -> Visit {
        let config = SourceSideConfig::new(known);
        Visit {
            connection,
            offers,
            side: SourceSide::new(Instant::now(), config, hello),
            prepared: None,
            proving: None,
            path: None,
            outcome: None,
        }
    }

    pub(super) async fn drive(&mut self) -> Result<Ended, ExplainError> {
        loop {
            let deadline = loop {
                match self.side.poll() {
                    Output::Transmit(message) => {
                        let sent = self.connection.send(&message).await;
                        sent.map_err(|error: SendError| ExplainError::Broken(error.to_string()))?;
                    }
                    Output::Event(SourceEvent::Ended(ended)) => return Ok(ended),
                    Output::Event(event) => {
                        if let Err(refusal) = self.on_event(event) {
                            self.side.refuse(refusal);
                        }
                    }
                    Output::Timeout(deadline) => break deadline,
                }
            };
            self.wait(deadline).await;
        }
    }

    async fn wait(&mut self, deadline: Option<Instant>) {
        let until = deadline.unwrap_or_else(|| Instant::now() + Duration::from_secs(1));
        tokio::select! {
            biased;
            message = self.connection.recv() => match message {
                Ok(message) => self.side.handle(Instant::now(), Input::Message(message)),
                Err(RecvError::Decode(error)) => self.side.refuse(error.refusal()),
                Err(_) => self.side.handle(Instant::now(), Input::Disconnected),
            },
            proven = Connecting::done(&mut self.proving) => self.on_proven(proven),
            () = tokio::time::sleep_until(until.into()) => {
                self.side.handle(Instant::now(), Input::Timeout);
            }
        }
    }

    fn on_event(&mut self, event: SourceEvent) -> Result<(), Refusal> {
        match event {
            SourceEvent::Welcomed(welcome) => self.on_welcome(welcome),
            SourceEvent::Ready => self.on_ready(),
            SourceEvent::Delivered(_) | SourceEvent::Ended(_) => Ok(()),
        }
    }

    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), Refusal> {
        check_welcome(&welcome)?;
        self.path = Some(welcome.path.clone());
        let Some(context) = self.offers.context(&welcome.path) else {
            return Err(unusable(&"a provider that was not offered"));
        };
        let prepared = match Prepared::new(context, SEND_WRS) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.fail(&error)),
        };
        let connect = self
            .side
            .connect(Instant::now(), prepared.endpoint(), Vec::new());
        self.prepared = Some((prepared, welcome));
        connect.map_err(|error| unusable(&error))
    }

    fn on_ready(&mut self) -> Result<(), Refusal> {
        let Some((prepared, welcome)) = self.prepared.take() else {
            return Err(unusable(&"Ready without a queue pair"));
        };
        let peer = self.connection.peer().to_string();
        let prove = |mut prepared: Prepared, target| {
            let begun = Instant::now();
            prepared.reach(&target).map(|()| begun.elapsed())
        };
        self.proving = Some(Connecting::begin(prepared, &welcome, peer, prove)?);
        Ok(())
    }

    fn on_proven(&mut self, proven: Result<Duration, LinkError>) {
        let Some(proving) = self.proving.take() else {
            return;
        };
        match proven {
            Ok(took) => {
                let session = proving.session.clone();
                self.outcome = Some(Ok(Proven { session, took }));
                if let Err(error) = self.side.goodbye(Vec::new()) {
                    tracing::debug!(%error, "no goodbye");
                }
            }
            Err(error) => {
                let refusal = self.fail(&error);
                self.side.refuse(refusal);
            }
        }
    }

    fn fail(&mut self, error: &LinkError) -> Refusal {
        self.outcome = Some(Err(Refuted {
            path_mtu: error.too_large(),
            reason: error.to_string(),
        }));
        error.refusal()
    }

    /// What the whole session showed.
    pub(super) fn judge(&self, ended: &Ended) -> Result<Attempt, ExplainError> {
        let failed = |path_mtu, reason: &str| {
            let path = self.path.as_ref()?;
            Some(Attempt::Failed(path.failed(path_mtu, reason)))
        };
        let attempt = match (&self.outcome, ended.told()) {
            (Some(Ok(proven)), _) => Some(Attempt::Proven(proven.clone())),
            (_, Some(refusal)) if refusal.code == RefusalCode::PathFailed => {
                failed(None, &refusal.reason)
            }
            (_, Some(refusal)) => Some(Attempt::Refused(refusal.clone())),
            (Some(Err(refuted)), None) => failed(refuted.path_mtu, &refuted.reason),
            (None, None) => None,
        };
        attempt.ok_or_else(|| ExplainError::Broken(ended.to_string()))
    }
}
