//! Windows: the field `window` of a request, and the outputs of a plan as parts of them.

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, RecordBatchOptions, new_null_array},
    datatypes::Schema,
};
use forebay_kernels::{BatchBuilder, Program, WindowPart, Windowing};
use forebay_order::series::WindowShape;
use forebay_proto::v1::{self, window::Incomplete};

use super::{by::check_by, error::PlanError, lookup::Tables, outputs::compile, pack::LENGTH_MAX};

/// The windows of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// The columns of the series.
    pub by: Vec<String>,
    /// The column that orders the rows of a series.
    pub order: String,
    /// Which rows of a series each window has.
    pub shape: WindowShape,
}

/// A plan whose rows become windows.
#[derive(Clone, Debug)]
pub struct WindowedOutputs {
    /// Makes the windows.
    pub windowing: Arc<Windowing>,
    /// Computes the rows that they are made of.
    pub rows: Arc<Program>,
    /// The row before a series; none if windows are not padded.
    pub padding: Option<RecordBatch>,
}

impl Windows {
    /// The windows of a request; none if its rows stay rows.
    pub fn check(message: &v1::StreamRequest) -> Result<Option<Self>, PlanError> {
        let Some(window) = &message.window else { return Ok(None) };
        let others = [
            ("group_by", !message.group_by.is_empty(), "a window has rows of one series: filter instead"),
            ("balance", message.balance.is_some(), "classes are of rows, and a window has several"),
            ("sample", message.sample.is_some_and(|share| share < 1.0), "series would have gaps: use a larger stride"),
            ("sources", !message.sources.is_empty(), "a mixture has rows"),
        ];
        if let Some((field, _, reason)) = others.iter().find(|(_, is_set, _)| *is_set) {
            return Err(PlanError::field("window", format!("cannot be combined with {field}: {reason}")));
        }
        if window.order.is_empty() {
            let reason = "missing: expected the column that orders the rows of a series, such as a time";
            return Err(PlanError::field("window.order", reason));
        }
        if window.length == 0 || window.length > LENGTH_MAX {
            return Err(PlanError::field("window.length", format!("expected 1 to {LENGTH_MAX} past rows")));
        }
        if window.horizon > LENGTH_MAX {
            return Err(PlanError::field("window.horizon", format!("expected at most {LENGTH_MAX} future rows")));
        }
        let is_padded = match Incomplete::try_from(window.incomplete) {
            Ok(Incomplete::Drop) => false,
            Ok(Incomplete::Pad) => true,
            Err(_) => return Err(PlanError::field("window.incomplete", "expected DROP or PAD")),
        };
        check_by(&window.by, Some(&window.order), "window")?;
        let (length, horizon) = (u64::from(window.length), u64::from(window.horizon));
        let shape = WindowShape { length, horizon, stride: u64::from(window.stride.max(1)), is_padded };
        Ok(Some(Self { by: window.by.clone(), order: window.order.clone(), shape }))
    }

    /// The outputs of a plan as parts of windows, whose rows `rows` computes, and the program of the windows.
    pub fn outputs(
        &self,
        plan: &v1::Plan,
        rows: &Arc<Program>,
        schema: &Schema,
        tables: &Tables,
    ) -> Result<(WindowedOutputs, Program), PlanError> {
        let mut parts = Vec::with_capacity(rows.schema().fields().len());
        for (index, output) in plan.outputs.iter().enumerate() {
            if output.pack.is_some() {
                let reason = "cannot be combined with windows: a sequence is not of one series";
                return Err(PlanError::field(format!("plan.outputs[{index}].pack"), reason));
            }
            parts.push(part_of(output, index)?);
            if self.shape.horizon == 0 && parts[index] == WindowPart::Future {
                let reason = "FUTURE needs a window with a horizon";
                return Err(PlanError::field(format!("plan.outputs[{index}].part"), reason));
            }
        }
        // Boxes of images and the row's id.
        parts.resize(rows.schema().fields().len(), WindowPart::Static);
        let shape = (self.shape.length as usize, self.shape.horizon as usize);
        let compiled = Windowing::compile(rows, &parts, shape);
        let (windowing, program) = compiled.map_err(|error| PlanError::of_outputs(error, schema))?;
        let padding = if self.shape.is_padded { padding(plan, schema, tables)? } else { None };
        Ok((WindowedOutputs { windowing: Arc::new(windowing), rows: Arc::clone(rows), padding }, program))
    }
}

