//! `forebay ls`: lists a server's datasets.

use forebay_client::{DatasetInfo, Table};

use super::{
    failure::Failure,
    output::{self, Align},
    session::Session,
};

/// Lists every dataset, an unreadable one with the reason.
pub(crate) async fn run(session: &Session) -> Result<(), Failure> {
    let tables = session.client.list().await?;
    let datasets: Vec<DatasetInfo> = tables.into_iter().map(|table: Table| table.info).collect();
    output::write(&if session.json { json(&datasets) } else { text(&datasets) })
}

fn json(datasets: &[DatasetInfo]) -> String {
    let datasets: Vec<String> = datasets.iter().map(forebay_proto::to_json).collect();
    format!("[{}]\n", datasets.join(",\n "))
}

fn text(datasets: &[DatasetInfo]) -> String {
    use Align::{Left, Right};
    let names = ["DATASET", "ROWS", "SIZE", "FILES", "ROW GROUPS", "SNAPSHOT"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = [names].into_iter().chain(datasets.iter().map(row)).collect();
    output::columns(&[Left, Right, Right, Right, Right, Left], &rows)
}

fn row(dataset: &DatasetInfo) -> Vec<String> {
    let name = dataset.name.clone();
    if !dataset.error.is_empty() {
        return vec![name, format!("error: {}", dataset.error)];
    }
    let mut snapshot = dataset.snapshot.clone();
    if !dataset.table_version.is_empty() {
        snapshot = format!("{snapshot} (version {})", dataset.table_version);
    }
    vec![
        name,
        dataset.rows.to_string(),
        output::bytes(dataset.bytes),
        dataset.files.to_string(),
        dataset.row_groups.to_string(),
        snapshot,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_an_unreadable_dataset_with_the_reason() {
        let flights = DatasetInfo {
            name: "flights".into(),
            snapshot: "5f3a".into(),
            files: 2,
            row_groups: 4,
            rows: 336_776,
            bytes: 5_242_880,
            error: String::new(),
            table_version: "12".into(),
        };
        let broken = DatasetInfo { name: "broken".into(), error: "no Parquet files".into(), ..Default::default() };
        let datasets = [broken, flights];
        assert_eq!(
            text(&datasets),
            "DATASET    ROWS     SIZE  FILES  ROW GROUPS  SNAPSHOT\n\
             broken   error: no Parquet files\n\
             flights  336776  5.0 MiB      2           4  5f3a (version 12)\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json(&datasets)).unwrap();
        assert_eq!(parsed[0]["error"], "no Parquet files");
        assert_eq!((&parsed[1]["row_groups"], &parsed[1]["error"]), (&4.into(), &"".into()));
        assert_eq!(json(&[]), "[]\n");
    }
}
