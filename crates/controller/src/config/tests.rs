use super::*;

fn listen() -> Address {
    "127.0.0.1:7118".parse().unwrap()
}

#[test]
fn the_shipped_example_is_read_whole() {
    let settings = Settings::parse(EXAMPLE, &listen()).unwrap();
    assert_eq!(settings.listen, "0.0.0.0:7118".parse().unwrap());
    assert_eq!((settings.links.len(), settings.paths.len(), settings.classes.len()), (2, 2, 2));
    settings.admission().check().unwrap();
    let path = |from: &str, to| settings.path(from.parse().unwrap(), to).unwrap();
    let wan = path("10.1.2.3", "collector.lab:7117");
    assert_eq!((wan, settings.capacity_bps(wan)), (PathId(0), 10_000_000_000));
    assert_eq!(path("10.2.2.3", "collector.lab:7117"), PathId(1));
    assert_eq!(path("::ffff:10.1.2.3", "collector.lab:7117"), PathId(0), "IPv4 in IPv6");
    assert_eq!(path("fd00::1", "other:7117"), PathId(1));
    let half_queue_ns = (512 << 10) * 8 / 20;
    assert_eq!(
        settings.max_burst_ns(wan),
        Some(half_queue_ns),
        "of the link that states its queue"
    );
    assert_eq!(settings.chunk_bytes(wan), 512 << 10, "half of that queue");
    assert_eq!(settings.safe_part_bps(wan), 10_000_000_000 / 10 * 9 / (16 + 4));
    let rules = |certificate, device| settings.rules(Some(certificate), device).unwrap();
    assert_eq!(rules("cam-host.lab", "cam7").classes, [0, 1]);
    assert_eq!(rules("cam-host.lab", "lidar").classes, [1], "the second rule");
    assert_eq!(rules("cam-host.lab", "cam7").weight, 2);
    assert_eq!(rules("cam-host.lab", "cam7").small_bps, 1_000_000);
    let leader = settings.leader.unwrap();
    assert_eq!((leader.endpoints.len(), leader.lease), (1, std::time::Duration::from_secs(2)));
}

#[test]
fn one_link_needs_no_path_and_no_class() {
    let text = "[[link]]\nname = \"a\"\ncapacity = \"1Gbit\"\n";
    let settings = Settings::parse(text, &listen()).unwrap();
    assert_eq!(
        (settings.max_burst_ns(PathId(0)), settings.chunk_bytes(PathId(0))),
        (None, 1 << 20)
    );
    let bottleneck = Settings::bottleneck(listen(), 1_000_000_000, None);
    assert_eq!((settings.paths, settings.classes), (bottleneck.paths, bottleneck.classes));
    assert_eq!(settings.listen, listen());
}

#[test]
fn errors_name_the_line_what_was_seen_and_what_to_do() {
    let link = "[[link]]\nname = \"a\"\ncapacity = \"1Gbit\"\n";
    let wrong: &[(&str, usize, &[&str])] = &[
        ("", 1, &["no [[link]]", "--bottleneck"]),
        ("[[link]]\nname = \"a\"\ncapacity = \"1GB\"\n", 3, &["\"1GB\"", "20Gbit"]),
        ("[[link]]\nname = \"a\"\n", 1, &["capacity"]),
        (
            "[[link]]\nname = \"a\"\ncapacity = \"1Gbit\"\nqueue = \"9KiB\"\n",
            4,
            &["\"9KiB\"", "at least 16KiB"],
        ),
        ("lease = \"200ms\"\nleese = \"1s\"\n", 2, &["leese"]),
        ("lease = \"1ms\"\n@", 1, &["\"1ms\"", "20ms to 10s"]),
        ("\npolicy = \"best\"\n@", 2, &["\"best\"", "deadline, priority or fifo"]),
        ("policy = \"fifo\"\n@", 1, &["\"fifo\"", "slot"]),
        ("chunk = \"1KiB\"\n@", 1, &["\"1KiB\"", "16KiB to 64MiB"]),
        ("safe_sources = 0\n@", 1, &["0", "at least 1"]),
        ("listen = \"nowhere\"\n@", 1, &["nowhere", "HOST:PORT"]),
        ("@[[link]]\nname = \"a\"\ncapacity = \"1Gbit\"\n", 5, &["\"a\"", "of its own"]),
        ("@[[path]]\nlinks = [\"b\"]\n", 5, &["\"b\"", "there are: a"]),
        ("@[[path]]\nlinks = [\"a\", \"a\"]\n", 5, &["\"a\"", "once"]),
        ("@[[path]]\nlinks = []\n", 5, &["at least one link"]),
        (
            "@[[path]]\nfrom = \"10.0.0.0/33\"\nlinks = [\"a\"]\n",
            5,
            &["10.0.0.0/33", "10.1.0.0/16"],
        ),
        ("@[leader]\netcd = []\n", 5, &["at least one server"]),
        ("@[leader]\netcd = [\"etcd:2379\"]\n", 5, &["\"etcd:2379\"", "http://HOST:PORT"]),
        ("@[leader]\netcd = [\"https://etcd:2379\"]\n", 5, &["https", "http://HOST:PORT"]),
        ("@[leader]\netcd = [\"http://a:1\"]\nlease = \"1500ms\"\n", 6, &["whole seconds"]),
        ("@[leader]\netcd = [\"http://a:1\"]\nunreachable = \"wait\"\n", 6, &["hold or step-down"]),
        ("@[[link]]\nname = \"b\"\ncapacity = \"1Gbit\"\n", 1, &["2 links", "[[path]]"]),
        (
            "@[[class]]\nname = \"x\"\ndeadline = \"1s\"\nlate = \"wait\"\n",
            7,
            &["\"wait\"", "keep, demote or drop"],
        ),
        (
            "policy = \"fifo\"\nslot = \"1Gbit\"\n@[[class]]\nname = \"x\"\ndeadline = \"1s\"\nlate = \"drop\"\n",
            9,
            &["\"drop\"", "policy = \"deadline\""],
        ),
        ("@[[class]]\nname = \"x\"\ndeadline = \"1s\"\nshare_max = 101\n", 7, &["101", "100"]),
        (
            "@[[allow]]\ncertificate = \"x\"\nclasses = [\"vip\"]\n",
            6,
            &["\"vip\"", "urgent, tolerant"],
        ),
        ("@[[allow]]\ncertificate = \"x\"\nweight = 0\n", 6, &["0", "at least 1"]),
        ("[[link]\n", 1, &["docs/guide/control.md"]),
    ];
    for (text, line, parts) in wrong {
        let text = text.replace('@', link);
        let error = Settings::parse(&text, &listen()).unwrap_err();
        assert_eq!(error.line, *line, "{error} in {text}");
        let shown = error.to_string();
        assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
    }
}

#[test]
fn a_star_stands_for_any_characters() {
    for (pattern, text, fits) in [
        ("*", "", true),
        ("cam*", "cam7", true),
        ("cam*", "lidar", false),
        ("*.lab", "a.lab", true),
        ("a*b*c", "a1b2c", true),
        ("a*b*c", "ac", false),
        ("ab*ba", "aba", false),
        ("cam", "cam0", false),
    ] {
        assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
    }
}
