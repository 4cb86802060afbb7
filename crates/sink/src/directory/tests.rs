//! Frames as files of a directory.
use super::*;
use crate::Frame;
use crate::frame::FrameBytes;

fn frame(number: u64, bytes: &[u8]) -> Frame {
    let bytes = FrameBytes::Assembled { bytes: bytes.to_vec(), last: None, staged: None };
    Frame::new("cam0".into(), number, 0, false, bytes)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// `<root>/<device>/` lists the frames in the order of their numbers (S1.25).
#[test]
fn the_files_in_order_are_the_stream() {
    let root = tempfile::tempdir().unwrap();
    let mut sink = DirectorySink::new(root.path()).open("cam0").unwrap();
    for n in 0..11 {
        sink.accept(frame(n, format!("<{n}>").as_bytes())).unwrap();
    }
    let dir = root.path().join("cam0");
    let stream: String =
        names(&dir).iter().map(|name| std::fs::read_to_string(dir.join(name)).unwrap()).collect();
    assert_eq!(stream, "<0><1><2><3><4><5><6><7><8><9><10>");
}

#[test]
fn a_new_collector_goes_on_after_the_newest_frame_and_clears_leftovers() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("cam0");
    let mut sink = DirectorySink::new(root.path()).open("cam0").unwrap();
    assert_eq!(sink.next_packet(), None);
    sink.accept(frame(7, b"seven")).unwrap();
    std::fs::write(dir.join(".partial-8"), b"torn").unwrap();
    let mut again = DirectorySink::new(root.path()).open("cam0").unwrap();
    assert_eq!(again.next_packet(), Some(8));
    assert_eq!(names(&dir), ["000000000007"]);
    again.accept(frame(7, b"a second seven")).unwrap();
    assert_eq!(std::fs::read(dir.join("000000000007")).unwrap(), b"seven");
}

#[test]
fn only_the_newest_frames_stay() {
    let root = tempfile::tempdir().unwrap();
    let mut sink =
        DirectorySink::new(root.path()).limit(DiskLimit::KeepNewest(3)).open("cam0").unwrap();
    (0..10).for_each(|n| sink.accept(frame(n, b"x")).unwrap());
    let kept = names(&root.path().join("cam0"));
    assert_eq!(kept, ["000000000007", "000000000008", "000000000009"]);
    DirectorySink::new(root.path()).limit(DiskLimit::KeepNewest(1)).open("cam0").unwrap();
    assert_eq!(names(&root.path().join("cam0")), ["000000000009"]);
}

/// A file is there whole or not at all (S1.25).
#[test]
fn without_unnamed_files_a_rename_does_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (stored, formats) = (VecDeque::new(), Formats::default());
    let directory = DirectorySink::new(root.path());
    let mut sink = DeviceDirectory::new(directory, root.path().to_owned(), stored, formats);
    sink.unnamed = false;
    sink.accept(frame(3, b"three")).unwrap();
    assert_eq!(names(root.path()), ["000000000003"]);
}

#[test]
fn a_directory_with_something_else_in_it_is_refused() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("cam0")).unwrap();
    std::fs::write(root.path().join("cam0/notes.txt"), b"x").unwrap();
    let Err(error) = DirectorySink::new(root.path()).open("cam0") else {
        panic!("accepted a foreign file");
    };
    assert!(error.to_string().contains("notes.txt"), "{error}");
}

#[test]
fn a_frame_that_cannot_be_written_comes_back() {
    let root = tempfile::tempdir().unwrap();
    let mut sink = DirectorySink::new(root.path()).open("cam0").unwrap();
    assert_eq!(names(root.path()), [""; 0], "nothing is made before the first frame");
    std::fs::write(root.path().join("cam0"), b"no directory").unwrap();
    let rejected = sink.accept(frame(0, b"kept")).unwrap_err();
    assert_eq!(rejected.frame.to_vec(), b"kept");
    std::fs::remove_file(root.path().join("cam0")).unwrap();
    sink.accept(rejected.frame).unwrap();
}

#[test]
fn a_directory_that_somebody_removed_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let directory = DirectorySink::new(&out);
    directory.begin().unwrap();
    let mut sink = directory.open("cam0").unwrap();
    sink.describe("2x2:gray8");
    sink.accept(frame(0, b"gone")).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    sink.accept(frame(1, b"one")).unwrap();
    assert_eq!(names(&out.join("cam0")), [".format-1.json", "000000000001"]);
    let error = DirectorySink::new(&out).begin().unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    drop((directory, sink));
    DirectorySink::new(&out).begin().unwrap();
}

#[test]
fn every_format_of_a_device_is_described_from_its_first_frame_on() {
    let root = tempfile::tempdir().unwrap();
    let mut sink = DirectorySink::new(root.path()).open("cam0").unwrap();
    sink.describe("2x2:gray8");
    sink.accept(frame(0, b"0000")).unwrap();
    sink.describe("2x2:gray8");
    sink.accept(frame(1, b"0000")).unwrap();
    sink.describe("1x1:gray8");
    sink.accept(frame(2, b"0")).unwrap();
    let mut again = DirectorySink::new(root.path()).open("cam0").unwrap();
    again.describe("1x1:gray8");
    again.accept(frame(3, b"0")).unwrap();
    again.describe("");
    again.accept(frame(4, b"0")).unwrap();
    let dir = root.path().join("cam0");
    let formats: Vec<_> = names(&dir)
        .into_iter()
        .filter(|name| name.starts_with('.'))
        .map(|name| std::fs::read_to_string(dir.join(name)).unwrap())
        .collect();
    let expected = [
        "{\"first_packet\":0,\"format\":\"2x2:gray8\"}\n",
        "{\"first_packet\":2,\"format\":\"1x1:gray8\"}\n",
        "{\"first_packet\":4,\"format\":null}\n",
    ];
    assert_eq!(formats, expected);
}
