//! `forebay schema DATASET`: the stored columns.

use arrow::datatypes::{Field, Schema as ArrowSchema};
use clap::Args;
use serde_json::json;

use super::{
    failure::Failure,
    output::{self, Align},
    session::Session,
};

/// Show the columns of a dataset: name, type, nullability
#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Name of the dataset on the server
    dataset: String,
}

impl Schema {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = session.client.table_info(&self.dataset).await?;
        if !table.info.error.is_empty() {
            return Err(Failure::Unreadable { dataset: self.dataset, reason: table.info.error });
        }
        output::write(&if session.json { json(&table.schema) } else { text(&table.schema) })
    }
}

fn json(schema: &ArrowSchema) -> String {
    let field = |field: &Field| {
        json!({"name": field.name(), "type": field.data_type().to_string(), "nullable": field.is_nullable()})
            .to_string()
    };
    let fields: Vec<String> = schema.fields().iter().map(|one| field(one)).collect();
    format!("[{}]\n", fields.join(",\n "))
}

fn text(schema: &ArrowSchema) -> String {
    let names = ["COLUMN", "TYPE", "NULLABLE"].map(str::to_owned).to_vec();
    let row = |field: &Field| {
        let nullable = if field.is_nullable() { "yes" } else { "no" };
        vec![field.name().clone(), field.data_type().to_string(), nullable.to_owned()]
    };
    let rows: Vec<_> = [names].into_iter().chain(schema.fields().iter().map(|field| row(field))).collect();
    output::columns(&[Align::Left, Align::Left, Align::Left], &rows)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn formats_columns_as_text_and_json() {
        let fields = vec![Field::new("carrier", DataType::Utf8, false), Field::new("delay", DataType::Float64, true)];
        let schema = ArrowSchema::new(fields);
        assert_eq!(text(&schema), "COLUMN   TYPE     NULLABLE\ncarrier  Utf8     no\ndelay    Float64  yes\n");
        let parsed: serde_json::Value = serde_json::from_str(&json(&schema)).unwrap();
        assert_eq!(parsed[1], json!({"name": "delay", "type": "Float64", "nullable": true}));
    }
}
