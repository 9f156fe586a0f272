//! What a store's error says, in words that hold no secret.

use std::error::Error;

/// What S3 and its like refuse credentials for; some of it comes with status 400.
const REFUSALS: [&str; 7] = [
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
];

/// Whether an error document's code says that the credentials do not allow it, or that they no longer do.
pub(super) fn is_about_credentials(code: &str) -> bool {
    REFUSALS.contains(&code)
}

/// The text of the first element of this name that a document holds.
pub(super) fn element<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0)
}

/// What an error says, down to its cause. Of an error document only code and message are told: the rest names key ids
/// and what was signed; and queries of URLs may hold signatures.
pub(super) fn sentence(error: &object_store::Error) -> String {
    let text = error.to_string();
    if let Some(code) = element(&text, "Code") {
        let said = element(&text, "Message").map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"));
        return one_line(&said);
    }
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let cause = cause.to_string();
    let said = if text.contains(&cause) { text } else { format!("{text}: {cause}") };
    // From a document that is no XML error (a proxy's page, say) on, nothing is told.
    one_line(said.split('<').next().unwrap_or_default())
}

fn one_line(text: &str) -> String {
    let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
    words.filter(|word| !word.is_empty()).map(without_secrets).collect::<Vec<_>>().join(" ")
}

/// A word that is a URL, without its query and what stands before `@`.
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
    fn errors_tell_code_and_message_and_no_secret() {
        let body = "<?xml?><Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>\
                    <AWSAccessKeyId>AKIAKEY</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>";
        let error = |text: &str| object_store::Error::Generic { store: "S3", source: text.to_owned().into() };
        assert_eq!(sentence(&error(&format!("403: {body}"))), "SignatureDoesNotMatch: Check your key.");
        let odd = "<Error><Code>SlowDown</Code><Message>a\r\n\u{1b}[31mb</Message></Error>";
        assert_eq!(sentence(&error(odd)), "SlowDown: a [31mb");
        assert_eq!(sentence(&error("502: <html>secret</html>")), "Generic S3 error: 502:");
        assert_eq!(
            sentence(&error("GET https://u:p@host/c/f?sv=1&sig=secret failed")),
            "Generic S3 error: GET https://host/c/f failed"
        );
    }
}
