//! The live page of a program that says how it stands in one object.
use super::dashboard::{Answer, ask};
use catchment_observe::{
    DashboardConfig, DashboardError, ExplainError, StatusPage, StatusSource, StatusView,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counts how often it was asked; fails with this reason.
struct Counting(Arc<AtomicU64>, Option<&'static str>);

impl StatusSource for Counting {
    fn status(&mut self) -> Result<Value, String> {
        let asked = self.0.fetch_add(1, Relaxed) + 1;
        self.1.map_or_else(|| Ok(json!({ "asked": asked })), |reason| Err(reason.to_owned()))
    }

    fn metrics(&mut self) -> Result<String, String> {
        self.1.map_or_else(|| Ok("up 1\n".to_owned()), |reason| Err(reason.to_owned()))
    }

    fn explain(&mut self, name: &str) -> Result<Option<Vec<String>>, ExplainError> {
        match (self.1, name) {
            (Some(reason), _) => Err(ExplainError::Status(reason.to_owned())),
            (None, "\n") => Err(ExplainError::Name("no name has a line break".to_owned())),
            (None, "nothing") => Ok(None),
            (None, name) => Ok(Some(vec![format!("{name} waits"), "<b>".to_owned()])),
        }
    }
}

fn start(view: StatusView, fails: Option<&'static str>) -> (Arc<AtomicU64>, StatusPage) {
    let asked = Arc::<AtomicU64>::default();
    let source = Counting(asked.clone(), fails);
    (asked, StatusPage::start(DashboardConfig::default(), view, source).unwrap())
}

fn get(page: &StatusPage, path: &str) -> Answer {
    ask(page.local_addr(), &format!("GET {path}"), &["Host: localhost"])
}

#[test]
fn nothing_is_asked_until_somebody_looks_and_all_see_the_same() {
    let (asked, page) = start(StatusView::Controller, None);
    assert_eq!(get(&page, "/").status, 200);
    assert_eq!(asked.load(Relaxed), 0, "the page itself asks nothing");
    let status: Value = serde_json::from_str(get(&page, "/api/status").text()).unwrap();
    assert_eq!(status["asked"], 1);
    assert_eq!(get(&page, "/metrics").text(), "up 1\n");
    assert_eq!(get(&page, "/api/preview/cam0.png").status, 404);
    assert_eq!(ask(page.local_addr(), "POST /api/status", &["Host: localhost"]).status, 405);
}

#[test]
fn each_view_is_one_file_with_its_own_script() {
    for (view, words) in [
        (StatusView::Controller, ["page of a controller", "id=\"links\""]),
        (StatusView::Agent, ["page of an agent", "id=\"apps\""]),
        (StatusView::Source, ["page of a source", "id=\"devices\""]),
    ] {
        let (_, page) = start(view, None);
        let answer = get(&page, "/");
        assert!(words.iter().all(|word| answer.text().contains(word)), "{view:?}");
        assert!(!answer.text().contains("{{"), "all is put in");
        assert!(answer.header("content-security-policy").unwrap().contains("script-src 'nonce-"));
    }
}

#[test]
fn a_program_that_cannot_say_how_it_stands_says_why() {
    let (_, page) = start(StatusView::Agent, Some("its thread has ended"));
    let status: Value = serde_json::from_str(get(&page, "/api/status").text()).unwrap();
    assert_eq!(status, json!({ "error": "its thread has ended" }));
    let metrics = get(&page, "/metrics");
    assert_eq!((metrics.status, metrics.text()), (503, "its thread has ended\n"));
}

#[test]
fn it_is_guarded_as_the_page_of_a_collector_is() {
    let (_, page) = start(StatusView::Agent, None);
    let foreign = ask(page.local_addr(), "GET /api/status", &["Host: evil.example"]);
    assert_eq!(foreign.status, 421);
    let listen = "0.0.0.0:0".parse().unwrap();
    let config = DashboardConfig { listen, ..DashboardConfig::default() };
    let source = Counting(Arc::default(), None);
    let refused = StatusPage::start(config, StatusView::Agent, source).unwrap_err();
    assert!(matches!(refused, DashboardError::NotLoopback(_)), "{refused}");
}

#[test]
fn a_stream_is_explained_by_its_name() {
    let (asked, page) = start(StatusView::Controller, None);
    let answer = get(&page, "/api/explain/cam%201");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let said: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(said, json!({ "streams": ["cam 1 waits", "<b>"] }));
    assert_eq!(
        get(&page, "/api/explain/nothing").status,
        404,
        "what explains nothing has no such page"
    );
    let answer = get(&page, "/api/explain/%0A");
    assert_eq!((answer.status, answer.text()), (400, "no name has a line break\n"));
    assert_eq!(asked.load(Relaxed), 0, "the status is not asked for");
    let html = get(&page, "/");
    assert!(html.text().contains("id=\"why\"") && html.text().contains("/api/explain/"));
    let (_, page) = start(StatusView::Controller, Some("its thread has ended"));
    let answer = get(&page, "/api/explain/cam0");
    assert_eq!((answer.status, answer.text()), (503, "its thread has ended\n"));
}
