use std::io::Write;

use clap::{Parser, Subcommand, ValueEnum};
use tempfile::NamedTempFile;

use super::*;

/// Tests cannot set environment variables without unsafe code, so they use two that cargo sets: one with a value, and
/// one that is empty because this workspace has no home page.
#[derive(Debug, Parser, PartialEq)]
#[command(version)]
struct Options {
    /// Datasets | to serve
    #[arg(long, value_name = "NAME=URL", required = true)]
    dataset: Vec<String>,
    #[arg(long, default_value_t = 4)]
    worker_threads: u16,
    #[arg(long, env = "CARGO_PKG_NAME", default_value = "built in")]
    from_environment: String,
    #[arg(long, env = "CARGO_PKG_HOMEPAGE", default_value = "built in")]
    from_empty_environment: String,
    #[arg(long)]
    json: bool,
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(3 << 29), value_parser = sizes(1..=1 << 40))]
    cache_bytes: ByteSize,
}

#[derive(Clone, Debug, PartialEq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Parser, PartialEq)]
struct Verbs {
    #[arg(long, global = true, env = "FOREBAY_TEST_SERVER", default_value = "here")]
    server: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand, PartialEq)]
enum Verb {
    Head {
        dataset: String,
        #[arg(long, default_value_t = 10)]
        rows: u64,
    },
    Ls,
}

fn parse_with<T: Parser>(toml: &str, arguments: &[&str]) -> Result<T, SettingsError> {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(toml.as_bytes()).unwrap();
    let config = ["program", "--config", file.path().to_str().unwrap()];
    try_parse_from(config.iter().chain(arguments).copied())
}

fn options(toml: &str, arguments: &[&str]) -> Options {
    parse_with(toml, arguments).unwrap_or_else(|error| panic!("{error}"))
}

fn error(toml: &str) -> String {
    parse_with::<Options>(toml, &["--dataset", "a=b"]).unwrap_err().to_string()
}

#[test]
fn flag_precedes_environment_precedes_file_precedes_default() {
    let file = "dataset = ['a=b']\nfrom_environment = 'file'\nworker_threads = 7";
    let seen = options(file, &["--from-environment", "flag"]);
    assert_eq!(seen.from_environment, "flag");
    assert_eq!(options(file, &[]).from_environment, env!("CARGO_PKG_NAME"));
    assert_eq!(options(file, &["--worker-threads=9"]).worker_threads, 9);
    assert_eq!(options(file, &[]).worker_threads, 7);
    assert_eq!(options("dataset = 'a=b'", &[]).worker_threads, 4);
}

#[test]
fn an_empty_environment_variable_is_treated_as_unset() {
    assert_eq!(env::var("CARGO_PKG_HOMEPAGE").as_deref(), Ok(""), "this test requires an empty variable");
    assert_eq!(options("dataset = 'a=b'", &[]).from_empty_environment, "built in");
    assert_eq!(options("dataset = 'a=b'\nfrom_empty_environment = 'file'", &[]).from_empty_environment, "file");
}

#[test]
fn repeated_options_are_arrays_tables_or_one_value() {
    let two = vec!["flights=data/flights".to_owned(), "weather=s3://b/w?x=1".to_owned()];
    let table = "[dataset]\nflights = 'data/flights'\nweather = 's3://b/w?x=1'";
    assert_eq!(options(table, &[]).dataset, two);
    assert_eq!(options("dataset = ['flights=data/flights', 'weather=s3://b/w?x=1']", &[]).dataset, two);
    assert_eq!(options("dataset = 'flights=data/flights'", &[]).dataset, two[..1]);
    assert_eq!(options(table, &["--dataset", "a=b"]).dataset, ["a=b"]);
    assert!(matches!(parse_with::<Options>("dataset = []", &[]), Err(SettingsError::Usage(_))));
    assert!(matches!(parse_with::<Options>("", &[]), Err(SettingsError::Usage(_))));
}

#[test]
fn switches_and_choices_and_dashed_keys_are_read() {
    let seen = options("dataset = 'a=b'\njson = true\nlog-format = 'json'\nworker-threads = 2", &[]);
    assert_eq!((seen.json, seen.log_format, seen.worker_threads), (true, LogFormat::Json, 2));
    assert!(!options("dataset = 'a=b'\njson = false", &[]).json);
    assert!(options("dataset = 'a=b'\njson = false", &["--json"]).json);
}

