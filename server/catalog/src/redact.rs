//! Renders errors of stores without secrets.

use std::error::Error;

/// S3 error codes of rejected credentials; some are returned with status 400.
const CREDENTIAL_CODES: [&str; 7] = [
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
];

/// Azure's explanation of a request that is older than 15 minutes.
const AZURE_CLOCK: &str = "Request date header too old";

/// Whether the code of an error document means that the credentials are rejected or expired.
pub(super) fn is_about_credentials(code: &str) -> bool {
    CREDENTIAL_CODES.contains(&code)
}

/// Whether the store rejects the time of a request. Azure reports that in the detail of an authentication failure.
pub(super) fn is_about_clock(code: &str, sentence: &str) -> bool {
    code == "RequestTimeTooSkewed" || sentence.contains(AZURE_CLOCK)
}

/// The text of the first element of this name in a document.
pub(super) fn element<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0)
}

/// The message of an error and its root cause. Includes only the code and message of an error document, as the rest
/// contains key ids and the signed string, and omits URL queries, which may contain signatures.
pub(super) fn sentence(error: &object_store::Error) -> String {
    let text = error.to_string();
    if let Some(code) = element(&text, "Code") {
        let mut message =
            element(&text, "Message").map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"));
        // The whole detail may contain the signed string.
        if element(&text, "AuthenticationErrorDetail").is_some_and(|detail| detail.starts_with(AZURE_CLOCK)) {
            message = format!("{message} {AZURE_CLOCK}");
        }
        return one_line(&message);
    }
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let cause = cause.to_string();
    let message = if text.contains(&cause) { text } else { format!("{text}: {cause}") };
    // Omits any other document, such as a proxy's error page.
    one_line(message.split('<').next().unwrap_or_default())
}

/// A text in one line, without secrets.
pub(super) fn one_line(text: &str) -> String {
    let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
    words.filter(|word| !word.is_empty()).map(without_secrets).collect::<Vec<_>>().join(" ")
}

/// Removes the query and the part before `@` from a word that is a URL.
fn without_secrets(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let plain = rest.split_once('?').map_or(rest, |(plain, _)| plain);
    let (authority, path) = plain.split_once('/').map_or((plain, None), |(authority, path)| (authority, Some(path)));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    path.map_or_else(|| format!("{scheme}://{host}"), |path| format!("{scheme}://{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_code_and_message_and_no_secret() {
        let body = "<?xml?><Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>\
                    <AWSAccessKeyId>AKIAKEY</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>";
        let error = |text: &str| object_store::Error::Generic { store: "S3", source: text.to_owned().into() };
        assert_eq!(sentence(&error(&format!("403: {body}"))), "SignatureDoesNotMatch: Check your key.");
        let odd = "<Error><Code>SlowDown</Code><Message>a\r\n\u{1b}[31mb</Message></Error>";
        assert_eq!(sentence(&error(odd)), "SlowDown: a [31mb");
        let old = "<Error><Code>AuthenticationFailed</Code><Message>Denied.</Message><AuthenticationErrorDetail>\
                   Request date header too old: 'Mon'</AuthenticationErrorDetail></Error>";
        assert_eq!(sentence(&error(old)), "AuthenticationFailed: Denied. Request date header too old");
        assert!(is_about_clock("AuthenticationFailed", &sentence(&error(old))));
        assert!(!is_about_clock("AuthenticationFailed", "AuthenticationFailed: Denied."));
        assert_eq!(sentence(&error("502: <html>secret</html>")), "Generic S3 error: 502:");
        assert_eq!(
            sentence(&error("GET https://u:p@host/c/f?sv=1&sig=secret failed")),
            "Generic S3 error: GET https://host/c/f failed"
        );
    }
}
