//! Patterns of text that DataFusion reads differently from SQL: SIMILAR TO, and `$` in a replacement.

mod similar;

use std::sync::LazyLock;

use datafusion_common::{
    DataFusionError, ScalarValue, plan_datafusion_err, plan_err,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{BinaryExpr, Expr, Like, Operator, expr::ScalarFunction, lit};
use regex::Regex;

use super::text_argument::{TextArgument, text_argument};

/// Rewrites SIMILAR TO to a regular expression, and doubles every `$` of a replacement, which is a plain character.
pub(super) fn translated(expr: Expr) -> Result<Expr, DataFusionError> {
    let rewrite = |node| match node {
        Expr::SimilarTo(like) => similar_to(like).map(Transformed::yes),
        Expr::ScalarFunction(call) if call.func.name() == "regexp_replace" => {
            Ok(Transformed::yes(Expr::ScalarFunction(with_plain_dollars(call)?)))
        }
        other => Ok(Transformed::no(other)),
    };
    expr.transform_up(rewrite).map(|transformed| transformed.data)
}

fn similar_to(like: Like) -> Result<Expr, DataFusionError> {
    let Like { negated, expr, pattern, escape_char, .. } = like;
    let regex = match text_argument(&pattern) {
        TextArgument::Literal(text) => similar::regex(text, escape_char.unwrap_or('\\'))
            .map(|regex| ScalarValue::Utf8(Some(regex)))
            .map_err(|reason| plan_datafusion_err!("the pattern '{text}' of SIMILAR TO is invalid: {reason}"))?,
        TextArgument::Null => ScalarValue::Utf8(None),
        TextArgument::Computed => return plan_err!("the pattern of SIMILAR TO must be a string literal"),
    };
    let op = if negated { Operator::RegexNotMatch } else { Operator::RegexMatch };
    Ok(Expr::BinaryExpr(BinaryExpr::new(expr, op, Box::new(lit(regex)))))
}

fn with_plain_dollars(mut call: ScalarFunction) -> Result<ScalarFunction, DataFusionError> {
    if let Some(replacement) = call.args.get_mut(2) {
        match text_argument(replacement) {
            TextArgument::Literal(text) => *replacement = lit(replacement_of(text)),
            TextArgument::Null => {}
            TextArgument::Computed => {
                let args = vec![replacement.clone(), lit("$"), lit("$$")];
                let func = super::functions::named("replace")?;
                *replacement = Expr::ScalarFunction(ScalarFunction { func, args });
            }
        }
    }
    Ok(call)
}

/// A replacement in the syntax of the `regex` crate. A group has one digit.
fn replacement_of(text: &str) -> String {
    static GROUP: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\\\\?(\d)").ok());
    let plain = text.replace('$', "$$");
    match GROUP.as_ref() {
        Some(group) => group.replace_all(&plain, "$${$1}").into_owned(),
        None => plain,
    }
}
