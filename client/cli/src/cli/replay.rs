//! `forebay replay DATASET`: the source of each row of a batch, and the batch itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use arrow::{error::ArrowError, ipc::writer::FileWriter};
use clap::Args;
use forebay_client::{Batch, Replay as Found, ReplayRequest, ReplayRow};

use super::{
    failure::Failure,
    message,
    output::{self, Align},
    session::Session,
    stream_options::StreamOptions,
};

/// Show the source of each row of a batch: file, row group, row, row id; --output writes the batch itself
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Name of the dataset on the server
    #[arg(required_unless_present = "sources")]
    dataset: Option<String>,

    #[command(flatten)]
    stream: StreamOptions,

    /// Rank of the batch
    #[arg(long, env = "FOREBAY_RANK", value_name = "R", default_value_t = 0)]
    rank: u64,

    /// Step of the batch, counted from the start of the epoch
    #[arg(long, env = "FOREBAY_STEP", value_name = "S", required = true)]
    step: u64,

    /// Show the rows without the header; with --json one object per line
    #[arg(long, env = "FOREBAY_ROWS_ONLY")]
    rows_only: bool,

    /// Write the batch, byte for byte as it was sent, to this Arrow IPC file
    #[arg(long, env = "FOREBAY_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Replay {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let stream = Some(self.stream.request(self.dataset.as_deref().unwrap_or_default())?);
        let found = session.client.replay(&ReplayRequest { stream, rank: self.rank, step: self.step }).await?;
        if let Some(path) = &self.output {
            let batch = session.client.replayed(&found).await?;
            write_batch(path, &batch)?;
            // The message is optional: stderr may be closed.
            message::say(&format!("wrote {} rows to {}", batch.header.rows, path.display()));
        }
        output::write(&match (session.json, self.rows_only) {
            (true, true) => found.rows.iter().flat_map(|row| [forebay_proto::to_json(row), "\n".to_owned()]).collect(),
            (true, false) => format!("{}\n", forebay_proto::to_json(&found)),
            (false, true) => rows(&found.rows),
            (false, false) => format!("{}\n{}", header(&found), rows(&found.rows)),
        })
    }
}

fn header(found: &Found) -> String {
    let header = found.header.unwrap_or_default();
    let line = |name: &str, value: String| vec![name.to_owned(), value];
    let mut lines = vec![
        line("epoch", output::count(header.epoch)),
        line("step", output::count(header.step) + if header.last { ", the rank's last" } else { "" }),
        line("position", output::count(header.position)),
        line("rows", output::count(header.rows)),
    ];
    if header.padding_rows > 0 {
        lines.push(line("padding rows", output::count(header.padding_rows)));
    }
    lines.push(line("snapshot", found.snapshot.clone()));
    lines.push(line("plan", found.plan_id.clone()));
    output::columns(&[Align::Left; 2], &lines)
}

fn rows(rows: &[ReplayRow]) -> String {
    use Align::{Left, Right};
    let is_mixture = rows.iter().any(|row| !row.dataset.is_empty());
    let names = ["FILE", "ROW GROUP", "ROW", "ROW ID", if is_mixture { "DATASET" } else { "" }, ""];
    let names = names.map(str::to_owned).to_vec();
    let line = |row: &ReplayRow| {
        // Without separators, for copying.
        let [row_group, in_group, row_id] = [row.row_group, row.row, row.row_id].map(|number| number.to_string());
        let padding = if row.padding { "padding" } else { "" }.to_owned();
        vec![row.file.clone(), row_group, in_group, row_id, row.dataset.clone(), padding]
    };
    let mut lines: Vec<_> = [names].into_iter().chain(rows.iter().map(line)).collect();
    let mut columns = vec![Left, Right, Right, Right, Left, Left];
    if !is_mixture {
        columns.remove(4);
        for line in &mut lines {
            line.remove(4);
        }
    }
    output::columns(&columns, &lines)
}

/// Writes the file after encoding the whole batch.
fn write_batch(path: &Path, batch: &Batch) -> Result<(), Failure> {
    let bytes = arrow_file(batch).map_err(Failure::Ipc)?;
    fs::write(path, bytes).map_err(|source| Failure::WriteFile { path: path.to_owned(), source })
}

fn arrow_file(batch: &Batch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = FileWriter::try_new(Vec::new(), &batch.data.schema())?;
    writer.write(&batch.data)?;
    writer.into_inner()
}

#[cfg(test)]
mod tests {
    use std::{io::Cursor, sync::Arc};

    use arrow::{
        array::{ArrayRef, Int64Array, RecordBatch},
        ipc::reader::FileReader,
    };
    use forebay_client::BatchHeader;

    use super::*;

    #[test]
    fn formats_a_line_per_row() {
        let row = |file: &str, row_id, padding| ReplayRow {
            file: file.into(),
            row_group: 3,
            row: 7,
            row_id,
            padding,
            ..Default::default()
        };
        let found = Found {
            header: Some(BatchHeader {
                epoch: 1,
                step: 2,
                position: 4096,
                rows: 2,
                padding_rows: 1,
                last: true,
                ..Default::default()
            }),
            rows: vec![row("part-0.parquet", 1007, false), row("b.parquet", 7, true)],
            snapshot: "5f3a".into(),
            plan_id: "7a".into(),
            ..Default::default()
        };
        assert_eq!(
            header(&found),
            "epoch         1\nstep          2, the rank's last\nposition      4,096\nrows          2\n\
             padding rows  1\nsnapshot      5f3a\nplan          7a\n"
        );
        assert_eq!(
            rows(&found.rows),
            "FILE            ROW GROUP  ROW  ROW ID\n\
             part-0.parquet          3    7    1007\n\
             b.parquet               3    7       7  padding\n"
        );
        let mixed = ["a", "bb"].map(|dataset| ReplayRow { dataset: dataset.into(), ..row("p", 1, false) });
        assert_eq!(
            rows(&mixed),
            "FILE  ROW GROUP  ROW  ROW ID  DATASET\n\
             p             3    7       1  a\n\
             p             3    7       1  bb\n"
        );
    }

    #[test]
    fn writes_a_batch_as_an_arrow_file() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let data = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let bytes = arrow_file(&Batch { header: BatchHeader::default(), data: data.clone(), body_bytes: 0 }).unwrap();
        let read: Vec<RecordBatch> =
            FileReader::try_new(Cursor::new(bytes), None).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, [data]);
    }
}
