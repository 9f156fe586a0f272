//! Decimals too long for a double, as a fit counts them: with all their digits, and their nulls filled.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray},
    compute::take,
    datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType, i256},
    error::ArrowError,
};

use crate::{
    compile::chain::{CompiledChain, Head},
    ops::{
        decimal::{self, Decimals},
        exact_decimal::rescaled,
        fill_null::Fill,
    },
};

/// Distinct decimals of up to this many digits have distinct doubles.
const DOUBLE_DIGITS: u8 = 15;

const DECIMAL_128_DIGITS: i32 = 38;
const DECIMAL_256_DIGITS: i32 = 76;

/// The type that holds the chain's decimals, if they are too long for a double, and the value that fills their nulls.
/// `None` for other chains, and if no type holds both.
pub(super) fn exact_type(chain: &CompiledChain) -> Option<DataType> {
    let (DataType::Decimal32(precision, scale)
    | DataType::Decimal64(precision, scale)
    | DataType::Decimal128(precision, scale)
    | DataType::Decimal256(precision, scale)) = chain.meaning
    else {
        return None;
    };
    let is_found = matches!(&chain.head, Head::Joined(joined) if joined.decimals.is_some());
    if precision <= DOUBLE_DIGITS || !is_found && !chain.is_decimals() {
        return None;
    }
    let (mut whole, mut places) = (i32::from(precision) - i32::from(scale), scale);
    if let Some(fill) = &chain.filled {
        let fill = fill.exact()?;
        let (fill_whole, fill_places) = fill.digits();
        whole = whole.max(i32::try_from(fill_whole).ok()?);
        if fill.at_scale(scale).is_none() {
            places = places.max(i8::try_from(fill_places).ok()?);
        }
    }
    let digits = (whole + i32::from(places)).max(places.into());
    if digits <= DECIMAL_128_DIGITS {
        Some(DataType::Decimal128(DECIMAL_128_DIGITS as u8, places))
    } else {
        (digits <= DECIMAL_256_DIGITS).then_some(DataType::Decimal256(DECIMAL_256_DIGITS as u8, places))
    }
}

/// Converts a column of decimals to another decimal type and fills its nulls; `None` for other columns.
pub(super) fn exact(column: &ArrayRef, fill: Option<&Fill>, to: &DataType) -> Result<Option<ArrayRef>, ArrowError> {
    let plain = match column.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values().as_ref(), dictionary.keys(), None)?,
        None => Arc::clone(column),
    };
    let has_to_fill = fill.is_some() && plain.null_count() > 0;
    let (Some(from), Some(scale)) = (decimal::scale(plain.data_type()), decimal::scale(to)) else { return Ok(None) };
    if from == scale && !has_to_fill {
        match (plain.data_type(), to) {
            (DataType::Decimal128(..), DataType::Decimal128(..)) => {
                return Ok(Some(renamed::<Decimal128Type>(&plain, to)));
            }
            (DataType::Decimal256(..), DataType::Decimal256(..)) => {
                return Ok(Some(renamed::<Decimal256Type>(&plain, to)));
            }
            _ => {}
        }
    }
    let Some(values) = Decimals::new(plain.as_ref()) else { return Ok(None) };
    let fill = fill.and_then(Fill::exact).and_then(|fill| fill.at_scale(scale));
    let value = |row| {
        if plain.is_null(row) {
            return Ok(fill);
        }
        let value = values.get(row);
        rescaled(value, from, scale).map(Some).ok_or_else(|| too_long(value, &plain))
    };
    let rows = 0..plain.len();
    let array: ArrayRef = if let DataType::Decimal128(..) = to {
        let narrow = |value: Option<i256>| match value {
            Some(value) => value.to_i128().map(Some).ok_or_else(|| too_long(value, &plain)),
            None => Ok(None),
        };
        let values: Result<PrimitiveArray<Decimal128Type>, _> = rows.map(|row| narrow(value(row)?)).collect();
        Arc::new(values?.with_data_type(to.clone()))
    } else {
        let values: Result<PrimitiveArray<Decimal256Type>, _> = rows.map(value).collect();
        Arc::new(values?.with_data_type(to.clone()))
    };
    Ok(Some(array))
}

fn renamed<T: DecimalType>(array: &ArrayRef, to: &DataType) -> ArrayRef {
    Arc::new(array.as_primitive::<T>().clone().with_data_type(to.clone()))
}

/// The error of a value with more digits than the type of its column declares.
fn too_long(unscaled: i256, column: &ArrayRef) -> ArrowError {
    ArrowError::ArithmeticOverflow(format!(
        "the unscaled value {unscaled} has too many digits for {}",
        column.data_type()
    ))
}
