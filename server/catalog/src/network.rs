//! HTTP clients of stores, which follow redirects only within the address that the operator configured: the server of a
//! dataset must not choose which other hosts this machine asks, such as a cloud's metadata service.

use std::{
    error::Error as StdError,
    hash::{BuildHasher, RandomState},
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use http_body_util::BodyExt;
use object_store::{
    ClientConfigKey, ClientOptions, Error, Result,
    client::{HttpClient, HttpConnector, HttpError, HttpResponseBody},
};
use reqwest::{
    Certificate, Client, ClientBuilder, NoProxy, Proxy,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::{Attempt, Policy},
};

/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;

/// A part of the errors of redirects that are refused.
pub(super) const NOT_FOLLOWED: &str = "redirects to such addresses are not followed";

/// The name of this program in requests.
const USER_AGENT: &str = concat!("forebay/", env!("CARGO_PKG_VERSION"));

/// Connects to stores.
#[derive(Debug)]
pub(super) struct SameOriginConnector;

/// Sets a time of a client.
type SetTime = fn(ClientBuilder, Duration) -> ClientBuilder;

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
#[error("it redirects to {origin}, another address, and {reason}: name the address of the file itself", reason = NOT_FOLLOWED)]
struct RedirectRefused {
    origin: String,
}

impl HttpConnector for SameOriginConnector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(client(options, Policy::custom(same_origin), |builder| builder)?))
    }
}

/// A client of these options, as `object_store` makes it, besides the redirects and what `adapt` changes.
pub(super) fn client(
    options: &ClientOptions,
    redirects: Policy,
    adapt: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> Result<Client> {
    use ClientConfigKey as Key;
    let value = |key: Key| options.get_config_value(&key);
    let is_set = |key: Key| {
        value(key).is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on" | "y"))
    };
    let mut builder = ClientBuilder::new()
        .redirect(redirects)
        .user_agent(value(Key::UserAgent).unwrap_or_else(|| USER_AGENT.to_owned()))
        .https_only(!is_set(Key::AllowHttp))
        .danger_accept_invalid_certs(is_set(Key::AllowInvalidCertificates))
        .http2_keep_alive_while_idle(is_set(Key::Http2KeepAliveWhileIdle));
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    if let Some(url) = value(Key::ProxyUrl) {
        let mut proxy = Proxy::all(url).map_err(invalid)?;
        if let Some(pem) = value(Key::ProxyCaCertificate) {
            builder = builder.add_root_certificate(Certificate::from_pem(pem.as_bytes()).map_err(invalid)?);
        }
        if let Some(excluded) = value(Key::ProxyExcludes) {
            proxy = proxy.no_proxy(NoProxy::from_string(&excluded));
        }
        builder = builder.proxy(proxy);
    }
    let times: [(Key, SetTime); 5] = [
        (Key::Timeout, ClientBuilder::timeout),
        (Key::ConnectTimeout, ClientBuilder::connect_timeout),
        (Key::PoolIdleTimeout, ClientBuilder::pool_idle_timeout),
        (Key::Http2KeepAliveInterval, ClientBuilder::http2_keep_alive_interval),
        (Key::Http2KeepAliveTimeout, ClientBuilder::http2_keep_alive_timeout),
    ];
    for (key, set) in times {
        if let Some(text) = value(key) {
            builder = set(builder, humantime::parse_duration(&text).map_err(invalid)?);
        }
    }
    if let Some(count) = value(Key::PoolMaxIdlePerHost) {
        builder = builder.pool_max_idle_per_host(count.parse().map_err(invalid)?);
    }
    if let Some(bytes) = value(Key::Http2MaxFrameSize) {
        builder = builder.http2_max_frame_size(Some(bytes.parse().map_err(invalid)?));
    }
    if is_set(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is_set(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    if is_set(Key::RandomizeAddresses) {
        builder = builder.dns_resolver(Arc::new(ShuffledAddresses));
    }
    // Compression hides the size of a file.
    adapt(builder.no_gzip().no_brotli().no_zstd().no_deflate()).build().map_err(invalid)
}

/// The bytes of a whole body; `None` if they are more than `bytes_max`.
pub(super) async fn whole_body(
    mut body: HttpResponseBody,
    bytes_max: usize,
) -> std::result::Result<Option<Vec<u8>>, HttpError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            if bytes.len() + data.len() > bytes_max {
                return Ok(None);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(Some(bytes))
}

/// Follows a redirect to the same scheme, host and port.
fn same_origin(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let origin = attempt.url().origin();
    if attempt.previous().first().is_none_or(|first| first.origin() != origin) {
        let origin = origin.ascii_serialization();
        return attempt.error(RedirectRefused { origin });
    }
    if attempt.previous().len() > REDIRECTS_MAX { attempt.error("too many redirects") } else { attempt.follow() }
}

fn invalid(source: impl StdError + Send + Sync + 'static) -> Error {
    Error::Generic { store: "HTTP client", source: Box::new(source) }
}

/// Looks up the addresses of a host, and begins with another one each time: large stores have many.
#[derive(Debug)]
struct ShuffledAddresses;

impl Resolve for ShuffledAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let look_up = move || (name.as_str(), 0).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
            let mut found = tokio::task::spawn_blocking(look_up).await??;
            let order = RandomState::new();
            found.sort_by_cached_key(|address| order.hash_one(address));
            Ok::<_, Box<dyn StdError + Send + Sync>>(Box::new(found.into_iter()) as Addrs)
        })
    }
}
