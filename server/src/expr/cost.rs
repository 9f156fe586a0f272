//! What an expression may cost, found out from its tree before it is typed, simplified or run.

use datafusion_common::{
    ScalarValue,
    tree_node::{TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use regex::RegexBuilder;

use super::shorten;

/// The most parts, literals left aside, of an expression in which all is written out that DataFusion writes twice: the
/// first argument of a `coalesce` within a `coalesce` within a `coalesce` would stand there eight times.
const PARTS_MAX: u64 = 16_384;

/// Copies of what a condition of CASE or the left side of a short IN may be written out to.
const COPIES: u64 = 3;

/// Items of an IN that is written out as comparisons.
const IN_WRITTEN_OUT_MAX: usize = 3;

/// Bytes of a compiled regular expression: each letter of a text costs a step for some of them.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Bytes of a pattern of LIKE, for the same reason.
const LIKE_BYTES_MAX: usize = 1024;

/// Refuses what would cost out of all proportion to its text, with the reason.
pub(super) fn check(expr: &Expr) -> Result<(), String> {
    let parts = parts(expr);
    if parts > PARTS_MAX {
        return Err(format!(
            "written out it has {parts} parts, the limit is {PARTS_MAX}: nest CASE, BETWEEN, IN and coalesce() less deeply"
        ));
    }
    let mut refused = Ok(());
    // The walk itself does not fail.
    let _ = expr.apply(|node| {
        refused = check_pattern(node);
        Ok(if refused.is_err() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    refused
}

/// The parts of an expression once it is written out.
fn parts(expr: &Expr) -> u64 {
    let all = |exprs: &[Expr]| exprs.iter().map(parts).fold(0, u64::saturating_add);
    let children = match expr {
        Expr::Literal(..) => return 0,
        Expr::Between(between) => parts(&between.expr)
            .saturating_mul(2)
            .saturating_add(parts(&between.low))
            .saturating_add(parts(&between.high)),
        Expr::InList(list) => {
            let copies = if list.list.len() <= IN_WRITTEN_OUT_MAX { COPIES } else { 1 };
            parts(&list.expr).saturating_mul(copies).saturating_add(all(&list.list))
        }
        Expr::Case(case) => {
            let branches = case
                .when_then_expr
                .iter()
                .map(|(when, then)| parts(when).saturating_mul(COPIES).saturating_add(parts(then)));
            let ends = case.expr.iter().chain(&case.else_expr).map(|end| parts(end));
            branches.chain(ends).fold(0, u64::saturating_add)
        }
        Expr::ScalarFunction(call) if matches!(call.func.name(), "coalesce" | "nvl" | "nullif") => {
            match call.args.split_last() {
                Some((last, others)) => all(others).saturating_mul(2).saturating_add(parts(last)),
                None => 0,
            }
        }
        other => {
            let mut sum = 0_u64;
            let _ = other.apply_children(|child| {
                sum = sum.saturating_add(parts(child));
                Ok(TreeNodeRecursion::Continue)
            });
            sum
        }
    };
    children.saturating_add(1)
}

fn check_pattern(node: &Expr) -> Result<(), String> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    match node {
        Expr::ScalarFunction(call) if call.func.name().starts_with("regexp_") => {
            call.args.get(1).map_or(Ok(()), check_regex)
        }
        Expr::SimilarTo(like) => check_regex(&like.pattern),
        Expr::BinaryExpr(BinaryExpr {
            op: RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch, right, ..
        }) => check_regex(right),
        Expr::Like(like) => check_like(&like.pattern),
        _ => Ok(()),
    }
}

/// A pattern that is computed could be any, for every row another.
fn check_regex(pattern: &Expr) -> Result<(), String> {
    match written(pattern) {
        Written::Computed => {
            Err("a regular expression must be written as a text: one that is computed could cost anything".to_owned())
        }
        Written::Null => Ok(()),
        Written::Text(text) => match RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build() {
            Err(regex::Error::CompiledTooBig(_)) => Err(format!(
                "the regular expression '{}' takes more than {REGEX_BYTES_MAX} bytes: repeat less",
                shorten(text)
            )),
            // What is wrong with a pattern is for the function to say.
            Ok(_) | Err(_) => Ok(()),
        },
    }
}

fn check_like(pattern: &Expr) -> Result<(), String> {
    match written(pattern) {
        Written::Text(text) if text.len() > LIKE_BYTES_MAX => {
            Err(format!("a pattern of {} bytes, the limit is {LIKE_BYTES_MAX}", text.len()))
        }
        _ => Ok(()),
    }
}

/// What an expression is as a text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written<'a> {
    /// It is written as this one.
    Text(&'a str),
    /// It is null.
    Null,
    /// It is computed, or no text.
    Computed,
}

/// What an expression is as a text.
pub(super) fn written(expr: &Expr) -> Written<'_> {
    match expr {
        Expr::Literal(ScalarValue::Null, _) => Written::Null,
        Expr::Literal(value, _) => match value.try_as_str() {
            Some(Some(text)) => Written::Text(text),
            Some(None) => Written::Null,
            None => Written::Computed,
        },
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => written(expr),
        _ => Written::Computed,
    }
}
