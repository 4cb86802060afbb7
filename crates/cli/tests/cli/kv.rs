//! `catchment kv`: a store that processes read and change, over shared memory, RoCE and messages.
use crate::common::{Collector, catchment, run};

fn serve() -> (Collector, String) {
    let mut command = catchment();
    command.args(["kv", "serve", "--json", "--listen", "127.0.0.1:0", "--memory", "8MiB"]);
    let store = Collector::start_command(&mut command);
    let address = store.listening["address"].as_str().unwrap().to_owned();
    assert_eq!(store.listening["memory_bytes"], 8 << 20);
    (store, address)
}

#[test]
fn what_one_process_puts_others_get_by_every_way() {
    let (store, at) = serve();
    let kv = |words: &[&str]| {
        let server = ["--server", at.as_str()];
        run(["kv"].into_iter().chain(words.iter().copied()).chain(server))
    };
    let put = kv(&["put", "greeting", "good morning", "--json"]).expect(0);
    let version = put.json_lines()[0]["version"].as_u64().unwrap();
    for words in [vec![], vec!["--provider", "roce"], vec!["--sided", "two"]] {
        let words = [vec!["get", "greeting"], words].concat();
        assert_eq!(kv(&words).expect(0).stdout, "good morning");
    }
    let late = kv(&["put", "greeting", "hello", "--only", &(version + 1).to_string()]).expect(1);
    assert!(late.stderr.contains(&format!("it is version {version}")), "{late:#?}");
    kv(&["put", "greeting", "hello", "--only", &version.to_string()]).expect(0);
    let got = kv(&["get", "greeting", "--json"]).expect(0).json_lines()[0].clone();
    assert_eq!((&got["value"], got["version"].as_u64()), (&"hello".into(), Some(version + 1)));
    let nothing = kv(&["get", "farewell"]).expect(1);
    assert!(nothing.stderr.contains("no key \"farewell\""), "{nothing:#?}");
    kv(&["delete", "greeting"]).expect(0);
    assert_eq!(kv(&["get", "greeting", "--json"]).expect(0).json_lines()[0]["found"], false);
    let long = kv(&["put", &"k".repeat(1025), "v"]).expect(2);
    assert!(long.stderr.contains("1 to 1024"), "{long:#?}");
    let row = kv(&["bench", "--seconds", "0.1", "--clients", "2", "--keys", "50", "--json"]);
    let row = row.expect(0).json_lines()[0].clone();
    assert_eq!((&row["what"], &row["sided"]), (&"ycsb-b".into(), &"one".into()));
    assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
    assert_eq!(store.end()["keys"], 50);
    let gone = kv(&["get", "greeting"]).expect(3);
    assert!(gone.stderr.contains("catchment kv serve"), "{gone:#?}");
}

#[test]
fn the_help_says_that_everything_is_in_memory_only() {
    for words in [vec!["kv", "--help"], vec!["kv", "serve", "--help"]] {
        assert!(run(words).expect(0).stdout.contains("in memory only"));
    }
    let few = run(["kv", "serve", "--memory", "1kB", "--listen", "127.0.0.1:0"]).expect(2);
    assert!(few.stderr.contains("1048576 at least"), "{few:#?}");
}
