//! Checks a plan on a dataset from types and footers: the types of its outputs, nulls, and what a fit would learn.

mod nulls;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use forebay_catalog::Snapshot;
use forebay_kernels::Program;
use forebay_plan::{Question, Tables};
use forebay_proto::v1::{self, op::Op as OpMessage};

use super::{
    describe::type_name,
    environment::Environment,
    error::StreamError,
    fit::dry_run::{DryRun, dry_run},
    prepare::{drift::FittedColumns, functions::with_functions, lookup::with_tables},
    rows::{
        expressions::{Expressions, RowsOf},
        history::rows::derivation,
    },
};

/// Checks a plan on the current files of a dataset.
pub(super) async fn check(
    environment: &Environment,
    dataset: &str,
    sent: v1::Plan,
) -> Result<v1::PlanCheck, StreamError> {
    forebay_plan::check_shape(&sent)?;
    let snapshot = environment.catalog.dataset(dataset)?.present().await?;
    let pinned = with_tables(environment, forebay_plan::canonical(&sent)).await;
    let (plan, tables) = pinned.map_err(|error| error.in_original(&sent))?;
    let pinned = with_functions(environment, plan).await;
    let (plan, functions) = pinned.map_err(|error| error.in_original(&sent))?;
    let checked = environment.cpu.run(move || {
        let stored = snapshot.wide_schema();
        let plan = forebay_plan::of_snapshot(&plan, snapshot.digest(), None);
        let expressions =
            |schema: &Schema| Expressions::compile(&plan, schema, (&tables, &functions), RowsOf::sample(None));
        let fitted = FittedColumns::of(&plan);
        let checked = || {
            let compiled = expressions(stored)?;
            fitted.check_units(&compiled.schema)?;
            let narrowed = nulls::without_absent(stored, &snapshot, &compiled);
            // Derived columns have no nulls where the columns that they read have none.
            let compiled = expressions(&narrowed)?;
            let run = dry_run(&plan, &compiled.chain_schema, &tables).map_err(|error| error.in_original(&sent))?;
            let columns = run.program.input_columns().iter().map(AsRef::as_ref);
            let read = derivation(stored, &compiled, columns, false)?.0.input;
            fitted.check(&read)?;
            of_run(&snapshot, (&compiled, &read), &run, &tables)
        };
        checked().map_err(|error| fitted.explain(error, stored))
    });
    checked.await?
}

fn of_run(
    snapshot: &Arc<Snapshot>,
    (expressions, input): (&Expressions, &Schema),
    run: &DryRun,
    tables: &Tables,
) -> Result<v1::PlanCheck, StreamError> {
    let read = nulls::of_chains(expressions);
    let null_columns = nulls::refused(
        &forebay_plan::output_specs(&run.plan, &read, tables)?,
        &forebay_plan::chain_schema(&run.plan, &read)?,
    );
    let of_question = |pass: usize, question: &Question| v1::LearnedStatistic {
        output: run.plan.outputs.get(question.output()).map(|output| output.name.clone()).unwrap_or_default(),
        column: question.column.clone(),
        op: question.op_name().to_owned(),
        statistic: question.statistic.words(),
        pass: pass as u64 + 1,
    };
    let passes = run.passes.iter().enumerate();
    Ok(v1::PlanCheck {
        dataset: snapshot.dataset().to_owned(),
        snapshot: snapshot.digest().to_owned(),
        columns: input.fields().iter().map(|field| field.name().clone()).collect(),
        outputs: outputs(run, null_columns)?,
        learns: passes.flat_map(|(pass, questions)| questions.iter().map(move |one| of_question(pass, one))).collect(),
        passes: run.passes.len() as u64,
    })
}

/// The columns of a batch; for a plan that packs, those of its sequences.
fn outputs(run: &DryRun, null_columns: Vec<Vec<String>>) -> Result<Vec<v1::CheckedOutput>, StreamError> {
    let packed = packed_program(run)?;
    let schema = packed.as_ref().map_or_else(|| run.program.schema(), Program::schema);
    let mut null_columns = null_columns.into_iter();
    let output = |(position, field): (usize, &Arc<Field>)| {
        let (kind, width) = value(field);
        let is_open = packed.is_none() && has_open_width(run, position);
        v1::CheckedOutput {
            name: field.name().clone(),
            r#type: kind,
            width: width.filter(|_| !is_open),
            nullable: field.is_nullable(),
            null_columns: null_columns.next().unwrap_or_default(),
        }
    };
    Ok(schema.fields().iter().enumerate().map(output).collect())
}

fn packed_program(run: &DryRun) -> Result<Option<Program>, StreamError> {
    if !forebay_plan::packs(&run.plan) {
        return Ok(None);
    }
    Ok(forebay_plan::packed_output(&run.plan, &run.program, false)?.map(|(_, program)| program))
}

/// The type of a field's values, and how many a row has.
fn value(field: &Field) -> (String, Option<u64>) {
    let is_tensor = field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "arrow.fixed_shape_tensor");
    match field.data_type() {
        DataType::FixedSizeList(item, width) if is_tensor => (type_name(item.data_type()), u64::try_from(*width).ok()),
        list @ (DataType::List(_) | DataType::LargeList(_)) => (type_name(list), None),
        other => (type_name(other), Some(1)),
    }
}

/// Whether a fit determines the width of an output: that of indices that it learns.
fn has_open_width(run: &DryRun, position: usize) -> bool {
    let is_learned = run.passes.iter().flatten().any(|question| question.output() == position);
    let ops = run.plan.outputs.get(position).into_iter().flat_map(|output| &output.parts).flat_map(|part| &part.ops);
    let mut ops = ops.filter_map(|op| op.op.as_ref());
    is_learned
        && ops.any(|op| match op {
            OpMessage::OneHot(message) => message.size == 0,
            OpMessage::MultiHot(message) => message.size == 0,
            _ => false,
        })
}
