//! `--sources FILE`: reads the sources of a mixture.

use std::{fs, path::Path};

use forebay_client::{MixtureSource, StreamRequest};

use super::failure::Failure;

/// Reads a list of sources, or a request with its field `sources` alone.
pub(crate) fn read(path: &Path) -> Result<Vec<MixtureSource>, Failure> {
    let usage = |reason: String| Failure::Usage(format!("--sources {}: {reason}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
    let text = if text.trim_start().starts_with('[') { format!("{{\"sources\": {text}}}") } else { text };
    let (request, _) =
        forebay_proto::decode::<StreamRequest>(text.as_bytes()).map_err(|error| usage(error.to_string()))?;
    let alone = StreamRequest { sources: request.sources.clone(), ..StreamRequest::default() };
    if request.sources.is_empty() || request != alone {
        return Err(usage("expected a list of sources: [{\"dataset\": \"a\", \"weight\": 0.7}, ...]".to_owned()));
    }
    Ok(request.sources)
}
