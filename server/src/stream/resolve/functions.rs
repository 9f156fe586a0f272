//! The Python functions and tokenizers of a plan: pinned to digests, which become part of the plan, and the columns that
//! they and the decoders of images compute.

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};
use forebay_kernels::{TextEncoder, Tokenizer, TokenizerError, is_text};
use forebay_proto::v1;

use super::{
    function_column::{Computation, FunctionColumn},
    function_names::{argument_field, check_name},
    image_columns,
};
use crate::{
    catalog::{RowGroup, Snapshot},
    images::ImagePool,
    plan::{self, PlanError, TokenizeCall, UdfCall},
    stream::{environment::Environment, error::StreamError},
    tokenizers::{NamedTokenizer, TokenColumn, TokensError, check_patterns},
    udf::{Function, UdfError},
};

/// The functions of a plan by name, and the columns of its tokenizers by the name of the column.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanFunctions {
    functions: BTreeMap<String, Arc<Function>>,
    tokens: BTreeMap<String, TokenColumn>,
    /// The threads that decode images; none: the plan has none.
    images: Option<ImagePool>,
}

/// Pins the functions of a plan to their digests, and returns them.
pub(crate) async fn with_functions(
    environment: &Environment,
    mut plan: v1::Plan,
) -> Result<(v1::Plan, PlanFunctions), StreamError> {
    let functions = pin_functions(environment, &mut plan).await?;
    Ok((plan, functions))
}

/// Pins every function that the plan leaves open to its current digest.
pub(crate) async fn pin_functions(
    environment: &Environment,
    plan: &mut v1::Plan,
) -> Result<PlanFunctions, StreamError> {
    let mut functions = PlanFunctions::default();
    for (call, path) in plan::udf_calls(plan)? {
        let function = if let Some(known) = functions.functions.get(&call.name) {
            Arc::clone(known)
        } else {
            let described = environment.udfs.describe(&call.name).await;
            Arc::new(described.map_err(|error| of_description(error, &path))?)
        };
        if !call.digest.is_empty() && call.digest != function.digest() {
            let found = format!("its digest is {}", function.digest());
            let source = UdfError::Changed { name: call.name, expected: call.digest, found };
            return Err(StreamError::Udf { place: path, source });
        }
        functions.functions.insert(call.name, function);
    }
    if !functions.is_empty() {
        plan::pin_udfs(plan, |name| functions.functions.get(name).map(|function| function.digest()));
    }
    functions.tokens = pin_tokenizers(environment, plan).await?;
    functions.images = image_columns::pool(environment, plan)?;
    Ok(functions)
}

/// Pins every named tokenizer that the plan leaves open to its current digest.
async fn pin_tokenizers(
    environment: &Environment,
    plan: &mut v1::Plan,
) -> Result<BTreeMap<String, TokenColumn>, StreamError> {
    let (mut columns, mut digests) = (BTreeMap::new(), BTreeMap::new());
    for (call, path) in plan::tokenize_calls(plan)? {
        if !Tokenizer::IS_BUILT {
            return Err(PlanError::field(path, TokenizerError::NotBuilt.to_string()).into());
        }
        let named = if call.op.json.is_empty() { Some(named_tokenizer(environment, &call, &path)?) } else { None };
        if let Some(named) = &named {
            digests.insert(call.op.tokenizer.clone(), named.digest().to_owned());
        }
        let (name, column, fill) = (call.column(), call.column.clone(), call.fill.as_deref().map(Arc::from));
        // Parsing a vocabulary, and copying it for another length, is work.
        let encoder = environment.cpu.run(move || {
            let encoder = |tokenizer: &Tokenizer| tokenizer.encoder(call.tokenization());
            match named {
                Some(named) => encoder(named.tokenizer()).map_err(|error| (".max_length", error)),
                None => check_patterns(call.op.json.as_bytes())
                    .and_then(|()| Tokenizer::parse(call.op.json.as_bytes()))
                    .map_err(|error| (".json", error))
                    .and_then(|tokenizer| encoder(&tokenizer).map_err(|error| (".max_length", error))),
            }
        });
        let encoder =
            encoder.await?.map_err(|(field, error)| PlanError::field(format!("{path}{field}"), error.to_string()))?;
        let cpu = environment.cpu.clone();
        columns.insert(name, TokenColumn { column, encoder: Arc::new(encoder), fill, cpu });
    }
    plan::pin_tokenizers(plan, |name| digests.get(name).map(String::as_str));
    Ok(columns)
}

/// The tokenizer that a call names, if it is the one that the plan was made with.
fn named_tokenizer(environment: &Environment, call: &TokenizeCall, path: &str) -> Result<NamedTokenizer, StreamError> {
    let (name, expected) = (&call.op.tokenizer, &call.op.digest);
    let named = environment.tokenizers.get(name);
    let named = named.map_err(|error| PlanError::field(format!("{path}.tokenizer"), error.to_string()))?;
    if !expected.is_empty() && expected != named.digest() {
        let (name, expected, found) = (name.clone(), expected.clone(), named.digest().to_owned());
        let source = TokensError::Changed { name, expected, found };
        return Err(StreamError::Tokens { place: path.to_owned(), source });
    }
    Ok(named)
}

/// The error of a function that cannot be described. A client may correct its name.
fn of_description(error: UdfError, path: &str) -> StreamError {
    match error {
        UdfError::Unknown { .. } => PlanError::field(format!("{path}.name"), error.to_string()).into(),
        source => StreamError::Udf { place: path.to_owned(), source },
    }
}

/// The place of rows in errors of functions.
pub(crate) fn place_of(snapshot: &Snapshot, row_group: &RowGroup) -> String {
    format!("file \"{}\", row group {}", snapshot.file_of(row_group).display(), row_group.index_in_file)
}

// === impl PlanFunctions ===

impl PlanFunctions {
    /// Returns whether the plan has no functions.
    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.tokens.is_empty() && self.images.is_none()
    }

    /// Checks the calls of a plan against the columns that they may read.
    pub(super) fn columns(&self, plan: &v1::Plan, schema: &Schema) -> Result<Vec<FunctionColumn>, StreamError> {
        let mut columns: Vec<FunctionColumn> = Vec::new();
        for (call, path) in plan::udf_calls(plan)? {
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
        for (call, path) in plan::tokenize_calls(plan)? {
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
