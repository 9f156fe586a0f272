use serde_json::json;

use super::*;
use forebay_proto::v1::{Balance, LengthBuckets, Window};

/// Returns a cursor in a shuffled epoch, or in file order if `lanes` is 0.
fn cursor(position: u64, world_size: u64, lanes: u64) -> Cursor {
    let request = StreamRequest { epoch: 1, shuffle: lanes > 0, lanes, start_position: position, ..of(world_size, 1) };
    Cursor::start(&request, &StreamInfo { plan_id: "p".into(), order_version: 1, ..Default::default() })
}

fn of(world_size: u64, batch_size: u64) -> StreamRequest {
    StreamRequest { world_size: Some(world_size), batch_size: Some(batch_size), ..Default::default() }
}

#[test]
fn the_largest_cursor_round_trips_in_300_bytes() {
    // The server's maximum ranks, lanes and window, 2^53 rows, digests of 32 digits.
    for (remainder, shuffle) in [(Remainder::Keep, true), (Remainder::Drop, true), (Remainder::Keep, false)] {
        let largest = Cursor {
            version: CURSOR_VERSION,
            order_version: 999,
            epoch: u64::MAX,
            position: 1 << 53,
            world_size: 1 << 14,
            snapshot: "a".repeat(32),
            plan_id: "b".repeat(32),
            lanes: Some(1 << 16),
            remainder,
            seed: u64::MAX,
            shuffle,
            window_rows: Some(1 << 26),
            sample: 1.0,
            sample_seed: 0,
            balance: None,
            sample_weight: String::new(),
            bucket_by_length: None,
            batch_size: 0,
            window: None,
        };
        let text = largest.to_json();
        assert!(text.len() <= 300, "{} bytes: {text}", text.len());
        assert_eq!(Cursor::from_json(&text).unwrap(), largest);
        let sampled = Cursor { sample: 0.123_456_789_012_345_67, sample_seed: u64::MAX, ..largest };
        let text = sampled.to_json();
        assert!(text.len() <= 370, "{} bytes: {text}", text.len());
        assert_eq!(Cursor::from_json(&text).unwrap(), sampled);
    }
}

#[test]
fn reads_and_writes_the_json_of_the_python_package() {
    let python = r#"{"version":2,"order_version":1,"epoch":3,"position":4096,"world_size":2,"snapshot":"5f","plan_id":"7a","lanes":null,"remainder":"pad","seed":7,"shuffle":false,"window_rows":null}"#;
    let cursor = Cursor::from_json(python).unwrap();
    assert_eq!((cursor.position, cursor.remainder, cursor.lanes), (4096, Remainder::Pad, None));
    assert_eq!(cursor.to_json(), python, "to the byte");
}

