//! One chain → the body of a device function.
//!
//! Chains of the same shape (stored type, ops, dtype) share a function and differ in its constants, so a program that
//! standardizes a thousand columns compiles as quickly as one that standardizes two.

use arrow::datatypes::{DataType, TimeUnit};

use super::{
    tables::Tables,
    writer::{Writer, c_type},
};
use crate::{
    compile::chain::{CompiledChain, Head, RowShape},
    domain::{Domain, Number},
    spec::DType,
    vector::cast::Rounding,
};

/// A chain as a device function and its constants.
#[derive(Debug)]
pub(super) struct ChainFunction {
    /// The function's body.
    pub(super) body: String,
    /// The values of its `constants`.
    pub(super) constants: Vec<u64>,
    /// The kind of number that the CPU converts rows to if the device does not read them as stored.
    pub(super) number: Number,
}

/// The function of a chain; `None` if the device cannot run one of its ops.
pub(super) fn shape(
    chain: &CompiledChain,
    stored: &DataType,
    dtype: DType,
    tables: &mut Tables,
) -> Option<ChainFunction> {
    let number = match (&chain.head, Domain::of(stored)?) {
        (Head::Numbers, Domain::Number(number)) => number,
        (Head::Encoded(_), _) => Number::Int,
        _ => return None,
    };
    let read = reader(&chain.head, stored).unwrap_or(c_type(number));
    let mut writer = Writer::new(number, tables);
    writer.line("bool valid;");
    writer.line(&format!("{0} x0 = load<{read}, {0}>(run, chain, row, valid);", c_type(number)));
    for step in &chain.steps {
        step.op().write(&mut writer);
    }
    writer.line("if (!valid) {");
    writer.line("    fault = IS_NULL;");
    writer.line("    return 0;");
    writer.line("}");
    match chain.shape {
        // The device's 1 has four bytes.
        RowShape::OneHot(_) if dtype == DType::Float64 => return None,
        RowShape::OneHot(size) => {
            let size = writer.bits(size as u64);
            writer.line(&format!("return one_hot({}, {size}, fault);", writer.value()));
        }
        RowShape::Single => {
            let value = output_value(&writer, chain.rounding, dtype);
            writer.line(&format!("return {}({value}, fault);", cast(dtype)?));
        }
        RowShape::List | RowShape::Columns(_) | RowShape::OneHots { .. } | RowShape::MultiHot(_) => return None,
    }
    let (body, constants) = writer.finish()?;
    Some(ChainFunction { body, constants, number })
}

/// The C type of a stored type that the device reads; `None` if the CPU converts it to numbers first.
pub(super) fn reader(head: &Head, stored: &DataType) -> Option<&'static str> {
    use DataType as T;
    if !matches!(head, Head::Numbers) {
        return None;
    }
    Some(match stored {
        T::Boolean => "Bit",
        T::Int8 => "i8",
        T::Int16 => "i16",
        T::Int32 | T::Date32 | T::Time32(TimeUnit::Second | TimeUnit::Millisecond) => "i32",
        T::Int64 | T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => "i64",
        T::UInt8 => "u8",
        T::UInt16 => "u16",
        T::UInt32 => "u32",
        T::UInt64 => "u64",
        T::Float16 => "Half",
        T::Float32 => "f32",
        T::Float64 => "f64",
        _ => return None,
    })
}

/// The function that converts a number to an element.
fn cast(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Float32 => "to_float32",
        DType::Float64 => "to_float64",
        DType::Float16 => "to_float16",
        DType::BFloat16 => "to_bfloat16",
        DType::Int32 => "to_int32",
        DType::Int64 => "to_int64",
        DType::UInt8 => "to_uint8",
        DType::AsStored => return None,
    })
}

/// The value for the output: whole numbers of a chain that keeps integers are checked.
fn output_value(writer: &Writer, rounding: Rounding, dtype: DType) -> String {
    let value = writer.value();
    let limit = match dtype {
        DType::Float32 | DType::BFloat16 => "FLOAT32_DIGITS, ANY_MAGNITUDE",
        DType::Float16 => "FLOAT32_DIGITS, FLOAT16_MAX",
        _ => "FLOAT64_DIGITS, ANY_MAGNITUDE",
    };
    match (rounding, writer.number()) {
        (Rounding::Fractions, Number::F64) => format!("unless_whole({value}, {limit}, fault)"),
        _ => value,
    }
}
