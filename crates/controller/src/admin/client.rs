//! One request to a controller that runs.
use super::LABEL;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, header};
use catchment_session::io::{Address, ClientSecurity, ConnectError, SecuredStream};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;

/// A longer answer is none of ours.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The controller did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke, or what answers is no controller.
    #[error("{address}: {reason}")]
    Http {
        /// Who was asked.
        address: Address,
        /// What went wrong.
        reason: String,
    },
    /// It refuses.
    #[error("{reason}")]
    Refused {
        /// Its answer, as HTTP counts.
        code: u16,
        /// Why.
        reason: String,
    },
}

/// Asks the controller at an address for a path, with JSON if something is to change; returns its JSON.
///
/// # Errors
/// [`AskError`].
pub async fn ask(
    address: &Address,
    security: &ClientSecurity,
    (method, path): (Method, &str),
    json: Option<&Value>,
    limit: Duration,
) -> Result<Value, AskError> {
    let stream = SecuredStream::connect(address, security, LABEL, limit).await?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "controller")
        .header(header::CONTENT_TYPE, "application/json")
        .body(json.map_or_else(Body::empty, |json| Body::from(json.to_string())));
    let failed = |reason: String| AskError::Http { address: address.clone(), reason };
    let request = request.map_err(|error| failed(error.to_string()))?;
    let answered = tokio::time::timeout(limit, exchange(stream, request)).await;
    let answered = answered.map_err(|_| failed(format!("no answer within {limit:?}")))?;
    let (code, bytes) = answered.map_err(failed)?;
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    if code == 200 {
        return value.ok_or_else(|| failed("the answer is no JSON".to_owned()));
    }
    let said = value.as_ref().and_then(|value| value["error"].as_str());
    let text = || String::from_utf8_lossy(&bytes).into_owned();
    Err(AskError::Refused { code, reason: said.map_or_else(text, str::to_owned) })
}

/// Puts JSON to a path, as [`ask`] does.
///
/// # Errors
/// [`AskError`].
pub async fn set(
    address: &Address,
    security: &ClientSecurity,
    path: &str,
    json: &Value,
    limit: Duration,
) -> Result<Value, AskError> {
    ask(address, security, (Method::PUT, path), Some(json), limit).await
}

async fn exchange(
    stream: SecuredStream,
    request: Request<Body>,
) -> Result<(u16, axum::body::Bytes), String> {
    let io = TokioIo::new(stream.into_stream());
    let shaken = hyper::client::conn::http1::handshake(io).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let code = answer.status().as_u16();
        let body = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
        Ok((code, body.map_err(|error| error.to_string())?))
    };
    let driven = async {
        let ended = connection.await;
        ended.map_err(|error| error.to_string())
    };
    tokio::pin!(exchange, driven);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        ended = &mut driven => {
            ended?;
            // What has come is still to be taken.
            exchange.await
        }
    }
}
