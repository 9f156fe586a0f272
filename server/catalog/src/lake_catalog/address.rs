//! The addresses of tables in catalogs, such as `rest://HOST/NAMESPACE.TABLE?warehouse=NAME`.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

const SCHEME_END: &str = "://";
const WAREHOUSE: &str = "warehouse";
const DELEGATION: &str = "access-delegation";
/// The only kind of it: the other one, in which a catalog signs each request, is not supported.
const VENDED: &str = "vended-credentials";

/// Parts of the name of a table of Unity Catalog: catalog, schema, table.
const UNITY_PARTS: usize = 3;

/// The format of a table that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKind {
    Delta,
    Iceberg,
}

/// Where a table is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CatalogAddress {
    /// A catalog with the REST API of Iceberg.
    Rest { endpoint: Url, warehouse: Option<String>, is_vended: bool, table: TableName },
    /// Unity Catalog.
    Unity { endpoint: Url, is_vended: bool, table: TableName },
    /// AWS Glue, of the account and the region of the environment.
    Glue { kind: TableKind, table: TableName },
}

/// The name of a table in a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName {
    /// The levels of its namespace.
    pub namespace: Vec<String>,
    pub table: String,
}

/// The schemes of catalogs. Those that end with `+http` are not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatalogScheme {
    Rest { is_http: bool },
    Unity { is_http: bool },
    Glue,
}

/// Whether what follows `delta+` or `iceberg+` is the address of a table in a catalog, not the URL of its files.
pub(crate) fn is_address(url: &str) -> bool {
    split(url).is_some()
}

fn split(url: &str) -> Option<(CatalogScheme, &str)> {
    let (scheme, rest) = url.split_once(SCHEME_END)?;
    let scheme = match scheme {
        "rest" => CatalogScheme::Rest { is_http: false },
        "rest+http" => CatalogScheme::Rest { is_http: true },
        "unity" => CatalogScheme::Unity { is_http: false },
        "unity+http" => CatalogScheme::Unity { is_http: true },
        "glue" => CatalogScheme::Glue,
        _ => return None,
    };
    Some((scheme, rest))
}

// === impl CatalogAddress ===

impl CatalogAddress {
    /// Parses what follows `delta+` or `iceberg+`; `None` if it is the URL of files.
    pub(crate) fn parse(kind: TableKind, url: &str) -> Option<Result<Self, String>> {
        let (scheme, rest) = split(url)?;
        Some(match (scheme, kind) {
            (CatalogScheme::Glue, _) => glue(kind, rest),
            (CatalogScheme::Rest { is_http }, TableKind::Iceberg) => rest_table(is_http, rest),
            (CatalogScheme::Unity { is_http }, TableKind::Delta) => unity(is_http, rest),
            (CatalogScheme::Rest { .. }, TableKind::Delta) => {
                Err("catalogs with the REST API of Iceberg have Iceberg tables only: write iceberg+rest://".to_owned())
            }
            (CatalogScheme::Unity { .. }, TableKind::Iceberg) => {
                Err("Unity Catalog has its Iceberg tables at a REST API of Iceberg: write iceberg+rest://, its address and \
                     its path, such as iceberg+rest://HOST/api/2.1/unity-catalog/iceberg/SCHEMA.TABLE?warehouse=CATALOG"
                    .to_owned())
            }
        })
    }

    /// Whether the catalog hands out the credentials for the files of the table.
    pub(crate) fn is_vended(&self) -> bool {
        match self {
            Self::Rest { is_vended, .. } | Self::Unity { is_vended, .. } => *is_vended,
            Self::Glue { .. } => false,
        }
    }
}

impl fmt::Display for CatalogAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest { endpoint, warehouse: Some(warehouse), table, .. } => {
                write!(formatter, "table \"{table}\" of warehouse \"{warehouse}\" in the catalog {endpoint}")
            }
            Self::Rest { endpoint, warehouse: None, table, .. } | Self::Unity { endpoint, table, .. } => {
                write!(formatter, "table \"{table}\" in the catalog {endpoint}")
            }
            Self::Glue { table, .. } => write!(formatter, "table \"{table}\" in the catalog AWS Glue"),
        }
    }
}

