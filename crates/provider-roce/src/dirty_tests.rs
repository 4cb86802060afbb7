use crate::dirty::{DirtySet, MEMBERS};

#[test]
fn what_was_added_comes_out_once() {
    let set: DirtySet = DirtySet::new();
    let members = [0, 1, 63, 64, 4095, 4096, MEMBERS - 1];
    for member in members.iter().chain(&members) {
        set.add(*member);
    }
    assert!(set.any());
    let mut seen = Vec::new();
    set.take(|member| seen.push(member));
    assert_eq!(seen, members);
    assert!(!set.any());
    set.take(|member| panic!("{member} again"));
}