#[test]
fn sizes_are_integers_or_strings_with_a_unit() {
    for (toml, bytes) in [("cache_bytes = 4096", 4096), ("cache_bytes = '8 MiB'", 8 << 20), ("", 3 << 29)] {
        assert_eq!(options(&format!("dataset = 'a=b'\n{toml}"), &[]).cache_bytes, ByteSize(bytes));
    }
    assert_eq!(options("dataset = 'a=b'", &["--cache-bytes", "1.5GB"]).cache_bytes, ByteSize(1_500_000_000));
    let usage = parse_with::<Options>("dataset = 'a=b'", &["--cache-bytes", "8G"]).unwrap_err().to_string();
    assert!(usage.contains("invalid value '8G' for '--cache-bytes <SIZE>'") && usage.contains("GiB"), "{usage}");
    let table = markdown_table(&Options::command());
    assert!(table.contains("| `--cache-bytes SIZE` | – | `cache_bytes` | `1536MiB` |"), "{table}");
}

#[test]
fn errors_of_invalid_values_name_file_key_and_allowed_values() {
    let cases = [
        ("worker_threads = 'many'", "key `worker_threads`: \"many\" is a string; allowed: an integer"),
        ("worker_threads = 70000", "key `worker_threads`: \"70000\" is invalid: 70000 is not in 0..=65535"),
        ("worker_threads = [1]", "[…] is an array; allowed: an integer"),
        ("json = 'yes'", "key `json`: \"yes\" is a string; allowed: true or false"),
        ("log_format = 'xml'", "key `log_format`: \"xml\" is invalid; allowed: one of \"text\", \"json\""),
        ("cache_bytes = '8GX'", "key `cache_bytes`: \"8GX\" is invalid: unknown unit \"GX\""),
        ("cache_bytes = '2TiB'", "must be from 1 to 1TiB; allowed: an integer of bytes, or a string such as"),
        ("cache_bytes = 1.5", "1.5 is a float; allowed: an integer of bytes"),
        ("dataset = 3", "an array of them, or a table with NAME = \"URL\""),
        ("[dataset]\na = 3", "3 is an integer"),
        ("from_environment = 1979-05-27", "is a date or time; allowed: a string"),
        ("worker-threads = 1\nworker_threads = 2", "key `worker-threads` is set twice"),
        ("worker_threads =", "is not TOML"),
    ];
    for (toml, expected) in cases {
        let message = error(toml);
        assert!(message.contains(expected), "{toml}: {message}");
        assert!(message.contains('/'), "names the file: {message}");
    }
}

#[test]
fn errors_of_unknown_keys_list_similar_and_allowed_keys() {
    let message = error("worker_thread = 1");
    assert!(message.contains("unknown key `worker_thread`; did you mean `worker_threads`?"), "{message}");
    assert!(message.contains("`dataset`") && message.contains("`log_format`"), "{message}");
    for key in ["config = 'x'", "help = true", "zzz = 1"] {
        assert!(error(key).contains("unknown key"), "{key}");
    }
    assert!(error("zzz = 1").contains("; allowed: `cache_bytes`, `dataset`"));
}

#[test]
fn options_of_subcommands_are_in_a_table() {
    let file = "server = 'there'\n[head]\nrows = 5";
    let head = |server: &str, rows| Verbs { server: server.into(), verb: Verb::Head { dataset: "d".into(), rows } };
    assert_eq!(parse_with::<Verbs>(file, &["head", "d"]).unwrap(), head("there", 5));
    assert_eq!(parse_with::<Verbs>(file, &["head", "d", "--rows=6"]).unwrap(), head("there", 6));
    assert_eq!(parse_with::<Verbs>(file, &["--server=x", "head", "d"]).unwrap(), head("x", 5));
    assert_eq!(parse_with::<Verbs>(file, &["head", "d", "--server=x"]).unwrap(), head("x", 5));
    assert_eq!(parse_with::<Verbs>(file, &["ls"]).unwrap().verb, Verb::Ls);
    let message = parse_with::<Verbs>("[head]\nrow = 5", &["ls"]).unwrap_err().to_string();
    assert!(message.contains("unknown key `head.row`; did you mean `rows`?"), "{message}");
    let message = parse_with::<Verbs>("head = 5", &["ls"]).unwrap_err().to_string();
    assert!(message.contains("allowed: a table with the options of `head`"), "{message}");
}