fn rest_table(is_http: bool, rest: &str) -> Result<CatalogAddress, String> {
    let expected = "iceberg+rest:// must be followed by HOST/NAMESPACE.TABLE, with the path of the catalog, if it has one, \
                    between them, and with ?warehouse=NAME if it has several";
    let (mut endpoint, mut segments) = endpoint(is_http, rest, expected)?;
    let Query { warehouse, is_vended } = query(&mut endpoint)?;
    let last = segments.pop().ok_or(expected)?;
    let table = if last.contains('.') {
        TableName::parse(&last)
    } else {
        // The namespace is the segment before.
        let namespace = segments.pop().ok_or(expected)?;
        TableName::parse(&format!("{namespace}.{last}"))
    };
    endpoint.set_path(&segments.join("/"));
    Ok(CatalogAddress::Rest { endpoint, warehouse, is_vended, table: table.ok_or(expected)? })
}

fn unity(is_http: bool, rest: &str) -> Result<CatalogAddress, String> {
    let expected = "delta+unity:// must be followed by HOST/CATALOG.SCHEMA.TABLE";
    let (mut endpoint, mut segments) = endpoint(is_http, rest, expected)?;
    let Query { warehouse: None, is_vended } = query(&mut endpoint)? else { return Err(expected.to_owned()) };
    let table = segments.pop().and_then(|last| TableName::parse(&last)).ok_or(expected)?;
    if table.namespace.len() + 1 != UNITY_PARTS {
        return Err(expected.to_owned());
    }
    endpoint.set_path(&segments.join("/"));
    Ok(CatalogAddress::Unity { endpoint, is_vended, table })
}

fn glue(kind: TableKind, rest: &str) -> Result<CatalogAddress, String> {
    let expected = "glue:// must be followed by DATABASE/TABLE";
    let (database, table) = rest.split_once(['/', '.']).ok_or(expected)?;
    let (database, table) = (decoded(database).ok_or(expected)?, decoded(table).ok_or(expected)?);
    if table.contains('/') {
        return Err(expected.to_owned());
    }
    Ok(CatalogAddress::Glue { kind, table: TableName { namespace: vec![database], table } })
}

/// The address of a service, and the segments of the path that follow it.
fn endpoint(is_http: bool, rest: &str, expected: &str) -> Result<(Url, Vec<String>), String> {
    let parsed = |scheme: &str| Url::parse(&format!("{scheme}{SCHEME_END}{rest}")).map_err(|_| expected.to_owned());
    let mut url = parsed("https")?;
    if is_http || is_this_machine(&url) {
        url = parsed("http")?;
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address of a catalog must not have a user or a password: they are read from the environment"
            .to_owned());
    }
    if !url.has_host() || url.fragment().is_some() {
        return Err(expected.to_owned());
    }
    let segments = url.path_segments().into_iter().flatten().filter(|segment| !segment.is_empty());
    let segments = segments.map(str::to_owned).collect();
    Ok((url, segments))
}

/// Whether requests do not leave this machine, so that they need no encryption.
fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// What follows `?`.
#[derive(Default)]
struct Query {
    warehouse: Option<String>,
    is_vended: bool,
}

/// Removes the query from a URL.
fn query(url: &mut Url) -> Result<Query, String> {
    let mut found = Query::default();
    for (key, value) in url.query_pairs() {
        match (key.as_ref(), value.as_ref()) {
            (WAREHOUSE, name) if !name.is_empty() && found.warehouse.is_none() => {
                found.warehouse = Some(name.to_owned());
            }
            (DELEGATION, VENDED) => found.is_vended = true,
            _ => {
                return Err(format!(
                    "the address of a catalog may have ?{WAREHOUSE}=NAME and {DELEGATION}={VENDED} after ?, and nothing else"
                ));
            }
        }
    }
    url.set_query(None);
    Ok(found)
}

/// The text of an encoded part of a name; `None` if it is empty or not a name.
fn decoded(part: &str) -> Option<String> {
    let text = percent_decode_str(part).decode_utf8().ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then(|| text.into_owned())
}

// === impl TableName ===

