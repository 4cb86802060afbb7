//! The one file of a page: its markup, style and script, put together anew for each visit.
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("common.js");

/// What a page has of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    pub(super) title: &'static str,
    pub(super) body: &'static str,
    pub(super) style: &'static str,
    pub(super) script: &'static str,
}

/// Answers with a page, which may run its own script and style, ask its own server, and nothing else.
pub(super) fn answer(texts: &Texts) -> Response {
    let nonce = match fresh_nonce() {
        Ok(nonce) => nonce,
        Err(error) => {
            let text = format!("no random numbers: {error}\n");
            return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        }
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let page = FRAME
        .replace("{{title}}", texts.title)
        .replace("{{body}}", texts.body)
        .replace("{{nonce}}", &nonce)
        .replace("{{style}}", &format!("{STYLE}{}", texts.style))
        .replace("{{script}}", &format!("{SCRIPT}{}", texts.script));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = ([(header::CONTENT_TYPE, html)], page).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn fresh_nonce() -> rustix::io::Result<String> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
