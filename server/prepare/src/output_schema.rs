//! The schema of the result as it is written.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    datatypes::{FieldRef, Schema, SchemaRef},
};
use datafusion::error::DataFusionError;
use forebay_expr::QueryError;
use forebay_written::{check_stored, exactly};

use crate::error::PrepareError;

/// The schema of the files, or an error that names a column whose type Parquet cannot store.
pub(crate) fn written(schema: &Schema) -> Result<SchemaRef, PrepareError> {
    let fields: Vec<FieldRef> = schema.fields().iter().map(forebay_written::written).collect();
    for field in &fields {
        if let Err(error) = check_stored(field) {
            let (name, kind) = (field.name(), field.data_type());
            let reason = format!("Parquet cannot store the column \"{name}\" of type {kind}: cast it ({error})");
            return Err(QueryError::of_query(reason).into());
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Converts a batch of the query to the schema of the files.
pub(crate) fn convert(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataFusionError> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| exactly(column, field));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, StringViewArray},
        datatypes::{DataType, Field, IntervalUnit},
    };

    use super::*;

    #[test]
    fn views_become_plain_text() {
        let schema = Schema::new(vec![Field::new("text", DataType::Utf8View, true)]);
        let written = written(&schema).unwrap();
        assert_eq!(written.field(0).data_type(), &DataType::Utf8);
        let column = StringViewArray::from(vec![Some("a text longer than a view holds inline"), None]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(column)]).unwrap();
        let converted = convert(&batch, &written).unwrap();
        assert_eq!(converted.column(0).null_count(), 1);
        assert_eq!(converted.schema(), written);
    }

    #[test]
    fn a_type_that_parquet_lacks_is_named() {
        let kind = DataType::Interval(IntervalUnit::MonthDayNano);
        let error = written(&Schema::new(vec![Field::new("age", kind, true)])).unwrap_err();
        assert!(error.to_string().contains("\"age\""), "{error}");
    }
}
