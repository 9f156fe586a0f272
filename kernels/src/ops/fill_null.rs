//! `fill_null`: replaces nulls with a value. scikit-learn's `SimpleImputer` with a constant.
//!
//! - NaN is not null and stays NaN; infinities stay.
//! - Integers stay integers if the value is integral and fits; a fraction, or an integer outside the column's domain
//!   (such as a negative one for `UInt64`), converts the column to f64.
//! - An f32 column is filled with the value rounded to f32.
//! - Text columns accept only text, and other columns no text; columns of bytes cannot be filled.

use arrow::datatypes::i256;

use crate::{
    domain::{Domain, Number},
    error::OpProblem,
    ops::{exact_decimal::ExactDecimal, number_op::NumberOp},
    vector::{
        exact::{exact_i64, exact_u64},
        tile::Tile,
    },
};

/// The value that replaces nulls.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// A number.
    Number(f64),
    /// An integer, which a double may not represent exactly.
    Integer(i64),
    /// An unsigned integer, which an i64 may not represent.
    Unsigned(u64),
    /// A decimal, which a double may not represent exactly.
    Decimal(ExactDecimal),
    /// Text, for columns of text.
    Text(String),
}

/// The value, in the domain of the tiles that it fills.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FillNull {
    Int(i64),
    UInt(u64),
    Float(f64),
}

impl Fill {
    /// The number as a double; NaN for text.
    pub(crate) fn double(&self) -> f64 {
        match self {
            Self::Number(value) => *value,
            Self::Integer(value) => *value as f64,
            Self::Unsigned(value) => *value as f64,
            Self::Decimal(value) => value.double(),
            Self::Text(_) => f64::NAN,
        }
    }

    /// The number as a decimal; `None` for text, and for doubles that no decimal represents.
    pub(crate) fn exact(&self) -> Option<ExactDecimal> {
        let whole = |value: i128| Some(ExactDecimal::new(i256::from_i128(value), 0));
        match self {
            Self::Number(value) => ExactDecimal::of_double(*value),
            Self::Integer(value) => whole((*value).into()),
            Self::Unsigned(value) => whole((*value).into()),
            Self::Decimal(value) => Some(*value),
            Self::Text(_) => None,
        }
    }
}

impl FillNull {
    /// Compiles for numbers: returns the step, and the kind of number after it.
    pub(crate) fn compile(fill: &Fill, number: Number) -> Result<(Self, Number), OpProblem> {
        let (int, uint, float) = match fill {
            Fill::Number(value) => (exact_i64(*value), exact_u64(*value), *value),
            Fill::Integer(value) => (Some(*value), u64::try_from(*value).ok(), *value as f64),
            Fill::Unsigned(value) => (i64::try_from(*value).ok(), Some(*value), *value as f64),
            Fill::Decimal(value) => {
                let integer = value.integer();
                let int = integer.and_then(|integer| i64::try_from(integer).ok());
                (int, integer.and_then(|integer| u64::try_from(integer).ok()), value.double())
            }
            Fill::Text(_) => return Err(mismatch("text", Domain::Number(number))),
        };
        let fill = match (number, int, uint) {
            (Number::Int, Some(value), _) => Self::Int(value),
            (Number::UInt, _, Some(value)) => Self::UInt(value),
            _ => Self::Float(float),
        };
        let number = if matches!(fill, Self::Float(_)) { number.floating() } else { number };
        Ok((fill, number))
    }

    /// The text that fills a column of text.
    pub(crate) fn compile_text(fill: &Fill, domain: Domain) -> Result<String, OpProblem> {
        match (fill, domain) {
            (Fill::Text(text), Domain::Text) => Ok(text.clone()),
            (Fill::Text(_), _) => Err(mismatch("text", domain)),
            (Fill::Number(_) | Fill::Integer(_) | Fill::Unsigned(_) | Fill::Decimal(_), _) => {
                Err(mismatch("a number", domain))
            }
        }
    }

    /// The value as an index, if it is one.
    pub(crate) fn index(self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(value).ok(),
            Self::UInt(value) => Some(value),
            Self::Float(_) => None,
        }
    }
}

impl NumberOp for FillNull {
    fn apply(&self, tile: &mut Tile) {
        match *self {
            Self::Int(value) => tile.fill(value, 0, 0.0, 0.0),
            Self::UInt(value) => tile.fill(0, value, 0.0, 0.0),
            Self::Float(value) => {
                tile.make_floats();
                tile.fill(0, 0, value as f32, value);
            }
        }
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        let with = match *self {
            Self::Int(value) => writer.int(value),
            Self::UInt(value) => writer.bits(value),
            Self::Float(value) => {
                writer.make_floats();
                writer.float(value)
            }
        };
        writer.assign(&format!("valid ? {} : {with}", writer.value()));
        writer.set_valid();
    }
}

