//! Upper bounds of the size of an expression's values, from the longest values of its columns.
//!
//! Functions such as `replace` and `concat` return longer strings than they read, and can be nested. The number of rows
//! evaluated at a time is limited so that no subexpression takes more than [`BYTES_AT_ONCE_MAX`].

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{ArrowNativeType, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type},
};
use datafusion_common::{
    ScalarValue,
    tree_node::{TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator, TryCast, expr::ScalarFunction};

use super::{
    text_argument::{TextArgument, text_argument},
    type_names,
};

/// The most bytes of the values of a subexpression for the rows evaluated at a time.
pub(super) const BYTES_AT_ONCE_MAX: f64 = 67_108_864.0;

/// The most bytes of a number, a date or an interval, also as a string.
const NUMBER_BYTES: f64 = 128.0;

/// The most bytes that a byte of a format expands to: names of months and zones.
const FORMAT_GROWTH: f64 = 32.0;

/// An upper bound of the bytes of a subexpression's value in any row.
#[derive(Clone, Debug)]
pub(super) enum Size {
    /// A constant.
    Fixed(f64),
    /// The longest value of a column.
    Column(String),
    /// A multiple of the sum of other sizes.
    Sum(f64, Vec<Size>),
    /// A number or a boolean, computed from operands of these sizes.
    Number(Vec<Size>),
    /// Every `from` bytes of a string are replaced by `to`, which contains `copies` of the original.
    Replaced { text: Box<Size>, from: f64, to: Box<Size>, copies: f64 },
    /// A number whose computation takes as many steps as the product of two lengths.
    Compared(Box<Size>, Box<Size>),
}

impl Size {
    /// The size of an expression, if its values can be longer than its inputs.
    pub(super) fn of_growing(expr: &Expr) -> Option<Self> {
        let size = of(expr);
        // A literal is copied to every row.
        let is_long = matches!(size, Self::Fixed(bytes) if bytes > NUMBER_BYTES);
        (is_long || size.grows()).then_some(size)
    }

    fn grows(&self) -> bool {
        match self {
            Self::Fixed(_) | Self::Column(_) => false,
            Self::Sum(times, parts) => *times > 1.0 || parts.len() > 1 || parts.iter().any(Self::grows),
            Self::Number(parts) => parts.iter().any(Self::grows),
            Self::Replaced { .. } | Self::Compared(..) => true,
        }
    }

    /// The number of rows of a batch to evaluate at a time, or the bytes of a single row if they exceed the limit.
    pub(super) fn rows_at_once(&self, batch: &RecordBatch) -> Result<usize, f64> {
        let bytes = self.bytes_max(&|name| batch.column_by_name(name).map_or(NUMBER_BYTES, longest));
        let rows = BYTES_AT_ONCE_MAX / bytes.max(1.0);
        if rows < 1.0 { Err(bytes) } else { Ok(rows as usize) }
    }

    /// The most bytes of any subexpression's value, given the longest value of each column.
    pub(super) fn bytes_max(&self, longest: &dyn Fn(&str) -> f64) -> f64 {
        let mut most = 0.0;
        self.bytes(longest, &mut most);
        most
    }

    /// The bytes of the value itself.
    pub(super) fn value_bytes(&self, longest: &dyn Fn(&str) -> f64) -> f64 {
        self.bytes(longest, &mut 0.0)
    }

    fn bytes(&self, longest: &dyn Fn(&str) -> f64, most: &mut f64) -> f64 {
        let sum = |parts: &[Self], most: &mut f64| parts.iter().map(|part| part.bytes(longest, most)).sum::<f64>();
        let bytes = match self {
            Self::Fixed(bytes) => *bytes,
            Self::Column(name) => longest(name),
            Self::Sum(times, parts) => times * sum(parts, most),
            Self::Number(parts) => {
                sum(parts, most);
                NUMBER_BYTES
            }
            Self::Replaced { text, from, to, copies } => {
                let (text, to) = (text.bytes(longest, most), to.bytes(longest, most));
                text * (1.0 + copies) + (text / from + 1.0) * to
            }
            Self::Compared(left, right) => left.bytes(longest, most) * right.bytes(longest, most),
        };
        *most = most.max(bytes);
        bytes
    }
}

fn of(expr: &Expr) -> Size {
    let all = |exprs: &[Expr]| exprs.iter().map(of).collect::<Vec<_>>();
    match expr {
        Expr::Literal(value, _) => Size::Fixed(literal_bytes(value)),
        Expr::Column(column) => Size::Column(column.name.clone()),
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            Size::Sum(1.0, vec![of(expr), Size::Fixed(NUMBER_BYTES), of_type(field.data_type())])
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            Size::Sum(1.0, vec![of(left), of(right)])
        }
        Expr::Case(case) => {
            let conditions =
                case.when_then_expr.iter().map(|(when, _)| of(when)).chain(case.expr.iter().map(|expr| of(expr)));
            let results =
                case.when_then_expr.iter().map(|(_, then)| of(then)).chain(case.else_expr.iter().map(|expr| of(expr)));
            Size::Sum(1.0, results.chain([Size::Number(conditions.collect())]).collect())
        }
        Expr::InList(list) => Size::Number(vec![of(&list.expr)]),
        Expr::ScalarFunction(call) => of_call(call, all(&call.args)),
        other => {
            let mut parts = Vec::new();
            // The closure never fails.
            let _ = other.apply_children(|child| {
                parts.push(of(child));
                Ok(TreeNodeRecursion::Continue)
            });
            Size::Number(parts)
        }
    }
}