#[test]
fn config_is_accepted_in_every_form_and_position() {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(b"server = 'there'").unwrap();
    let path = file.path().to_str().unwrap();
    for arguments in
        [vec!["forebay", "--config", path, "ls"], vec!["forebay", "ls", "--config", path], vec!["forebay", "ls"]]
    {
        let expected = if arguments.len() == 2 { "here" } else { "there" };
        assert_eq!(try_parse_from::<Verbs>(arguments).unwrap().server, expected);
    }
    let joined = format!("--config={path}");
    assert_eq!(try_parse_from::<Verbs>(["forebay", &joined, "ls"]).unwrap().server, "there");
    let error = try_parse_from::<Verbs>(["forebay", "--config=/no/such/file", "ls"]).unwrap_err();
    assert!(matches!(error, SettingsError::Read { .. }) && error.to_string().contains("/no/such/file"));
}

#[test]
fn help_and_version_ignore_a_broken_file() {
    for flag in ["--help", "--version"] {
        let Err(SettingsError::Usage(error)) = parse_with::<Options>("nonsense", &[flag]) else { panic!("{flag}") };
        assert_eq!(error.exit_code(), 0);
    }
}

#[test]
fn the_table_lists_every_option_once() {
    let table = markdown_table(&Options::command());
    let row = "| `--dataset NAME=URL` | – | `dataset` | required | Datasets \\| to serve |";
    assert!(table.contains(row), "{table}");
    assert!(table.contains("| `--worker-threads WORKER_THREADS` | – | `worker_threads` | `4` |"), "{table}");
    assert!(table.contains("| `--config FILE` | `FOREBAY_CONFIG` | – | – |"), "{table}");
    let table = markdown_table(&command::<Verbs>());
    assert!(table.contains("| `head --rows ROWS` | – | `head.rows` | `10` |"), "{table}");
    assert_eq!(table.matches("--server").count(), 1, "{table}");
}

#[test]
fn values_differ_where_the_file_has_changed() {
    let file = NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let read = |toml: &str| {
        std::fs::write(path, toml).unwrap();
        try_parse_values_from::<Options>(["program", "--config", path, "--from-environment=flag"]).unwrap()
    };
    let old = read("dataset = ['a=b', 'c=d']\nworker_threads = 4");
    assert_eq!(old.options.worker_threads, 4);
    assert_eq!(old.values["dataset"], ["a=b", "c=d"]);
    assert_eq!(old.values["worker-threads"], ["4"]);
    let new = read("dataset = ['a=b']\nfrom_environment = 'overridden'\njson = true");
    let changed: Vec<_> = old.values.iter().filter(|(name, value)| new.values.get(*name) != Some(value)).collect();
    // A default that the file repeats, and a value that a flag overrides, are not changes.
    assert_eq!(changed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["dataset", "json"]);
}

#[test]
fn errors_have_a_line_for_logs() {
    let line = |toml: &str| parse_with::<Options>(toml, &[]).unwrap_err().line();
    let missing = line("");
    assert_eq!(missing, "the following required arguments were not provided: --dataset <NAME=URL>");
    let syntax = line("dataset = ");
    assert!(syntax.contains("is not TOML") && syntax.contains("line 1") && !syntax.contains(['\n', '|']), "{syntax}");
    assert!(line("zzz = 1").contains("unknown key `zzz`"));
}

#[test]
fn the_manual_has_every_option_and_a_page_for_each_subcommand() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["program".into(), "write-manual".into(), folder.path().into()];
    assert_eq!(manual::folder(&arguments), Some(folder.path()));
    manual::write(command::<Verbs>().name("program"), folder.path()).unwrap();
    let text = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap();
    let page = text("share/man/man1/program.1");
    assert!(
        page.starts_with(".ie") && page.contains("FOREBAY_TEST_SERVER") && page.contains("program\\-head(1)"),
        "{page}"
    );
    assert!(text("share/man/man1/program-head.1").contains("rows"));
    assert!(text("share/man/man1/program-ls.1").contains("server"));
    for path in [
        "share/bash-completion/completions/program.bash",
        "share/fish/vendor_completions.d/program.fish",
        "share/zsh/site-functions/_program",
    ] {
        let completions = text(path);
        assert!(["head", "rows", "server", "config"].iter().all(|word| completions.contains(word)), "{completions}");
    }
}

#[test]
fn only_a_first_argument_asks_for_the_manual() {
    for arguments in [
        &["program", "write-manual"] as &[&str],
        &["program", "write-manual", "a", "b"],
        &["program", "head", "write-manual"],
    ] {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        assert_eq!(manual::folder(&arguments), None);
    }
}
