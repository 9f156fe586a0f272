use super::*;

#[test]
fn only_bounded_ranges_are_held_against() {
    assert_eq!(Asked::of_range("bytes=0-9"), Asked::Range { first: 0, last: 9 });
    for other in ["bytes=5-", "bytes=-5", "bytes=9-0", "bytes=0-1,4-5", "lines=0-1"] {
        assert_eq!(Asked::of_range(other), Asked::Other, "{other}");
    }
}

#[test]
fn a_range_is_the_one_that_was_asked_for() {
    let promised = |status, range, length| match promise(100, 199, status, range, length) {
        Ok(Promise::Bytes(bytes)) => bytes.to_string(),
        Ok(Promise::BehindTheEnd) => "behind the end".to_owned(),
        Err(error) => error.to_string(),
    };
    for (status, range, length, want) in [
        (206, Some("bytes 100-199/1000"), Some(100), "100"),
        (206, Some("bytes 100-199/1000"), None, "100"),
        // Up to the end of the file.
        (206, Some("bytes 100-149/150"), Some(50), "50"),
        (206, Some("bytes 100-99/100"), Some(0), "behind the end"),
        (200, None, Some(1000), "the store answered with status 200 where a range, bytes 100-199, was asked for"),
        (206, None, Some(100), "the store answered with \"\" where bytes 100-199 were asked for"),
        (
            206,
            Some("bytes 92-191/1000"),
            Some(100),
            "the store answered with \"bytes 92-191/1000\" where bytes 100-199 were asked for",
        ),
        (
            206,
            Some("bytes 100-149/1000"),
            Some(50),
            "the store answered with \"bytes 100-149/1000\" where bytes 100-199 were asked for",
        ),
        (206, Some("bytes 100-199/1000"), Some(92), "the store announced 92 bytes where 100 were asked for"),
    ] {
        assert_eq!(promised(status, range, length), want);
    }
}

#[tokio::test]
async fn a_body_has_the_bytes_that_were_promised() {
    for (frames, bytes, want) in [
        (vec!["abc", "", "de"], 5, Ok(vec!["abc", "de"])),
        (vec!["abc"], 5, Err(vec!["abc"])),
        (vec![], 5, Err(vec![])),
        // What might be wrong is not passed on.
        (vec!["abc", "def"], 5, Err(vec!["abc"])),
        (vec!["abc", "de", "f"], 5, Err(vec!["abc"])),
    ] {
        // Frames as they come over the wire: the bodies of one frame each, one after the other.
        let parts: Vec<_> = frames.iter().map(|part| HttpResponseBody::from((*part).to_owned())).collect();
        let body = stream::unfold(parts.into_iter(), async |mut parts| {
            loop {
                let mut part = parts.next()?;
                if let Some(frame) = part.frame().await {
                    return Some((frame, parts));
                }
            }
        });
        let body = HttpResponseBody::new(StreamBody::new(body));
        let mut got = Vec::new();
        let mut sized = of_length(body, bytes);
        let mut is_whole = true;
        while let Some(frame) = sized.frame().await {
            match frame {
                Ok(frame) => got.push(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()),
                Err(_) => is_whole = false,
            }
        }
        let got: Vec<&str> = got.iter().map(String::as_str).collect();
        assert_eq!(if is_whole { Ok(got) } else { Err(got) }, want, "{frames:?}");
    }
}

#[test]
fn a_listing_is_one_and_whole() {
    let said = |page: &str| check_listing(page).map_or_else(|error| error.to_string(), |()| "whole".to_owned());
    for (page, want) in [
        ("<?xml version=\"1.0\"?>\n<!-- x --><ListBucketResult xmlns=\"a\"><Contents/></ListBucketResult>\n", "whole"),
        ("\u{feff}<EnumerationResults><Blobs/></EnumerationResults>", "whole"),
        ("<ListBucketResult xmlns=\"a\"/>", "whole"),
        (
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>\
             </ListBucketResult>",
            "whole",
        ),
        (
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "the store's listing has more pages and does not say where the next one begins",
        ),
        ("<ListBucketResult><Contents><Key>a</Key>", "the store's listing ends early"),
        (
            "<?xml version='1.0'?><Error><Code>InternalError</Code><Message>Later.</Message></Error>",
            "in place of a listing: <Code>InternalError</Code><Message>Later.</Message>",
        ),
        ("<!DOCTYPE html><html></html>", "the store answered with something else than a listing"),
        ("", "the store answered with something else than a listing"),
        ("{}", "the store answered with something else than a listing"),
    ] {
        assert_eq!(said(page), want, "{page}");
    }
}

#[test]
fn what_credentials_are_refused_for_is_not_tried_again() {
    let kind = |code: &str| {
        HttpError::from(WrongAnswer::ErrorDocument { code: code.to_owned(), message: String::new() }).kind()
    };
    assert_eq!(kind("SlowDown"), HttpErrorKind::Interrupted);
    assert_eq!(kind("ExpiredToken"), HttpErrorKind::Decode);
}