/// The size of a call's value. The value of a function not listed here is at most as long as its arguments together.
fn of_call(call: &ScalarFunction, mut sizes: Vec<Size>) -> Size {
    let text = |index: usize| match call.args.get(index).map(text_argument) {
        Some(TextArgument::Literal(text)) => Some(text),
        _ => None,
    };
    match (call.func.name(), sizes.len()) {
        ("replace", 3) => {
            let from = text(1).map_or(1.0, |from| from.len().max(1) as f64);
            Size::Replaced {
                text: Box::new(sizes.swap_remove(0)),
                from,
                to: Box::new(sizes.swap_remove(0)),
                copies: 0.0,
            }
        }
        ("regexp_replace", 3..) => {
            let to = sizes.swap_remove(2);
            let text_size = Box::new(sizes.swap_remove(0));
            match text(2) {
                Some(written) => {
                    let copies = written.matches(['\\', '$']).count() as f64;
                    Size::Replaced { text: text_size, from: 1.0, to: Box::new(to), copies }
                }
                // Every other byte of the replacement may refer to the original.
                None => {
                    Size::Replaced { text: text_size, from: 1.0, to: Box::new(Size::Sum(2.0, vec![to])), copies: 0.0 }
                }
            }
        }
        ("regexp_match", _) => {
            let groups = text(1).map_or(1, |pattern| pattern.matches('(').count() + 1);
            Size::Sum(groups as f64, sizes)
        }
        ("arrow_cast" | "arrow_try_cast", 1..) => {
            let named = type_names::of_call(call).map_or(Size::Fixed(NUMBER_BYTES), |data_type| of_type(&data_type));
            sizes.push(named);
            Size::Sum(1.0, sizes)
        }
        ("concat_ws", 1..) => {
            let between = Size::Sum(sizes.len() as f64, vec![sizes.swap_remove(0)]);
            sizes.push(between);
            Size::Sum(1.0, sizes)
        }
        ("levenshtein", 2) => Size::Compared(Box::new(sizes.swap_remove(0)), Box::new(sizes.swap_remove(0))),
        ("hash64" | "array_length", _) => Size::Number(sizes),
        ("regexp_extract", 1..) => Size::Sum(1.0, vec![sizes.swap_remove(0)]),
        // A byte is two hexadecimal digits; base64 is shorter.
        ("encode", _) => Size::Sum(2.0, sizes),
        // A character maps to at most three, or to one of up to four bytes.
        ("upper" | "lower" | "initcap", _) => Size::Sum(3.0, sizes),
        ("translate", _) => Size::Sum(4.0, sizes),
        ("to_char", _) => Size::Sum(FORMAT_GROWTH, sizes),
        _ => Size::Sum(1.0, sizes),
    }
}

fn of_type(data_type: &DataType) -> Size {
    Size::Fixed(type_names::value_bytes(data_type))
}

fn literal_bytes(value: &ScalarValue) -> f64 {
    value.try_as_str().flatten().map_or(NUMBER_BYTES, |text| text.len() as f64)
}

/// Bytes of the longest value of a column.
pub(super) fn longest(array: &ArrayRef) -> f64 {
    match array.data_type() {
        DataType::Utf8 => longest_bytes::<Utf8Type>(array),
        DataType::LargeUtf8 => longest_bytes::<LargeUtf8Type>(array),
        DataType::Binary => longest_bytes::<BinaryType>(array),
        DataType::LargeBinary => longest_bytes::<LargeBinaryType>(array),
        DataType::Utf8View => array.as_string_view().lengths().max().unwrap_or(0).into(),
        DataType::BinaryView => array.as_binary_view().lengths().max().unwrap_or(0).into(),
        DataType::Dictionary(..) => longest(array.as_any_dictionary().values()),
        other if other.is_nested() => array.get_array_memory_size() as f64,
        _ => NUMBER_BYTES,
    }
}

/// Bytes of the values of a column, which may be a slice of longer arrays.
pub(super) fn slice_bytes(array: &ArrayRef) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
}

fn longest_bytes<T: ByteArrayType>(array: &ArrayRef) -> f64 {
    let lengths = array.as_bytes::<T>().offsets().windows(2).map(|pair| pair[1].as_usize() - pair[0].as_usize());
    lengths.max().unwrap_or(0) as f64
}
