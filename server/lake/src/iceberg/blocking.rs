//! Runs the parsing of manifests and delete files on the threads for blocking calls.

/// Runs a function; an error if it panics, as parsers may on damaged files.
pub(super) async fn blocking<T: Send + 'static>(
    parse: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let parsed = tokio::task::spawn_blocking(parse).await;
    parsed.unwrap_or_else(|_| Err("it is damaged".to_owned()))
}