/// Checks that no output of a plan is a part of windows that the request does not make.
pub fn check_no_parts(plan: &v1::Plan) -> Result<(), PlanError> {
    for (index, output) in plan.outputs.iter().enumerate() {
        if part_of(output, index)? != WindowPart::Past {
            let reason = "is a part of windows, and the request makes none: set its window";
            return Err(PlanError::field(format!("plan.outputs[{index}].part"), reason));
        }
    }
    Ok(())
}

fn part_of(output: &v1::Output, index: usize) -> Result<WindowPart, PlanError> {
    match v1::WindowPart::try_from(output.part) {
        Ok(v1::WindowPart::Past) => Ok(WindowPart::Past),
        Ok(v1::WindowPart::Future) => Ok(WindowPart::Future),
        Ok(v1::WindowPart::Static) => Ok(WindowPart::Static),
        Err(_) => Err(PlanError::field(format!("plan.outputs[{index}].part"), "expected one of PAST, FUTURE, STATIC")),
    }
}

/// The outputs of past rows that a row of nulls has; none without such outputs.
fn padding(plan: &v1::Plan, schema: &Schema, tables: &Tables) -> Result<Option<RecordBatch>, PlanError> {
    let is_past = |output: &&v1::Output| output.part == v1::WindowPart::Past as i32;
    let outputs: Vec<v1::Output> = plan.outputs.iter().filter(is_past).cloned().collect();
    if outputs.is_empty() {
        return Ok(None);
    }
    let plan = v1::Plan { outputs, ..plan.clone() };
    let program = Arc::new(compile(&plan, schema, false, tables)?);
    let read = super::chain_schema(&plan, schema)?;
    let fields = read.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let read = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let nulls = read.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(read, nulls, &options);
    let computed = row.map_err(|error| error.to_string()).and_then(|row| {
        let mut builder = BatchBuilder::new(program, 1);
        builder.append(&row, 0..1).and_then(|()| builder.finish()).map_err(|error| error.to_string())
    });
    let error = |error: String| {
        PlanError::field(
            "window.incomplete",
            format!("PAD puts rows of nulls before a series, so that fill_null must give them values: {error}"),
        )
    };
    computed.map(Some).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(change: impl FnOnce(&mut v1::Window)) -> v1::StreamRequest {
        let mut window =
            v1::Window { by: vec!["k".into()], order: "ts".into(), length: 4, horizon: 1, ..Default::default() };
        change(&mut window);
        v1::StreamRequest { window: Some(window), ..Default::default() }
    }

    #[test]
    fn a_request_has_the_shape_of_its_windows() {
        assert_eq!(Windows::check(&v1::StreamRequest::default()).unwrap(), None);
        let found = Windows::check(&window(|window| window.incomplete = Incomplete::Pad.into())).unwrap().unwrap();
        let shape = WindowShape { length: 4, horizon: 1, stride: 1, is_padded: true };
        assert_eq!(found, Windows { by: vec!["k".into()], order: "ts".into(), shape });
    }

    #[test]
    fn wrong_windows_name_the_field() {
        let field = |message: &v1::StreamRequest| {
            let error = Windows::check(message).unwrap_err().to_string();
            error.split_once(':').unwrap().0.to_owned()
        };
        assert_eq!(field(&window(|window| window.order.clear())), "window.order");
        assert_eq!(field(&window(|window| window.length = 0)), "window.length");
        assert_eq!(field(&window(|window| window.length = LENGTH_MAX + 1)), "window.length");
        assert_eq!(field(&window(|window| window.horizon = LENGTH_MAX + 1)), "window.horizon");
        assert_eq!(field(&window(|window| window.incomplete = 9)), "window.incomplete");
        assert_eq!(field(&window(|window| window.by.push("k".into()))), "window.by[1]");
        assert_eq!(field(&window(|window| window.by.push("ts".into()))), "window.by[1]");
        let balance = Some(v1::Balance { by: "k".into(), ..Default::default() });
        assert_eq!(field(&v1::StreamRequest { balance, ..window(|_| ()) }), "window");
    }
}