fn mismatch(given: &'static str, domain: Domain) -> OpProblem {
    OpProblem::ValueType { parameter: "value", given, column: domain.words() }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, StringArray, UInt64Array};

    use crate::{
        ExactDecimal, Fill, Op,
        testing::{assert_doubles, assert_ints, assert_singles, compile_error, doubles, evaluate, ints, singles},
    };

    const BIG: i64 = (1 << 53) + 1;

    #[test]
    fn an_integer_keeps_integers() {
        let column = ints(&[Some(1), None, Some(BIG)]);
        for fill in [Fill::Number(-7.0), Fill::Integer(-7)] {
            assert_ints(&evaluate(&[Op::FillNull(fill)], column.clone()), &[Some(1), Some(-7), Some(BIG)]);
        }
        assert_ints(&evaluate(&[Op::FillNull(Fill::Integer(BIG))], column), &[Some(1), Some(BIG), Some(BIG)]);
    }

    #[test]
    fn fills_unsigned_integers_exactly() {
        let column = UInt64Array::from(vec![Some(u64::MAX), None]);
        for value in [u64::MAX - 1, (1 << 63) + 1, (1 << 53) + 1, 0] {
            let filled = evaluate(&[Op::FillNull(Fill::Unsigned(value))], column.clone());
            let expected = UInt64Array::from(vec![u64::MAX, value]);
            assert_eq!(filled.as_ref(), &expected as &dyn arrow::array::Array);
        }
        assert_ints(&evaluate(&[Op::FillNull(Fill::Unsigned(7))], ints(&[None])), &[Some(7)]);
    }

    #[test]
    fn a_decimal_without_fraction_fills_integers() {
        let fill = |text: &str| [Op::FillNull(Fill::Decimal(ExactDecimal::parse(text).unwrap()))];
        assert_ints(&evaluate(&fill("9007199254740993.0"), ints(&[None])), &[Some(BIG)]);
        let unsigned = evaluate(&fill("18446744073709551615"), UInt64Array::from(vec![None, Some(1)]));
        assert_eq!(unsigned.as_ref(), &UInt64Array::from(vec![u64::MAX, 1]) as &dyn arrow::array::Array);
        assert_doubles(&evaluate(&fill("0.5"), ints(&[Some(3), None])), &[Some(3.0), Some(0.5)]);
        assert_doubles(&evaluate(&fill("1.00000000000000000001"), doubles(&[None])), &[Some(1.0)]);
        assert!(compile_error(&fill("1"), StringArray::from(vec!["a"])).contains("its parameter value is a number"));
    }

    #[test]
    fn a_fraction_converts_integers_to_f64() {
        let filled = evaluate(&[Op::FillNull(Fill::Number(0.5))], ints(&[Some(3), None]));
        assert_doubles(&filled, &[Some(3.0), Some(0.5)]);
        let filled = evaluate(&[Op::FillNull(Fill::Integer(-1))], UInt64Array::from(vec![Some(3), None]));
        assert_doubles(&filled, &[Some(3.0), Some(-1.0)]);
    }

    #[test]
    fn nan_is_not_null() {
        let filled = evaluate(&[Op::FillNull(Fill::Number(0.1))], singles(&[Some(f32::NAN), None, Some(-0.0)]));
        assert_singles(&filled, &[Some(f32::NAN), Some(0.1), Some(-0.0)]);
        let filled = evaluate(&[Op::FillNull(Fill::Number(f64::NAN))], doubles(&[None, Some(f64::INFINITY)]));
        assert_doubles(&filled, &[Some(f64::NAN), Some(f64::INFINITY)]);
    }

    #[test]
    fn fills_nulls_in_every_tile() {
        let column = (0..3000).map(|row| (row % 7 != 0).then_some(row)).collect::<Vec<_>>();
        let expected = column.iter().map(|value| value.or(Some(-1))).collect::<Vec<_>>();
        assert_ints(&evaluate(&[Op::FillNull(Fill::Integer(-1))], ints(&column)), &expected);
        assert_ints(&evaluate(&[Op::FillNull(Fill::Integer(4))], ints(&vec![None; 1100])), &vec![Some(4); 1100]);
    }

    #[test]
    fn text_is_filled_with_text_only() {
        let fill = |text: &str| Op::FillNull(Fill::Text(text.to_owned()));
        let filled = evaluate(&[fill("none"), fill("second")], StringArray::from(vec![Some("a"), None, Some("")]));
        assert_eq!(filled.as_ref(), &StringArray::from(vec!["a", "none", ""]) as &dyn arrow::array::Array);
        let message = compile_error(&[Op::FillNull(Fill::Number(0.0))], StringArray::from(vec!["a"]));
        assert_eq!(
            message,
            "column \"x\": op fill_null (number 1 of its chain): its parameter value is a number, but its input is text"
        );
        let message = compile_error(&[fill("a")], ints(&[None]));
        assert_eq!(
            message,
            "column \"x\": op fill_null (number 1 of its chain): its parameter value is text, but its input is \
             whole numbers"
        );
        assert!(compile_error(&[fill("a")], BinaryArray::from(vec![b"a".as_slice()])).contains("its input is bytes"));
    }
}
