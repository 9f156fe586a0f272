//! Pins the Python functions and tokenizers of a plan to digests, which become part of the plan.

use std::{collections::BTreeMap, sync::Arc};

use forebay_columns::{
    images::ImagePool,
    tokenizers::{NamedTokenizer, TokenColumn, TokensError, check_patterns},
    udf::UdfError,
};
use forebay_media::{ImageDecoder, ImageProblem, Tokenizer, TokenizerError};
use forebay_plan::{PlanError, TokenizeCall};
use forebay_proto::v1;

use crate::{environment::Environment, error::StreamError, rows::functions::PlanFunctions};

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
    for (call, path) in forebay_plan::udf_calls(plan)? {
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
        forebay_plan::pin_udfs(plan, |name| functions.functions.get(name).map(|function| function.digest()));
    }
    functions.tokens = pin_tokenizers(environment, plan).await?;
    functions.images = image_pool(environment, plan)?;
    Ok(functions)
}

/// Pins every named tokenizer that the plan leaves open to its current digest.
async fn pin_tokenizers(
    environment: &Environment,
    plan: &mut v1::Plan,
) -> Result<BTreeMap<String, TokenColumn>, StreamError> {
    let (mut columns, mut digests) = (BTreeMap::new(), BTreeMap::new());
    for (call, path) in forebay_plan::tokenize_calls(plan)? {
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
    forebay_plan::pin_tokenizers(plan, |name| digests.get(name).map(String::as_str));
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

/// The threads that decode the images of a plan; none if it has none.
fn image_pool(environment: &Environment, plan: &v1::Plan) -> Result<Option<ImagePool>, PlanError> {
    let calls = forebay_plan::decode_image_calls(plan)?;
    let Some((_, path)) = calls.first() else { return Ok(None) };
    if !ImageDecoder::IS_BUILT {
        return Err(PlanError::field(path, ImageProblem::NotBuilt.to_string()));
    }
    Ok(Some(environment.images.clone()))
}
