//! The program that wrote a file, as its footer names it.

/// A version of three numbers; missing ones are 0.
pub(super) type Version = [u32; 3];

/// A writer of Parquet files and its version.
#[derive(Debug, PartialEq)]
pub(super) struct Writer {
    /// In lower case; empty if the footer does not name it.
    name: String,
    /// `None` if the footer has none that can be read.
    version: Option<Version>,
}

// === impl Writer ===

impl Writer {
    /// Parses the field `created_by`, for example "parquet-mr version 1.8.1 (build 4aba4da)" or "`ClickHouse` v25.8.1".
    pub(super) fn parse(created_by: Option<&str>) -> Self {
        let text = created_by.unwrap_or_default().trim().to_lowercase();
        let (name, rest) = text.split_once(" version ").or_else(|| split_at_number(&text)).unwrap_or((&text, ""));
        let number = rest.trim_start().trim_start_matches('v');
        let end = number.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(number.len());
        let mut parts = number[..end].split('.').map(|part| part.parse().ok());
        let version = parts.next().flatten().map(|major| {
            let mut next = || parts.next().flatten().unwrap_or(0);
            [major, next(), next()]
        });
        Self { name: name.trim().to_owned(), version }
    }

    /// Whether it is a program of this name. Polars adds the language in parentheses.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
    }

    /// Whether its version is this one or a later one. An unknown version is not.
    pub(super) fn is_since(&self, version: Version) -> bool {
        self.version.is_some_and(|own| own >= version)
    }
}

/// The text before and after " v", if a digit follows.
fn split_at_number(text: &str) -> Option<(&str, &str)> {
    text.split_once(" v").filter(|(_, rest)| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_writers_write() {
        for (created_by, name, version) in [
            (
                "parquet-mr version 1.8.1 (build 4aba4dae7bb0d4edbcf7923ae1339f28fd3f7fcf)",
                "parquet-mr",
                Some([1, 8, 1]),
            ),
            ("parquet-mr version 1.5.0-cdh5.5.0 (build ${buildNumber})", "parquet-mr", Some([1, 5, 0])),
            ("parquet-mr version 1.12.3-databricks-0002 (build 1)", "parquet-mr", Some([1, 12, 3])),
            ("parquet-mr", "parquet-mr", None),
            ("parquet-mr compatible Photon version 0.2", "parquet-mr compatible photon", Some([0, 2, 0])),
            ("parquet-cpp version 1.5.1-SNAPSHOT", "parquet-cpp", Some([1, 5, 1])),
            ("parquet-cpp-arrow version 26.0.1", "parquet-cpp-arrow", Some([26, 0, 1])),
            ("DuckDB version v2.0.0 (build d54cbbe3df)", "duckdb", Some([2, 0, 0])),
            ("ClickHouse v25.3.2.39", "clickhouse", Some([25, 3, 2])),
            ("Polars", "polars", None),
            ("Polars (python) version 2.1.0 (build 7f90)", "polars", Some([2, 1, 0])),
            ("forebay convert version 0.1.0", "forebay convert", Some([0, 1, 0])),
            ("a version 99999999999.1", "a", None),
            ("parquet viewer", "parquet viewer", None),
            ("", "", None),
        ] {
            let writer = Writer::parse(Some(created_by));
            assert!(writer.is(name), "{created_by}: {writer:?}");
            assert_eq!(writer.version, version, "{created_by}");
        }
        assert_eq!(Writer::parse(None), Writer::parse(Some("")));
        // A longer name is another program.
        assert!(!Writer::parse(Some("parquet-cpp-arrow version 26.0.1")).is("parquet-cpp"));
        assert!(!Writer::parse(Some("parquet-mr compatible Photon version 0.2")).is("parquet-mr"));
    }

    #[test]
    fn an_unknown_version_is_before_every_other() {
        let parsed = |text| Writer::parse(Some(text));
        assert!(parsed("parquet-mr version 1.10.0").is_since([1, 10, 0]));
        assert!(!parsed("parquet-mr version 1.9.9").is_since([1, 10, 0]));
        assert!(!parsed("parquet-mr").is_since([0, 0, 0]));
    }
}
