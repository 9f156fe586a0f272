//! The columns that the Python functions, tokenizers and decoders of images of a plan compute, checked against the columns
//! that they may read.

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};
use forebay_columns::{images::ImagePool, tokenizers::TokenColumn, udf::Function};
use forebay_media::{TextEncoder, is_text};
use forebay_plan::{PlanError, UdfCall};
use forebay_proto::v1;

use super::{
    function_column::{Computation, FunctionColumn},
    function_names::{argument_field, check_name},
    image_columns,
};
use crate::error::StreamError;

/// The functions of a plan by name, and the columns of its tokenizers by the name of the column.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanFunctions {
    pub functions: BTreeMap<String, Arc<Function>>,
    pub tokens: BTreeMap<String, TokenColumn>,
    /// The threads that decode images; none: the plan has none.
    pub images: Option<ImagePool>,
}

// === impl PlanFunctions ===

impl PlanFunctions {
    /// Returns whether the plan has no functions.
    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.tokens.is_empty() && self.images.is_none()
    }

    /// Checks the calls of a plan against the columns that they may read.
    pub(crate) fn columns(&self, plan: &v1::Plan, schema: &Schema) -> Result<Vec<FunctionColumn>, StreamError> {
        let mut columns: Vec<FunctionColumn> = Vec::new();
        for (call, path) in forebay_plan::udf_calls(plan)? {
            let name = call.column();
            // The same call with and without a digest is one call.
            if columns.iter().any(|known| *known.field.name() == name) {
                continue;
            }
            check_name(&name, schema, &path)?;
            let function = self
                .functions
                .get(&call.name)
                .ok_or_else(|| PlanError::field(&path, "the function was not described"))?;
            check_arguments(function, &call, schema, &path)?;
            let field = Arc::new(Field::new(name, function.data_type().clone(), true));
            let computation = Computation::Function(Arc::clone(function));
            columns.push(FunctionColumn { field, arguments: call.arguments, computation });
        }
        for (call, path) in forebay_plan::tokenize_calls(plan)? {
            let name = call.column();
            if columns.iter().any(|known| *known.field.name() == name) {
                continue;
            }
            check_name(&name, schema, &path)?;
            let tokens = self.tokens.get(&name).ok_or_else(|| PlanError::field(&path, "the tokenizer was not read"))?;
            check_text(&call.column, schema, &path)?;
            let field = Arc::new(Field::new(name, TextEncoder::data_type(), true));
            let computation = Computation::Tokens(tokens.clone());
            columns.push(FunctionColumn { field, arguments: vec![call.column], computation });
        }
        image_columns::add_columns(self.images.as_ref(), plan, schema, &mut columns)?;
        Ok(columns)
    }
}

/// Rejects a column that is not text.
fn check_text(column: &str, schema: &Schema, path: &str) -> Result<(), PlanError> {
    let data_type = argument_field(column, schema, path)?.data_type();
    if is_text(data_type) {
        return Ok(());
    }
    let advice = match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytes are not text until they are decoded: derive a column with arrow_cast(column, 'Utf8'), which rejects bytes \
             that are not UTF-8"
        }
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Struct(_)
        | DataType::Map(..)
        | DataType::Union(..) => {
            "lists and structs are not text: store the text in a separate column, such as a chat that its template has \
             rendered, or derive one from a field of a struct with get_field(column, 'name')"
        }
        _ => "derive a column of text from it with CAST(column AS VARCHAR)",
    };
    Err(PlanError::field(path, format!("a tokenizer reads text, and column \"{column}\" is {data_type}: {advice}")))
}

fn check_arguments(function: &Function, call: &UdfCall, schema: &Schema, path: &str) -> Result<(), PlanError> {
    let declared = function.arguments().fields();
    if declared.len() != call.arguments.len() {
        let listed: Vec<String> =
            declared.iter().map(|field| format!("{}: {}", field.name(), field.data_type())).collect();
        let reason = format!(
            "function \"{}\" has {} argument(s) ({}), and the op has {}: the column of its part, then its columns",
            call.name,
            declared.len(),
            listed.join(", "),
            call.arguments.len()
        );
        return Err(PlanError::field(format!("{path}.columns"), reason));
    }
    for (column, argument) in call.arguments.iter().zip(declared) {
        let field = argument_field(column, schema, path)?;
        if !Function::accepts(field.data_type(), argument.data_type()) {
            let reason = format!(
                "argument \"{}\" of function \"{}\" is {}, and column \"{column}\" is {}: derive a column with CAST, or \
                 declare another type",
                argument.name(),
                call.name,
                argument.data_type(),
                field.data_type()
            );
            return Err(PlanError::field(path, reason));
        }
    }
    Ok(())
}