#[test]
fn resumes_only_the_balance_that_it_was_saved_in() {
    let balance = |by: &str| Some(Balance { by: by.to_owned(), weights: Vec::new() });
    let request = |balance| StreamRequest { balance, start_position: 8, ..of(1, 8) };
    let cursor = Cursor::start(&request(balance("label")), &StreamInfo::default());
    assert!(cursor.to_json().contains(r#""balance":{"by":"label","weights":[]}"#), "{}", cursor.to_json());
    let read = Cursor::from_json(&cursor.to_json()).unwrap();
    assert_eq!(read, cursor);
    for (present, is_accepted) in [(balance("label"), true), (None, true), (balance("other"), false)] {
        match read.apply(&request(present)) {
            Ok(resumed) => assert!(is_accepted && resumed.balance == balance("label")),
            Err(error) => assert!(!is_accepted && error.to_string().contains("balance"), "{error}"),
        }
    }
    let plain = Cursor::start(&request(None), &StreamInfo::default());
    assert!(matches!(plain.apply(&request(balance("label"))), Err(CursorError::Rows { field: "balance" })));
}

#[test]
fn resumes_only_the_windows_that_it_was_saved_in() {
    let window =
        |length| Some(Window { by: vec!["sensor".to_owned()], order: "ts".to_owned(), length, ..Window::default() });
    let request = |window| StreamRequest { window, start_position: 8, ..of(1, 8) };
    let cursor = Cursor::from_json(&Cursor::start(&request(window(4)), &StreamInfo::default()).to_json()).unwrap();
    assert_eq!(cursor.apply(&request(None)).unwrap().window, window(4));
    assert!(cursor.apply(&request(window(5))).unwrap_err().to_string().contains("another window"));
}

#[test]
fn a_run_of_buckets_resumes_at_its_own_world_size_and_batch_size() {
    let buckets =
        |boundaries: &[u64]| LengthBuckets { column: "t".to_owned(), boundaries: boundaries.into(), max_tokens: 0 };
    let request = |boundaries: &[u64], world_size, batch_size, start_position| StreamRequest {
        bucket_by_length: Some(buckets(boundaries)),
        shuffle: true,
        start_position,
        ..of(world_size, batch_size)
    };
    let cursor = Cursor::start(&request(&[4], 2, 8, 32), &StreamInfo::default());
    let text = cursor.to_json();
    assert!(text.ends_with(r#""bucket_by_length":{"boundaries":[4],"column":"t"},"batch_size":8}"#), "{text}");
    let cursor = Cursor::from_json(&text).unwrap();
    let plain = StreamRequest { bucket_by_length: None, ..request(&[], 2, 8, 0) };
    assert_eq!(
        cursor.apply(&plain).unwrap(),
        StreamRequest { lanes: 16, window_rows: Some(16_384), ..request(&[4], 2, 8, 32) }
    );
    for (other, words) in [
        (request(&[4], 4, 8, 0), "at world size 2 and batch size 8, and these are 4 and 8"),
        (request(&[4], 2, 16, 0), "and these are 2 and 16"),
        (request(&[5], 2, 8, 0), "another bucket_by_length"),
    ] {
        assert!(cursor.apply(&other).unwrap_err().to_string().contains(words));
    }
    let next = Cursor { position: 0, ..cursor };
    assert_eq!(next.apply(&request(&[4], 4, 16, 0)).unwrap().start_position, 0);
    let tokens = StreamRequest {
        bucket_by_length: Some(LengthBuckets { column: "t".to_owned(), boundaries: Vec::new(), max_tokens: 64 }),
        ..of(1, 8)
    };
    let cursors = EpochCursors::new(&tokens, &StreamInfo { rows: 900, steps: 7, ..Default::default() });
    assert!(cursors.start().to_json().contains(r#"{"column":"t","max_tokens":64}"#));
    let ends = |step: u64| cursors.ends_epoch(&BatchHeader { position: step * 8, rows: 2, ..Default::default() });
    assert_eq!((ends(5), ends(6)), (false, true));
}

#[test]
fn resumes_only_the_sample_that_it_was_saved_in() {
    let request = |sample, sample_seed| StreamRequest { sample, sample_seed, start_position: 8, ..of(1, 8) };
    let sampled = Cursor::start(&request(Some(0.1), 7), &StreamInfo::default());
    let whole = Cursor::start(&request(Some(1.0), 7), &StreamInfo::default());
    assert_eq!(whole, Cursor::start(&request(None, 0), &StreamInfo::default()));
    assert!(sampled.to_json().contains(r#""sample":0.1,"sample_seed":7"#) && !whole.to_json().contains("sample"));
    for (cursor, present, seed, is_accepted) in [
        (&sampled, None, 0, true),
        (&sampled, Some(0.1), 7, true),
        (&sampled, Some(0.1), 8, false),
        (&sampled, Some(0.2), 7, false),
        (&sampled, Some(1.0), 7, false),
        (&whole, Some(1.0), 9, true),
        (&whole, Some(0.5), 0, false),
    ] {
        match cursor.apply(&request(present, seed)) {
            Ok(applied) => {
                assert!(is_accepted, "{present:?} with seed {seed}");
                assert_eq!(Cursor::start(&applied, &StreamInfo::default()), *cursor);
            }
            Err(error) => assert!(!is_accepted && error.to_string().contains("sample"), "{error}"),
        }
    }
}

#[test]
fn fills_in_the_servers_defaults_or_its_own() {
    let request = StreamRequest { shuffle: true, ..of(5, 8) };
    let cursor = Cursor::start(&request, &StreamInfo::default());
    assert_eq!((cursor.lanes, cursor.window_rows), (Some(40), Some(16_384)));
    let cursor = Cursor::start(&request, &StreamInfo { order_version: 2, ..Default::default() });
    assert_eq!((cursor.lanes, cursor.window_rows), (Some(20), Some(16_384)));
    let cursor = Cursor::start(&request, &StreamInfo { lanes: 80, window_rows: 9, ..Default::default() });
    assert_eq!((cursor.lanes, cursor.window_rows), (Some(80), Some(9)));
    let cursor = Cursor::start(&of(5, 8), &StreamInfo::default());
    assert_eq!((cursor.lanes, cursor.window_rows), (None, None), "file order has none");
}

#[test]
fn resumes_at_another_batch_size_and_at_world_sizes_that_the_position_allows() {
    let cases = [
        (cursor(0, 2, 0), of(3, 7), Ok(0)),
        (cursor(48, 2, 0), of(2, 24), Ok(0)),
        (cursor(48, 2, 0), of(2, 7), Ok(6)),
        (cursor(48, 2, 0), of(4, 12), Err("resume at world size 2")),
        (cursor(48, 2, 16), of(4, 1000), Ok(48)),
        (cursor(48, 2, 16), of(3, 16), Err("does not divide the 16 lanes")),
        (cursor(0, 2, 16), of(3, 16), Err("does not divide the 16 lanes")),
        (cursor(68, 2, 16), of(2, 10), Ok(8)),
        (cursor(68, 2, 16), of(8, 10), Err("such as 4")),
    ];
    for (cursor, request, expected) in cases {
        match (cursor.apply(&request), expected) {
            (Ok(applied), Ok(resumed_from)) => {
                assert_eq!((applied.start_position, applied.resumed_from), (cursor.position, resumed_from));
                assert_eq!((applied.world_size, applied.batch_size), (request.world_size, request.batch_size));
                assert_eq!((applied.epoch, applied.order_version, &applied.snapshot), (1, 1, &cursor.snapshot));
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (outcome, _) => panic!("{cursor:?} at {request:?}: {outcome:?}"),
        }
    }
}

#[test]
fn a_run_resumed_between_its_steps_resumes_again() {
    // Saved in batches of 12, resumed in batches of 10 and interrupted after each of its steps.
    let resumed = cursor(48, 2, 16).apply(&of(2, 10)).unwrap();
    let cursors = EpochCursors::new(&resumed, &StreamInfo { lanes: 16, ..Default::default() });
    for position in [48, 68, 88] {
        let after = cursors.after(&BatchHeader { position, ..Default::default() });
        let again = after.apply(&resumed).unwrap();
        assert_eq!((again.start_position, again.resumed_from), (position + 20, 8));
        assert_eq!(Cursor::from_json(&after.to_json()).unwrap().apply(&of(2, 10)).unwrap().resumed_from, 8);
    }
}

#[test]
fn lanes_that_a_state_leaves_out_are_those_of_its_world_size() {
    let state = Cursor { lanes: None, ..cursor(20, 5, 20) };
    assert_eq!(state.apply(&of(1, 4)).unwrap().lanes, 20);
}

#[test]
fn rejects_another_version_plan_or_order_with_a_remedy() {
    let saved = cursor(48, 2, 0);
    let other = |name: &str, value: Value| {
        let mut fields: Value = serde_json::from_str(&saved.to_json()).unwrap();
        fields[name] = value;
        fields.to_string()
    };
    let refused = |text: &str| {
        let error = Cursor::from_json(text).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {cause}")
    };
    for (text, expected) in [
        (other("version", json!(1)), "version 1, this client reads version 2: load it with"),
        (other("remainder", json!("most")), "keep, drop or pad"),
        (other("position", json!(-1)), "-1"),
        (r#"{"version": 2}"#.to_owned(), "missing field"),
        ("[]".to_owned(), "not a cursor"),
        (String::new(), "EOF"),
    ] {
        let message = refused(&text);
        assert!(message.contains(expected), "{text}: {message}");
    }
    let request = StreamRequest { plan_id: "q".into(), ..of(2, 24) };
    let message = saved.apply(&request).unwrap_err().to_string();
    assert!(message.contains("under plan p, this plan is q"), "{message}");
    for (plan_id, order_version, expected) in
        [("p", 1, None), ("q", 1, Some("this plan is q")), ("p", 2, Some("the server uses 2"))]
    {
        let info = StreamInfo { plan_id: plan_id.into(), order_version, ..Default::default() };
        let outcome = saved.check_info(&info).map_err(|error| error.to_string());
        assert_eq!(outcome.is_ok(), expected.is_none(), "{outcome:?}");
        assert!(outcome.err().unwrap_or_default().contains(expected.unwrap_or_default()));
    }
    assert!(cursor(0, 1, 0).check_info(&StreamInfo::default()).is_err(), "order version 1 is not 0");
}

#[test]
fn the_epoch_ends_at_the_same_step_on_all_ranks() {
    // 100 rows on 3 ranks in batches of 11: 34, 33, 33 rows; rank 0 alone has a fourth batch, of one row.
    let info = StreamInfo { rows: 100, snapshot: "s".into(), ..Default::default() };
    let cursors = EpochCursors::new(&of(3, 11), &info);
    for (step, last, expected) in [(0, false, false), (2, true, false), (2, false, false), (3, true, true)] {
        let header = BatchHeader { step, position: step * 33, last, ..Default::default() };
        assert_eq!(cursors.ends_epoch(&header), expected, "step {step}");
        assert_eq!(cursors.after(&header).position, (step + 1) * 33);
    }
    assert_eq!((cursors.start().snapshot.as_str(), cursors.next_epoch().epoch), ("", 1));
    assert_eq!(cursors.after(&BatchHeader::default()).snapshot, "s");
}
