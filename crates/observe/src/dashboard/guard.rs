//! Which requests are served, and what a browser may do with the answer.
//!
//! A foreign web page can let its own host name resolve to 127.0.0.1 and so read a local server as
//! if it were its own (DNS rebinding). It cannot do that under an IP address or `localhost`, so
//! those and the names that the user configured are served, and every other `Host` is refused.
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// Headers of every answer. The policy of the page itself adds what its one script needs.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const STRICTEST: &str = "default-src 'none'; frame-ancestors 'none'";

/// The host names that are served.
#[derive(Debug, Clone)]
pub(super) enum Guard {
    /// Those, besides addresses and `localhost`.
    Names(Arc<[String]>),
    /// Those of the certificate, which the browser has checked.
    Certificate,
}

impl Guard {
    /// Returns whether a browser that reached us under `host` (a name or address, maybe with a
    /// port) is where the user sent it.
    fn allows(&self, host: &str) -> bool {
        let Self::Names(names) = self else { return true };
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host();
        let address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns the first host of a request that is not served: in its `Host` header or in its
    /// address line.
    fn refused(&self, request: &Request) -> Option<String> {
        let header = request.headers().get(header::HOST);
        let header = header.and_then(|host| host.to_str().ok()).unwrap_or("");
        [Some(header), request.uri().authority().map(Authority::as_str)]
            .into_iter()
            .flatten()
            .find(|host| !self.allows(host))
            .map(ToOwned::to_owned)
    }
}

/// Refuses unknown hosts and adds the security headers to every answer.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let mut response = match guard.refused(&request) {
        None => next.run(request).await,
        Some(host) => refusal(&host),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(STRICTEST));
    response
}

fn refusal(host: &str) -> Response {
    let text = format!(
        "This page is not served under the host name {host:?}. Use the IP address or localhost, \
         or allow the name with --dashboard-name.\n"
    );
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_served_and_other_names_only_if_configured() {
        let guard = Guard::Names([String::from("lab-7")].into());
        for host in
            ["127.0.0.1:80", "10.1.2.3", "[::1]:8080", "localhost:1", "LOCALHOST", "Lab-7:9"]
        {
            assert!(guard.allows(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "a b", "lab-7.evil"]
        {
            assert!(!guard.allows(host), "{host}");
        }
    }
}
