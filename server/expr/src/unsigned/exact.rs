//! The functions that compute an operation in 128 bits and convert its value to 64 bits. SQL cannot call them by name.
//!
//! The value in 128 bits is a decimal without fraction. It has at most 38 digits.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, Decimal128Array, PrimitiveArray},
    compute::{
        cast,
        kernels::arity::{try_binary, try_unary},
    },
    datatypes::{ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Int64Type, UInt64Type},
    error::ArrowError,
};
use datafusion_common::{DataFusionError, ScalarValue, plan_err};
use datafusion_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    expr::ScalarFunction,
};

/// The most digits of a uint64, and of an int64.
const DIGITS: u8 = 20;

/// One more than the largest decimal.
const BEYOND: i128 = 10_i128.pow(DECIMAL128_MAX_PRECISION as u32);

/// An operation on two integers, of which at least one is a uint64 or another operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Operation {
    op: Operator,
    is_unsigned: bool,
    signature: Signature,
}

/// The conversion of an operation's value to 64 bits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Narrow {
    is_unsigned: bool,
    signature: Signature,
}

/// The operation that an expression computes.
pub(super) fn of(expr: &Expr) -> Option<&Operation> {
    match expr {
        Expr::ScalarFunction(call) => call.func.inner().downcast_ref::<Operation>(),
        _ => None,
    }
}

/// The function of an operation.
pub(crate) fn operation(op: Operator, is_unsigned: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Operation { op, is_unsigned, signature }))
}

/// The function that converts an operation's value.
pub(crate) fn narrow(is_unsigned: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Narrow { is_unsigned, signature }))
}

/// A call of an operation.
pub(super) fn call(op: Operator, is_unsigned: bool, left: Expr, right: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: operation(op, is_unsigned), args: vec![left, right] })
}

// === impl Operation ===

impl Operation {
    /// Whether the final value is a uint64.
    pub(super) fn is_unsigned(&self) -> bool {
        self.is_unsigned
    }

    /// The final value of an expression that is this operation.
    pub(super) fn narrow(&self, expr: Expr) -> Expr {
        Expr::ScalarFunction(ScalarFunction { func: narrow(self.is_unsigned), args: vec![expr] })
    }

    fn compute(&self, left: i128, right: i128) -> Result<i128, ArrowError> {
        let value = match self.op {
            Operator::Plus => left.checked_add(right),
            Operator::Minus => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide | Operator::Modulo if right == 0 => return Err(ArrowError::DivideByZero),
            Operator::Divide => left.checked_div(right),
            _ => left.checked_rem(right),
        };
        let in_range = value.filter(|value| (1 - BEYOND..BEYOND).contains(value));
        in_range.ok_or_else(|| {
            ArrowError::ArithmeticOverflow(format!("{left} {} {right} has more than 38 digits", self.op))
        })
    }
}

impl ScalarUDFImpl for Operation {
    fn name(&self) -> &'static str {
        "exact_integers"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        let [left, right] = arg_types else { return plan_err!("an operation takes two integers") };
        let (left, right) = (digits(left), digits(right));
        let digits = match self.op {
            Operator::Plus | Operator::Minus => left.max(right) + 1,
            Operator::Multiply => left + right,
            _ => left.max(right),
        };
        Ok(DataType::Decimal128(digits.min(DECIMAL128_MAX_PRECISION), 0))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let has_one_row = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = arrays.as_slice() else { return plan_err!("an operation takes two integers") };
        let (left, right) = (decimals(left)?, decimals(right)?);
        let computed: Decimal128Array = try_binary(&left, &right, |left, right| self.compute(left, right))?;
        returned(Arc::new(computed.with_data_type(args.return_field.data_type().clone())), has_one_row)
    }
}

// === impl Narrow ===

impl Narrow {
    fn converted<T: ArrowPrimitiveType>(values: &Decimal128Array) -> Result<ArrayRef, ArrowError>
    where
        T::Native: TryFrom<i128>,
    {
        let convert = |value: i128| T::Native::try_from(value).map_err(|_| out_of_range(value, &T::DATA_TYPE));
        let converted: PrimitiveArray<T> = try_unary(values, convert)?;
        Ok(Arc::new(converted))
    }
}

impl ScalarUDFImpl for Narrow {
    fn name(&self) -> &'static str {
        "integer"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(if self.is_unsigned { DataType::UInt64 } else { DataType::Int64 })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let has_one_row = matches!(args.args.as_slice(), [ColumnarValue::Scalar(_)]);
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [values] = arrays.as_slice() else { return plan_err!("a conversion takes one value") };
        let values = values.as_primitive::<Decimal128Type>();
        let narrow = if self.is_unsigned {
            Self::converted::<UInt64Type>(values)?
        } else {
            Self::converted::<Int64Type>(values)?
        };
        returned(narrow, has_one_row)
    }
}

fn out_of_range(value: i128, data_type: &DataType) -> ArrowError {
    let way_out = if value < 0 {
        "convert an operand first, as in CAST(x AS BIGINT)"
    } else {
        "divide before adding or multiplying, or take a remainder"
    };
    ArrowError::ArithmeticOverflow(format!("{value} is not a value of {data_type}: {way_out}"))
}

/// Integers as decimals without fraction.
fn decimals(values: &ArrayRef) -> Result<Decimal128Array, ArrowError> {
    let values = match values.data_type() {
        DataType::Decimal128(..) => Arc::clone(values),
        _ => cast(values, &DataType::Decimal128(DIGITS, 0))?,
    };
    Ok(values.as_primitive::<Decimal128Type>().clone())
}

fn digits(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Decimal128(precision, _) => *precision,
        _ => DIGITS,
    }
}

fn returned(values: ArrayRef, has_one_row: bool) -> Result<ColumnarValue, DataFusionError> {
    Ok(if has_one_row {
        ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)
    } else {
        ColumnarValue::Array(values)
    })
}
