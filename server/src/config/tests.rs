//! Valid flags, and the errors of invalid ones.

use clap::Parser as _;
use forebay_runtime::state::Objects;

use super::*;

fn check(arguments: &[&str]) -> Result<Config, String> {
    let arguments = ["forebay-server"].iter().chain(arguments);
    let flags = Flags::try_parse_from(arguments).map_err(|error| error.to_string())?;
    flags.check().map_err(|error| error.to_string())
}

#[test]
fn valid_flags_are_accepted() {
    let config = check(&[
        "--dataset",
        "a=/tmp",
        "--dataset",
        "b=/tmp/*.parquet",
        "--listen",
        "unix:/tmp/s",
        "--listen",
        "localhost:0",
    ])
    .unwrap();
    assert_eq!(config.datasets.len(), 2);
    assert_eq!(config.listen, [Listen::Unix("/tmp/s".into()), Listen::Tcp("127.0.0.1:0".parse().unwrap())]);
    assert!(config.memory_limit_bytes > 0);
    assert_eq!(config.device, DeviceName::Cpu);
    assert_eq!(check(&["--dataset", "a=/tmp", "--device", "cuda:12"]).unwrap().device, DeviceName::Cuda(12));
}

#[test]
fn errors_of_invalid_flags_name_what_is_allowed() {
    for (arguments, words) in [
        (&[][..], "--dataset"),
        (&["--dataset", "a"], "NAME=URL"),
        (&["--dataset", "=x"], "the name must be"),
        (&["--dataset", "a/b=x"], "the name must be"),
        (&["--dataset", "a=x", "--dataset", "a=y"], "twice"),
        (&["--dataset", "a=ftp://b/c"], "s3://bucket"),
        (&["--dataset", "a=x", "--listen", "here"], "127.0.0.1:8815"),
        (&["--dataset", "a=x", "--int96-unit", "a=ms"], "NAME=us or NAME=ns"),
        (&["--dataset", "a=x", "--int96-unit", "b=ns"], "no --dataset is named \"b\""),
        (&["--dataset", "a=x", "--int96-unit", "a=ns", "--int96-unit", "a=us"], "twice"),
        (&["--dataset", "a=x", "--dataset-schema", "a"], "NAME=FILE"),
        (&["--dataset", "a=x", "--dataset-schema", "a=/nowhere"], "cannot read the schema"),
        (&["--dataset", "a=x", "--dataset-schema", "a=/dev/null"], "cannot read the schema"),
        (&["--dataset", "a=x", "--advertise", "replica:8815"], "grpc://replica-1:8815"),
        (&["--dataset", "a=x", "--listen", "0.0.0.0:1"], "--insecure-public"),
        (&["--dataset", "a=x", "--metrics-listen", "[::]:1"], "--insecure-public"),
        (&["--dataset", "a=x", "--state", "s3://b/*"], "without wildcards"),
        (&["--dataset", "a=x", "--state", "https://host/state"], "expected a directory, or s3://"),
        (&["--dataset", "a=x", "--state", "ftp://host/state"], "not supported"),
        (&["--dataset", "a=x", "--cache-dir", "/c"], "requires --cache-bytes"),
        (&["--dataset", "a=x", "--udf", "words=/run/words.sock"], "expected NAME=unix:PATH"),
        (&["--dataset", "a=x", "--udf", "words=unix:"], "expected NAME=unix:PATH"),
        (&["--dataset", "a=x", "--udf", "=unix:/a"], "the name must be"),
        (&["--dataset", "a=x", "--udf", "w=unix:/a", "--udf", "w=unix:/b"], "twice"),
        (&["--dataset", "a=x", "--udf-timeout-seconds", "0"], "udf-timeout-seconds"),
        (&["--dataset", "a=x", "--cache-dir-bytes", "9"], "cache-dir-bytes"),
        (&["--dataset", "a=x", "--batch-bytes-max", "0"], "batch-bytes-max"),
        (&["--dataset", "a=x", "--dataset-files-max", "0"], "dataset-files-max"),
        (&["--dataset", "a=x", "--device", "cuda"], "cuda:0"),
        (&["--dataset", "a=x", "--device", "cuda:-1"], "cuda:0"),
    ] {
        let error = check(arguments).unwrap_err();
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn state_is_in_a_directory_or_in_a_store() {
    let place = |arguments: &[&str]| check(&[&["--dataset", "a=x"], arguments].concat()).unwrap().state;
    let shown = |arguments: &[&str]| {
        let StatePlace { kind, scratch, .. } = place(arguments);
        let kind = match kind {
            StateKind::Directory(path) => path.display().to_string(),
            StateKind::Store(objects) => objects.url("plans/a"),
        };
        format!("{kind} {}", scratch.display())
    };
    assert_eq!(shown(&["--state", "/s"]), "/s /s");
    assert_eq!(shown(&["--state", "file:///s"]), "/s /s");
    assert_eq!(shown(&["--state", "/s", "--scratch-dir", "/t"]), "/s /t");
    assert_eq!(place(&["--state", "/s", "--scratch-dir", "/t"]).directories(), [Path::new("/s"), Path::new("/t")]);
    assert_eq!(shown(&["--state", "s3://b/p/", "--scratch-dir", "/t"]), "s3://b/p/plans/a /t");
}

#[test]
fn a_cache_must_fit_the_machine_beside_the_memory_limit() {
    let sizes = |cache, limit, machine| check_cache(ByteSize(cache), limit, machine).map_err(|error| error.to_string());
    assert_eq!((sizes(0, 9 << 30, 1 << 30), sizes(3 << 30, 5 << 30, 8 << 30)), (Ok(()), Ok(())));
    let expected = "--cache-bytes \"4GiB\": with the 5GiB of --memory-limit-bytes, it exceeds the 8GiB of this machine: \
                    lower one of them";
    assert_eq!(sizes(4 << 30, 5 << 30, 8 << 30), Err(expected.to_owned()));
    let checked = |bytes| check(&["--dataset", "a=x", "--cache-bytes", bytes]);
    assert_eq!((checked("0").unwrap().cache_bytes, checked("64MiB").unwrap().cache_bytes), (0, 64 << 20));
    for (bytes, words) in [("1000TiB", "--memory-limit-bytes"), ("2000TiB", "cache-bytes"), ("many", "cache-bytes")] {
        assert!(checked(bytes).unwrap_err().contains(words), "{bytes}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let problems = check(&[
        "--dataset",
        "a=ftp://b/c",
        "--dataset",
        "b/c=x",
        "--listen",
        "here",
        "--metrics-listen",
        "there",
        "--device",
        "gpu",
        "--principals",
        "/nowhere",
        "--ticket-key",
        "/nowhere",
        "--log",
        "a=b=c",
    ]);
    let problems = problems.unwrap_err();
    assert_eq!(problems.matches("--dataset").count(), 2, "{problems}");
    for flag in ["--listen", "--metrics-listen", "--device", "--principals", "--ticket-key", "--log"] {
        assert!(problems.contains(&format!("{flag} \"")), "{flag}: {problems}");
    }
}
