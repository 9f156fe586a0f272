//! The status of a call, from the headers of a response or from its trailers.

use hyper::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;

use crate::ReceiveError;

/// gRPC's code for a status that cannot be read.
const UNKNOWN: i32 = 2;

/// The status in these headers; none if they have none.
pub(crate) fn status(headers: &HeaderMap) -> Option<Result<(), ReceiveError>> {
    let code = headers.get("grpc-status")?;
    let code = code.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(UNKNOWN);
    if code == 0 {
        return Some(Ok(()));
    }
    let message = headers.get("grpc-message").map_or(&[][..], |value| value.as_bytes());
    Some(Err(ReceiveError::Status { code, message: percent_decode(message).decode_utf8_lossy().into_owned() }))
}

/// Checks that a response begins a stream of messages.
pub(crate) fn check(code: StatusCode, headers: &HeaderMap) -> Result<(), ReceiveError> {
    if let Some(Err(error)) = status(headers) {
        return Err(error);
    }
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if code != StatusCode::OK || !kind.starts_with("application/grpc") {
        return Err(ReceiveError::Unreached(format!("the server answered with HTTP status {code} and type {kind:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_status_has_its_code_and_its_decoded_message() {
        let failed = |code, message: &str| Some(Err(ReceiveError::Status { code, message: message.to_owned() }));
        assert_eq!(status(&headers(&[])), None);
        assert_eq!(status(&headers(&[("grpc-status", "0"), ("grpc-message", "ignored")])), Some(Ok(())));
        let given = [("grpc-status", "9"), ("grpc-message", "NOT_FITTED: fit it%2C d%C3%A9j%C3%A0")];
        assert_eq!(status(&headers(&given)), failed(9, "NOT_FITTED: fit it, déjà"));
        assert_eq!(status(&headers(&[("grpc-status", "what")])), failed(UNKNOWN, ""));
    }

    #[test]
    fn a_response_of_something_else_is_no_stream() {
        let grpc = [("content-type", "application/grpc+proto")];
        assert_eq!(check(StatusCode::OK, &headers(&grpc)), Ok(()));
        let html = check(StatusCode::BAD_GATEWAY, &headers(&[("content-type", "text/html")])).unwrap_err();
        assert_eq!(html.to_string(), "the server answered with HTTP status 502 Bad Gateway and type \"text/html\"");
        assert!(check(StatusCode::OK, &headers(&[])).is_err());
    }
}
