//! Bounds the cost of an expression from its tree, before it is typed, simplified or evaluated.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use regex::RegexBuilder;

use super::{
    error::shorten,
    text_argument::{TextArgument, text_argument},
    type_names,
};

/// The most nodes, not counting literals, of an expression after DataFusion's rewrites, which copy some operands: three
/// nested `coalesce` copy the innermost first argument eight times.
const NODES_MAX: u64 = 16_384;

/// Copies of a CASE condition or of the left side of a short IN after the rewrites.
const COPIES: u64 = 3;

/// The most items of an IN that is rewritten to comparisons.
const SHORT_IN_ITEMS_MAX: usize = 3;

/// The most bytes of a compiled regular expression: matching takes time proportional to them for each character.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// The most bytes of a LIKE pattern, for the same reason.
const LIKE_BYTES_MAX: usize = 1024;

/// Rejects an expression whose cost is out of proportion to its length, with the reason.
pub(super) fn check(expr: &Expr) -> Result<(), String> {
    let nodes = expanded_nodes(expr);
    if nodes > NODES_MAX {
        return Err(format!(
            "it expands to {nodes} nodes, the limit is {NODES_MAX}: nest CASE, BETWEEN, IN and coalesce() less deeply"
        ));
    }
    let mut checked = Ok(());
    // The closure never fails.
    let _ = expr.apply(|node| {
        checked = check_pattern(node).and_then(|()| check_type(node));
        Ok(if checked.is_err() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    checked
}

/// Whether an expression calls functions or matches patterns, whose time for each byte of text is not small.
pub(super) fn has_calls(expr: &Expr) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let is_call = |node: &Expr| match node {
        Expr::ScalarFunction(_) | Expr::Like(_) | Expr::SimilarTo(_) => true,
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
        }
        _ => false,
    };
    // The closure never fails.
    expr.exists(|node| Ok(is_call(node))).unwrap_or(true)
}

/// The number of nodes of an expression after the rewrites.
fn expanded_nodes(expr: &Expr) -> u64 {
    let all = |exprs: &[Expr]| exprs.iter().map(expanded_nodes).fold(0, u64::saturating_add);
    let children = match expr {
        Expr::Literal(..) => return 0,
        Expr::Between(between) => expanded_nodes(&between.expr)
            .saturating_mul(2)
            .saturating_add(expanded_nodes(&between.low))
            .saturating_add(expanded_nodes(&between.high)),
        Expr::InList(list) => {
            let copies = if list.list.len() <= SHORT_IN_ITEMS_MAX { COPIES } else { 1 };
            expanded_nodes(&list.expr).saturating_mul(copies).saturating_add(all(&list.list))
        }
        Expr::Case(case) => {
            let branches = case
                .when_then_expr
                .iter()
                .map(|(when, then)| expanded_nodes(when).saturating_mul(COPIES).saturating_add(expanded_nodes(then)));
            let ends = case.expr.iter().chain(&case.else_expr).map(|end| expanded_nodes(end));
            branches.chain(ends).fold(0, u64::saturating_add)
        }
        Expr::ScalarFunction(call) if matches!(call.func.name(), "coalesce" | "nvl" | "nullif") => {
            match call.args.split_last() {
                Some((last, others)) => all(others).saturating_mul(2).saturating_add(expanded_nodes(last)),
                None => 0,
            }
        }
        other => {
            let mut sum = 0_u64;
            let _ = other.apply_children(|child| {
                sum = sum.saturating_add(expanded_nodes(child));
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
        Expr::BinaryExpr(BinaryExpr {
            op: RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch, right, ..
        }) => check_regex(right),
        Expr::Like(like) => check_like(&like.pattern),
        _ => Ok(()),
    }
}

fn check_type(node: &Expr) -> Result<(), String> {
    match node {
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
            type_names::check_levels(field.data_type())
        }
        _ => Ok(()),
    }
}

/// Checks a regular expression. A computed one cannot be bounded.
fn check_regex(pattern: &Expr) -> Result<(), String> {
    match text_argument(pattern) {
        TextArgument::Computed => {
            Err("a regular expression must be a string literal: the cost of a computed one has no bound".to_owned())
        }
        TextArgument::Null => Ok(()),
        TextArgument::Literal(text) => match RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build() {
            Err(regex::Error::CompiledTooBig(_)) => Err(format!(
                "the regular expression '{}' takes more than {REGEX_BYTES_MAX} bytes: repeat less",
                shorten(text)
            )),
            // The function reports a syntax error.
            Ok(_) | Err(_) => Ok(()),
        },
    }
}

fn check_like(pattern: &Expr) -> Result<(), String> {
    match text_argument(pattern) {
        TextArgument::Literal(text) if text.len() > LIKE_BYTES_MAX => {
            Err(format!("the LIKE pattern has {} bytes, the limit is {LIKE_BYTES_MAX}", text.len()))
        }
        _ => Ok(()),
    }
}
