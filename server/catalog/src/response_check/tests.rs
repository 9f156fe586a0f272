use super::*;

#[test]
fn verifies_only_bounded_ranges() {
    assert_eq!(RequestKind::of_range("bytes=0-9"), RequestKind::Range { first: 0, last: 9 });
    for other in ["bytes=5-", "bytes=-5", "bytes=9-0", "bytes=0-1,4-5", "lines=0-1"] {
        assert_eq!(RequestKind::of_range(other), RequestKind::Other, "{other}");
    }
}

#[test]
fn rejects_a_range_other_than_the_requested_one() {
    let declared = |status, range, length| match declared_body(100, 199, status, range, length) {
        Ok(RangeResponse::Bytes(bytes)) => bytes.to_string(),
        Ok(RangeResponse::PastEnd) => "past the end".to_owned(),
        Err(error) => error.to_string(),
    };
    for (status, range, length, want) in [
        (206, Some("bytes 100-199/1000"), Some(100), "100"),
        (206, Some("bytes 100-199/1000"), None, "100"),
        // Up to the end of the file.
        (206, Some("bytes 100-149/150"), Some(50), "50"),
        (206, Some("bytes 100-99/100"), Some(0), "past the end"),
        (200, None, Some(1000), "the store returned status 200 for a request of bytes 100-199"),
        (206, None, Some(100), "the store returned \"\" for a request of bytes 100-199"),
        (
            206,
            Some("bytes 92-191/1000"),
            Some(100),
            "the store returned \"bytes 92-191/1000\" for a request of bytes 100-199",
        ),
        (
            206,
            Some("bytes 100-149/1000"),
            Some(50),
            "the store returned \"bytes 100-149/1000\" for a request of bytes 100-199",
        ),
        (206, Some("bytes 100-199/1000"), Some(92), "the store declared 92 bytes for a request of 100 bytes"),
    ] {
        assert_eq!(declared(status, range, length), want);
    }
}

#[tokio::test]
async fn rejects_a_body_of_another_length() {
    for (frames, bytes, want) in [
        (vec!["abc", "", "de"], 5, Ok(vec!["abc", "de"])),
        (vec!["abc"], 5, Err(vec!["abc"])),
        (vec![], 5, Err(vec![])),
        // The last frame is held back if the body is too long.
        (vec!["abc", "def"], 5, Err(vec!["abc"])),
        (vec!["abc", "de", "f"], 5, Err(vec!["abc"])),
    ] {
        // Joins bodies of one frame each.
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
fn rejects_incomplete_listings() {
    let checked = |page: &str| check_listing(page).map_or_else(|error| error.to_string(), |()| "complete".to_owned());
    for (page, want) in [
        (
            "<?xml version=\"1.0\"?>\n<!-- x --><ListBucketResult xmlns=\"a\"><Contents/></ListBucketResult>\n",
            "complete",
        ),
        ("\u{feff}<EnumerationResults><Blobs/></EnumerationResults>", "complete"),
        ("<ListBucketResult xmlns=\"a\"/>", "complete"),
        (
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>\
             </ListBucketResult>",
            "complete",
        ),
        (
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "the store's listing has more pages but no continuation token",
        ),
        ("<ListBucketResult><Contents><Key>a</Key>", "the store's listing ends early"),
        (
            "<?xml version='1.0'?><Error><Code>InternalError</Code><Message>Later.</Message></Error>",
            "not a listing: <Code>InternalError</Code><Message>Later.</Message>",
        ),
        ("<!DOCTYPE html><html></html>", "the store's response is not a listing"),
        ("", "the store's response is not a listing"),
        ("{}", "the store's response is not a listing"),
    ] {
        assert_eq!(checked(page), want, "{page}");
    }
}

#[test]
fn rejected_credentials_are_not_retried() {
    let kind = |code: &str| {
        HttpError::from(ResponseError::ErrorDocument { code: code.to_owned(), message: String::new() }).kind()
    };
    assert_eq!(kind("SlowDown"), HttpErrorKind::Interrupted);
    assert_eq!(kind("ExpiredToken"), HttpErrorKind::Decode);
}
