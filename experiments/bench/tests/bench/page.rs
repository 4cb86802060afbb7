//! Pages that follow from rows.
use crate::{Folder, bench, errors, run};
use std::fs;
use std::path::Path;

const SOURCE: &str = r#"
title = "A measurement"
about = "What it is."

[[part]]
title = "The first"
command = "bench it"
rows = "it.jsonl"
split = ["what"]
"#;

const ROWS: &str = r#"{"what":"run","commit":"c0ffee","load":0.5}
{"what":"speed","place":"here","bytes":64,"per_s":1234567.8,"ns":0.12345,"never":null}
{"what":"speed","place":"here","bytes":4096,"per_s":999.96,"ns":null,"never":null}
{"what":"size","place":"here","bytes":20000000000}
{"what":"goal","goal":"speed, at least 2","place":"here","ratio":2.5,"held":true}
{"what":"goal","goal":"size <= 3","value":4,"held":false,"why_not":"it is large"}
"#;

const PAGE: &str = "# A measurement

Written by `cargo xtask bench page` out of the rows in this folder. Do not edit.

What it is.

## The first

`bench it`, rows in [it.jsonl](it.jsonl).

commit c0ffee, load 0.5.

1 of 2 goals are held, 1 missed, 0 not measured.

| goal | where | reached |  | why |
|---|---|---|---|---|
| size <= 3 |  | 4 | **missed** | it is large |
| speed, at least 2 | place here | 2.5 | held |  |

### speed

In all rows: place here.

| bytes | per s | ns |
|---|---|---|
| 64 | 1,234,568 | 0.1235 |
| 4096 | 1000 | - |

### size

| place | bytes |
|---|---|
| here | 20 G |
";

#[test]
fn a_page_says_what_its_rows_say_and_what_was_missed_first() {
    let folder = Folder::new("page");
    fs::write(folder.0.join("page.toml"), SOURCE).unwrap();
    fs::write(folder.0.join("it.jsonl"), ROWS).unwrap();
    let name = folder.0.to_str().unwrap();
    assert!(errors(&run(&["page", "--check", name])).contains("not what their rows give"));
    assert!(run(&["page", name]).status.success());
    assert_eq!(fs::read_to_string(folder.0.join("README.md")).unwrap(), PAGE);
    assert!(run(&["page", "--check", name]).status.success());
    fs::write(folder.0.join("it.jsonl"), ROWS.replace("\"what\":\"size\",", "")).unwrap();
    let said = errors(&run(&["page", name]));
    assert!(said.contains("it.jsonl") && said.contains("line 4"), "{said}");
}

/// A picture follows from the rows, and a line of it that no row is of is named.
#[test]
fn a_page_has_pictures_of_its_rows() {
    let folder = Folder::new("picture");
    let picture = r#"
[[part.picture]]
along = "bytes"
lines = [{ label = "all", at = { what = "speed", bytes = [64, 4096] } }]
plot = { name = "speed", title = "Speed", metric = "per_s", y = "1/s", paper = [{ y = 2000.0, says = "2000" }] }
"#;
    fs::write(folder.0.join("page.toml"), format!("{SOURCE}{picture}")).unwrap();
    fs::write(folder.0.join("it.jsonl"), ROWS).unwrap();
    let name = folder.0.to_str().unwrap();
    assert!(run(&["page", name]).status.success());
    let page = fs::read_to_string(folder.0.join("README.md")).unwrap();
    assert!(page.contains("![Speed](speed.svg) ([PNG](speed.png))"), "{page}");
    let svg = fs::read_to_string(folder.0.join("speed.svg")).unwrap();
    assert!(svg.contains("Speed") && svg.contains("all") && svg.contains("paper: 2000"), "{svg}");
    assert!(run(&["page", "--check", name]).status.success());
    fs::remove_file(folder.0.join("speed.png")).unwrap();
    assert!(errors(&run(&["page", "--check", name])).contains("speed.png"));
    let wrong = picture.replace("4096]", "4097], place = \"there\"");
    fs::write(folder.0.join("page.toml"), format!("{SOURCE}{wrong}")).unwrap();
    let said = errors(&run(&["page", name]));
    assert!(said.contains("speed") && said.contains("all: no row"), "{said}");
}

/// Nobody has edited a page, or rows without their page.
#[test]
fn the_pages_of_this_repository_are_what_their_rows_give() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = bench(&["page", "--check"]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}