impl TableName {
    /// Parses `NAMESPACE.TABLE`, each part percent-encoded; a namespace may have several parts.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(decoded).collect::<Option<Vec<_>>>()?;
        let table = parts.pop()?;
        (!parts.is_empty()).then_some(Self { namespace: parts, table })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.namespace.join("."), self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iceberg(url: &str) -> Result<CatalogAddress, String> {
        CatalogAddress::parse(TableKind::Iceberg, url).unwrap()
    }

    fn rest(url: &str) -> (String, Option<String>, Vec<String>, String) {
        match iceberg(url).unwrap() {
            CatalogAddress::Rest { endpoint, warehouse, table, .. } => {
                (endpoint.to_string(), warehouse, table.namespace, table.table)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rest_addresses_have_an_endpoint_a_warehouse_and_a_name() {
        for (url, endpoint, warehouse, namespace, table) in [
            ("rest://c.example/db.t", "https://c.example/", None, vec!["db"], "t"),
            ("rest://c.example:8181/a/b/db.x.t", "https://c.example:8181/a/b", None, vec!["db", "x"], "t"),
            ("rest://127.0.0.1:1/db/t", "http://127.0.0.1:1/", None, vec!["db"], "t"),
            ("rest://localhost:1/api/db/t", "http://localhost:1/api", None, vec!["db"], "t"),
            ("rest+http://c.local/db.t?warehouse=s3://b/w", "http://c.local/", Some("s3://b/w"), vec!["db"], "t"),
            ("rest://[::1]:443/d%2Eb.t%20t", "http://[::1]:443/", None, vec!["d.b"], "t t"),
        ] {
            let (found, named, levels, name) = rest(url);
            assert_eq!(
                (found.as_str(), named.as_deref(), levels, name.as_str()),
                (endpoint, warehouse, namespace.into_iter().map(str::to_owned).collect(), table),
                "{url}"
            );
        }
    }

    #[test]
    fn other_addresses_are_refused_without_their_password() {
        for (url, word) in [
            ("rest://c", "HOST/NAMESPACE.TABLE"),
            ("rest:///db.t", "HOST/NAMESPACE.TABLE"),
            ("rest://c/t", "HOST/NAMESPACE.TABLE"),
            ("rest://c/db.", "HOST/NAMESPACE.TABLE"),
            ("rest://c/db.t#x", "HOST/NAMESPACE.TABLE"),
            ("rest://c/db.t%00", "HOST/NAMESPACE.TABLE"),
            ("rest://u:secret@c/db.t", "must not have a user"),
            ("rest://c/db.t?token=secret", "?warehouse=NAME and access-delegation"),
            ("rest://c/db.t?warehouse=a&warehouse=b", "?warehouse=NAME and access-delegation"),
            ("unity://c/a.b.t", "write iceberg+rest://"),
            ("glue://db", "DATABASE/TABLE"),
            ("glue://db/a/b", "DATABASE/TABLE"),
        ] {
            let error = iceberg(url).unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{url}: {error}");
        }
        let delta = |url: &str| CatalogAddress::parse(TableKind::Delta, url).unwrap();
        assert!(delta("rest://c/db.t").unwrap_err().contains("write iceberg+rest://"));
        for url in ["unity://c/b.t", "unity://c/a.b.c.t", "unity://c/a.b.t?warehouse=y"] {
            assert!(delta(url).unwrap_err().contains("HOST/CATALOG.SCHEMA.TABLE"), "{url}");
        }
    }

    #[test]
    fn tables_of_other_catalogs_have_their_names() {
        let shown = |kind, url: &str| CatalogAddress::parse(kind, url).unwrap().unwrap().to_string();
        assert_eq!(shown(TableKind::Delta, "unity://h/a.b.t"), "table \"a.b.t\" in the catalog https://h/");
        for url in ["glue://db/t", "glue://db.t"] {
            assert_eq!(shown(TableKind::Iceberg, url), "table \"db.t\" in the catalog AWS Glue");
        }
        for url in ["s3://b/t", "/a/rest", "resty://c/db.t"] {
            assert!(!is_address(url) && CatalogAddress::parse(TableKind::Iceberg, url).is_none(), "{url}");
        }
    }
}
