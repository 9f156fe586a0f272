//! `forebay head` of large values, chosen columns and narrow terminals.

use std::{fs::File, path::Path, sync::Arc};

use arrow::array::{
    ArrayRef, BinaryArray, FixedSizeListArray, Int64Array, RecordBatch, StringArray, types::Float32Type,
};
use parquet::arrow::ArrowWriter;

use crate::{
    command_line::{failure, json_lines, stdout},
    server::Server,
    terminal::Terminal,
};

const IMAGE_BYTES: usize = 1 << 20;
const ROWS: i64 = 12;

/// Columns: `id`, an `image` of 1 MiB, a `caption` of 100,000 letters and line breaks, an `embedding` of 64 numbers, and
/// thirty more numbers.
fn write_images(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let images =
        (0..ROWS).map(|row| [vec![0x89, b'P', b'N', b'G', 0, 0, 0, 0], vec![row as u8; IMAGE_BYTES - 8]].concat());
    let embeddings =
        (0..ROWS).map(|row| Some((0..64).map(|item| Some(row as f32 + item as f32 / 2.0)).collect::<Vec<_>>()));
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("id".to_owned(), Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("image".to_owned(), Arc::new(BinaryArray::from_iter_values(images))),
        (
            "caption".to_owned(),
            Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{row}\n").repeat(50_000)))),
        ),
        (
            "embedding".to_owned(),
            Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(embeddings, 64)),
        ),
    ];
    columns.extend((0..30).map(|n| (format!("n{n}"), Arc::new(Int64Array::from_iter_values(n..n + ROWS)) as ArrayRef)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let target = File::create(folder.join("part.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(target, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn long_values_are_shortened_and_columns_chosen() {
    let [server] = Server::replicas("images", write_images);
    let table = stdout(&mut server.forebay(&["head", "images", "--columns", "image,id", "--rows", "2"]));
    assert_eq!(
        table,
        "+--------------------------------+----+\n\
         | image                          | id |\n\
         +--------------------------------+----+\n\
         | <1048576 B: 89504e4700000000…> | 0  |\n\
         | <1048576 B: 89504e4700000000…> | 1  |\n\
         +--------------------------------+----+\n"
    );
    let whole = stdout(&mut server.forebay(&["head", "images"]));
    assert!(whole.len() < 20_000 && whole.contains(r"| 3\n3\n3\n"), "{whole}");
    assert!(whole.contains("| [3.0, 3.5, 4.0, 4.5, … 64 values]"), "{whole}");
    assert!(whole.contains("| n29 |"), "without a terminal every column is shown");
    let rows =
        json_lines(&stdout(&mut server.forebay(&["head", "images", "--columns", "id,n7", "--json", "--rows", "3"])));
    assert_eq!(rows[2], serde_json::json!({"id": 2, "n7": 9}));
    let (code, message) = failure(&mut server.forebay(&["head", "images", "--columns", "id,imag"]));
    assert!(code == Some(1) && message.contains(r#"no column "imag": did you mean "image""#), "{message}");
    let (code, message) = failure(&mut server.forebay(&["head", "images", "--columns", "id", "--plan", "x.json"]));
    assert!(code == Some(2) && message.contains("cannot be used with"), "{message}");
}

#[test]
fn take_shows_rows_by_their_numbers() {
    let [server] = Server::replicas("images", write_images);
    let table = stdout(&mut server.forebay(&["take", "images", "--row-ids", "11,0,11"]));
    assert!(table.contains("<1048576 B: 89504e4700000000…>") && table.contains("| [11.0, 11.5,"), "{table}");
    let plan =
        r#"{"filter": "id > 4", "outputs": [{"name": "id", "dtype": "AS_STORED", "parts": [{"columns": ["id"]}]}]}"#;
    let path = server.folder.path().join("plan.json");
    std::fs::write(&path, plan).unwrap();
    let by_plan = ["take", "images", "--json", "--plan", path.to_str().unwrap()];
    let rows = json_lines(&stdout(&mut server.forebay(&[&by_plan[..], &["--positions", "6,0"]].concat())));
    assert_eq!(rows, [serde_json::json!({"id": 11}), serde_json::json!({"id": 5})]);
    let (code, message) = failure(&mut server.forebay(&[&by_plan[..], &["--row-ids", "5,4"]].concat()));
    assert!(code == Some(1) && message.contains("row_ids[1]: row 4 does not pass the plan's filter"), "{message}");
    let (code, message) = failure(&mut server.forebay(&["take", "images"]));
    assert!(code == Some(2) && message.contains("--row-ids"), "{message}");
}

#[test]
fn the_table_fits_the_terminal() {
    let [server] = Server::replicas("images", write_images);
    let mut terminal = Terminal::run(server.forebay(&["head", "images"]));
    terminal.wait_for("more columns");
    assert_eq!(terminal.end(), Some(0));
    let written = terminal.written();
    // The terminal has 120 columns.
    assert!(written.lines().all(|line| line.trim_end().chars().count() <= 120), "{written}");
    assert_eq!(written.lines().filter(|line| line.starts_with("| ")).count(), 1 + 10, "{written}");
    assert!(written.contains("more columns (--columns): n"), "{written}");
}
