//! Bytes → a request: each byte selects among the valid options of a part, so that most plans run.

use arbitrary::Result;
use forebay_proto::v1;

use super::{
    ops::op,
    values::{Bytes, DERIVED_NAME, KEYS, TABLES, column, maybe, number},
};

/// Filters; none in half of the choices.
const FILTERS: [&str; 8] = ["", "", "", "", "flag", "id % 3 = 1", "amount IS NOT NULL AND name > 'k'", "false"];

/// Derived columns.
const DERIVED: [&str; 6] =
    ["amount / 2", "id - 100", "upper(name)", "flag AND ratio > 0.2", "CAST(price AS DOUBLE)", "ids"];

/// The column in whose order the rows are.
const ORDER: &str = "id";

/// A request over the table `t`.
pub(super) fn request(bytes: Bytes<'_, '_>) -> Result<v1::StreamRequest> {
    let shuffle = bytes.ratio(1_u8, 2)?;
    Ok(v1::StreamRequest {
        dataset: "t".to_owned(),
        batch_size: Some(*bytes.choose(&[32, 1, 7, 100, 1024, 1 << 20])?),
        world_size: Some(*bytes.choose(&[1, 2, 3, 16])?),
        shuffle,
        seed: bytes.arbitrary::<u8>()?.into(),
        window_rows: Some(*bytes.choose(&[16, 1, 64, 16_384])?),
        remainder: bytes.int_in_range(0..=2)?,
        with_row_ids: bytes.ratio(1_u8, 4)?,
        plan: Some(plan(bytes)?),
        sample: *bytes.choose(&[None, Some(0.5), Some(1e-3), Some(2.0)])?,
        sample_seed: bytes.arbitrary::<u8>()?.into(),
        ..v1::StreamRequest::default()
    })
}

fn plan(bytes: Bytes<'_, '_>) -> Result<v1::Plan> {
    let filter = (*bytes.choose(&FILTERS)?).to_owned();
    let derive = v1::Derive { name: DERIVED_NAME.to_owned(), expr: (*bytes.choose(&DERIVED)?).to_owned() };
    let outputs = (0..bytes.int_in_range(1..=3)?).map(|number| output(bytes, number)).collect::<Result<_>>()?;
    let join = maybe(bytes, join)?.into_iter().collect();
    let history = if bytes.ratio(1_u8, 2)? { Some(history(bytes)?) } else { None };
    Ok(v1::Plan { filter, derive: vec![derive], outputs, join, history, ..v1::Plan::default() })
}

fn history(bytes: Bytes<'_, '_>) -> Result<v1::History> {
    let by = if bytes.ratio(1_u8, 3)? { vec![column(bytes)?] } else { Vec::new() };
    let order = if bytes.ratio(1_u8, 4)? { column(bytes)? } else { ORDER.to_owned() };
    Ok(v1::History { by, order })
}

fn output(bytes: Bytes<'_, '_>, number: u8) -> Result<v1::Output> {
    // One more than the last dtype: none.
    let dtype = Some(bytes.int_in_range(0..=9)?).filter(|dtype| *dtype < 9);
    let parts = (0..bytes.int_in_range(1..=2)?).map(|_| part(bytes)).collect::<Result<_>>()?;
    Ok(v1::Output { name: format!("o{number}"), dtype, parts, ..v1::Output::default() })
}

fn part(bytes: Bytes<'_, '_>) -> Result<v1::Part> {
    let columns = (0..bytes.int_in_range(1..=2)?).map(|_| column(bytes)).collect::<Result<_>>()?;
    let ops = (0..bytes.int_in_range(0..=4)?).map(|_| op(bytes)).collect::<Result<_>>()?;
    Ok(v1::Part { columns, ops })
}

fn join(bytes: Bytes<'_, '_>) -> Result<v1::Join> {
    let mut name = |names: &[&str]| Ok((*bytes.choose(names)?).to_owned());
    let (table, key) = (name(&TABLES)?, name(&KEYS)?);
    let columns = vec![name(&KEYS)?];
    let prefix = (*bytes.choose(&["", "j_"])?).to_owned();
    let as_of = if bytes.ratio(1_u8, 2)? { Some(as_of(bytes)?) } else { None };
    Ok(v1::Join { table, on: column(bytes)?, key, columns, prefix, snapshot: String::new(), as_of })
}

fn as_of(bytes: Bytes<'_, '_>) -> Result<v1::AsOf> {
    let tolerance_seconds = if bytes.ratio(1_u8, 3)? { Some(number(bytes)?) } else { None };
    Ok(v1::AsOf { left: column(bytes)?, right: column(bytes)?, allow_exact: bytes.arbitrary()?, tolerance_seconds })
}
