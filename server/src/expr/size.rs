//! How long the values of an expression can get, from the longest values of the columns that it reads.
//!
//! `replace`, `concat` and their like make long values of short ones, and expressions feed them to each other. Rows are
//! evaluated so few at a time that no part of an expression takes more than [`BYTES_AT_ONCE_MAX`].

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{ArrowNativeType, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type},
};
use datafusion_common::{
    ScalarValue,
    tree_node::{TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{BinaryExpr, Expr, Operator, expr::ScalarFunction};

use super::cost::{Written, written};

/// Bytes that the values of a part may take for the rows that are evaluated at once.
pub(super) const BYTES_AT_ONCE_MAX: f64 = 67_108_864.0;

/// What a number, a date or an interval takes at most, also as a text.
const NUMBER_BYTES: f64 = 128.0;

/// What a byte of a format stands for at most, as a text: names of months and zones.
const FORMAT_GROWTH: f64 = 32.0;

/// The bytes of a part's values: of any row, at most.
#[derive(Clone, Debug)]
pub(super) enum Size {
    /// So many, whatever the columns hold.
    Fixed(f64),
    /// As many as the column has.
    Column(String),
    /// So many times what the parts have together.
    Sum(f64, Vec<Size>),
    /// A number or a truth value, made from these.
    Told(Vec<Size>),
    /// Every `from` bytes of a text become a text, with so many copies of the old one.
    Replaced { text: Box<Size>, from: f64, to: Box<Size>, copies: f64 },
    /// A number that takes as many steps as the product of two lengths.
    Compared(Box<Size>, Box<Size>),
}

impl Size {
    /// The size of an expression, if its values can get longer than those that it reads.
    pub(super) fn of_growing(expr: &Expr) -> Option<Self> {
        let size = of(expr);
        size.grows().then_some(size)
    }

    fn grows(&self) -> bool {
        match self {
            Self::Fixed(_) | Self::Column(_) => false,
            Self::Sum(times, parts) => *times > 1.0 || parts.len() > 1 || parts.iter().any(Self::grows),
            Self::Told(parts) => parts.iter().any(Self::grows),
            Self::Replaced { .. } | Self::Compared(..) => true,
        }
    }

    /// Rows of a batch that may be evaluated at once, or the bytes that a single one may take where these are too many.
    pub(super) fn rows_at_once(&self, batch: &RecordBatch) -> Result<usize, f64> {
        let bytes = self.bytes_max(&|name| batch.column_by_name(name).map_or(NUMBER_BYTES, longest));
        let rows = BYTES_AT_ONCE_MAX / bytes.max(1.0);
        if rows < 1.0 { Err(bytes) } else { Ok(rows as usize) }
    }

    /// The most bytes that any part's value takes, where the longest values of the columns are such.
    pub(super) fn bytes_max(&self, longest: &dyn Fn(&str) -> f64) -> f64 {
        let mut most = 0.0;
        self.bytes(longest, &mut most);
        most
    }

    fn bytes(&self, longest: &dyn Fn(&str) -> f64, most: &mut f64) -> f64 {
        let sum = |parts: &[Self], most: &mut f64| parts.iter().map(|part| part.bytes(longest, most)).sum::<f64>();
        let bytes = match self {
            Self::Fixed(bytes) => *bytes,
            Self::Column(name) => longest(name),
            Self::Sum(times, parts) => times * sum(parts, most),
            Self::Told(parts) => {
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
        Expr::Cast(cast) => Size::Sum(1.0, vec![of(&cast.expr), Size::Fixed(NUMBER_BYTES)]),
        Expr::TryCast(cast) => Size::Sum(1.0, vec![of(&cast.expr), Size::Fixed(NUMBER_BYTES)]),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            Size::Sum(1.0, vec![of(left), of(right)])
        }
        Expr::Case(case) => {
            let told =
                case.when_then_expr.iter().map(|(when, _)| of(when)).chain(case.expr.iter().map(|expr| of(expr)));
            let given =
                case.when_then_expr.iter().map(|(_, then)| of(then)).chain(case.else_expr.iter().map(|expr| of(expr)));
            Size::Sum(1.0, given.chain([Size::Told(told.collect())]).collect())
        }
        Expr::InList(list) => Size::Told(vec![of(&list.expr)]),
        Expr::ScalarFunction(call) => of_call(call, all(&call.args)),
        other => {
            let mut parts = Vec::new();
            // The walk itself does not fail.
            let _ = other.apply_children(|child| {
                parts.push(of(child));
                Ok(TreeNodeRecursion::Continue)
            });
            Size::Told(parts)
        }
    }
}

/// The size of a call's value. A function that is not named here makes nothing longer than its arguments together.
fn of_call(call: &ScalarFunction, mut sizes: Vec<Size>) -> Size {
    let text = |index: usize| match call.args.get(index).map(written) {
        Some(Written::Text(text)) => Some(text),
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
                // Every other byte of it may stand for the old text.
                None => {
                    Size::Replaced { text: text_size, from: 1.0, to: Box::new(Size::Sum(2.0, vec![to])), copies: 0.0 }
                }
            }
        }
        ("regexp_match", _) => {
            let groups = text(1).map_or(1, |pattern| pattern.matches('(').count() + 1);
            Size::Sum(groups as f64, sizes)
        }
        ("concat_ws", 1..) => {
            let between = Size::Sum(sizes.len() as f64, vec![sizes.swap_remove(0)]);
            sizes.push(between);
            Size::Sum(1.0, sizes)
        }
        ("levenshtein", 2) => Size::Compared(Box::new(sizes.swap_remove(0)), Box::new(sizes.swap_remove(0))),
        // A letter becomes three, or one of up to four bytes.
        ("upper" | "lower" | "initcap", _) => Size::Sum(3.0, sizes),
        ("translate", _) => Size::Sum(4.0, sizes),
        ("to_char", _) => Size::Sum(FORMAT_GROWTH, sizes),
        _ => Size::Sum(1.0, sizes),
    }
}

fn literal_bytes(value: &ScalarValue) -> f64 {
    value.try_as_str().flatten().map_or(NUMBER_BYTES, |text| text.len() as f64)
}

/// Bytes of the longest value of a column.
fn longest(array: &ArrayRef) -> f64 {
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

fn longest_bytes<T: ByteArrayType>(array: &ArrayRef) -> f64 {
    let lengths = array.as_bytes::<T>().offsets().windows(2).map(|pair| pair[1].as_usize() - pair[0].as_usize());
    lengths.max().unwrap_or(0) as f64
}
