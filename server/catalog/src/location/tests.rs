use super::*;

fn parsed(url: &str) -> Result<FileSpec, LocationError> {
    Location::parse("t", url, &mut Stores::default()).map(|location| location.spec)
}

#[test]
fn parses_directories_files_and_globs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a[1].parquet");
    std::fs::write(&file, b"").unwrap();
    let selection = |url: String| match parsed(&url).unwrap() {
        FileSpec::Local(path) => format!("{:?}", LocalFileSpec::look(&path).unwrap().selection),
        other => panic!("{other:?}"),
    };
    assert_eq!(selection(dir.path().display().to_string()), "Directory");
    assert_eq!(selection(format!("file://{}", dir.path().display())), "Directory");
    assert_eq!(selection(file.display().to_string()), "File(\"a[1].parquet\")");
    assert!(selection(format!("{}/**/x-*.parquet", dir.path().display())).starts_with("Glob"));
}

#[test]
fn checks_that_local_paths_exist() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.parquet");
    std::fs::write(&file, b"").unwrap();
    let check = |path: &str| {
        let location = Location::parse("t", &format!("{}{path}", dir.path().display()), &mut Stores::default());
        location.unwrap().check_exists("t").map_err(|error| error.to_string())
    };
    for path in ["", "/", "/a.parquet", "/*.parquet", "/**/b?.parquet"] {
        assert_eq!(check(path), Ok(()), "{path}");
    }
    for path in ["/b", "/b.parquet", "/missing/*.parquet", "/a.parquet/*.parquet"] {
        let error = check(path).unwrap_err();
        assert!(error.contains("dataset \"t\"") && error.contains(&dir.path().display().to_string()), "{error}");
    }
    let remote = Location::parse("t", "s3://bucket/missing", &mut Stores::default()).unwrap();
    remote.check_exists("t").unwrap();
}

#[test]
fn parses_prefixes_objects_and_globs_of_stores() {
    let shown = |url: &str| match parsed(url).unwrap() {
        FileSpec::Local(path) => format!("local {}", path.display()),
        FileSpec::Prefix(path) => format!("prefix {path}"),
        FileSpec::Name(path) => format!("name {path}"),
        FileSpec::Glob { root, pattern, literal } => format!("glob {root} {pattern} {literal}"),
        FileSpec::Object(path) => format!("object {path}"),
        FileSpec::List(list) => format!("list {}", list.display()),
        FileSpec::Lake(_) => "a lake table".to_owned(),
    };
    for (url, want) in [
        ("s3://bucket", "prefix "),
        ("s3://bucket/", "prefix "),
        ("s3a://bucket/a/b/", "prefix a/b"),
        ("s3://bucket/a/b", "name a/b"),
        ("gs://bucket/a/b.parquet", "name a/b.parquet"),
        ("s3://bucket/x y%20z ü#.parquet", "name x y%20z ü#.parquet"),
        ("s3://bucket/a/day=*/**/x?.parquet", "glob a day=*/**/x?.parquet a/day=*/**/x?.parquet"),
        ("s3://bucket/*.parquet", "glob  *.parquet *.parquet"),
        ("http://127.0.0.1:1/a%20b/c.parquet", "object a b/c.parquet"),
        ("https://example.org/c", "object c"),
    ] {
        assert_eq!(shown(url), want, "{url}");
    }
}

#[test]
fn errors_of_urls_say_what_is_allowed() {
    for (url, word) in [
        ("", "empty"),
        ("file://relative/x", "absolute"),
        ("/tmp/[/x", "glob"),
        ("ftp://host/x", "s3://bucket"),
        ("s3:///x", "bucket"),
        ("s3://bucket/[/x", "glob"),
        ("s3://bucket/a//b", "a//b"),
        ("http://host/folder/", "one file"),
        ("http://host/*.parquet", "one file"),
        ("https://user:secret@host/x.parquet", "no credentials"),
        ("https://host/x.parquet?sig=secret", "no credentials"),
    ] {
        let error = parsed(url).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn datasets_of_a_bucket_share_its_client() {
    let mut stores = Stores::default();
    let mut client = |url: &str| {
        let location = Location::parse("t", url, &mut stores).unwrap();
        Arc::as_ptr(location.store.client()).cast::<()>() as usize
    };
    let first = client("s3://bucket/a");
    assert_eq!(first, client("s3://bucket/b/*.parquet"));
    assert_ne!(first, client("s3://other/a"));
}
