//! The examples work, and the guide shows them.
use crate::agents::agent;

#[path = "../../examples/messages.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod messages;
#[path = "../../examples/regions.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod regions;

#[test]
fn one_example_answers_the_other() {
    let (agent, name) = agent("messages");
    let store = format!("store@{name}");
    let serves = std::thread::spawn(move || messages::serve(&store).unwrap_err());
    let vision = format!("vision@{name}");
    catchment_conformance::eventually("the service", || {
        !catchment_agent::Inquiry::new(&*name).ask().unwrap().services.is_empty()
    });
    for _ in 0..2 {
        assert_eq!(messages::ask(&vision, "").unwrap(), "IS ANYBODY THERE?");
    }
    drop(agent);
    assert!(serves.join().unwrap().to_string().contains("the agent has ended"));
}

#[test]
fn one_example_reads_and_writes_memory_of_the_other() {
    let (_agent, name) = agent("sensor");
    let (service, value, most) = regions::offer(&format!("sensor@{name}")).unwrap();
    value.write_at(0, &42_u64.to_le_bytes()).unwrap();
    let vision = format!("vision@{name}");
    let looks = std::thread::spawn(move || regions::look(&vision, ""));
    let _caller = service.accept().unwrap();
    assert_eq!(looks.join().unwrap(), Ok(42));
    let mut limit = [0; 8];
    most.read_at(0, &mut limit).unwrap();
    assert_eq!(u64::from_le_bytes(limit), 500);
}

/// White space, and where lines end, is for rustfmt to decide.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn the_guide_shows_the_examples() {
    let examples =
        [include_str!("../../examples/messages.rs"), include_str!("../../examples/regions.rs")];
    let examples = examples.map(squeezed);
    let guide = include_str!("../../../../docs/guide/applications.md");
    let mut shown = 0;
    for snippet in guide.split("```rust\n").skip(1) {
        let code = snippet.split("```").next().unwrap();
        for part in code.split("\n\n") {
            let part = squeezed(part);
            let found = examples.iter().any(|example| example.contains(&part));
            assert!(found, "the guide shows what no example has: {part}");
        }
        shown += 1;
    }
    assert_eq!(shown, 4);
}
