//! Parses SQL text to a logical expression, within limits on its length, operators and nesting.

use datafusion_common::{
    DFSchema, DataFusionError,
    tree_node::{TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{Expr, Volatility};
use datafusion_sql::{
    parser::DFParserBuilder,
    planner::{ParserOptions, PlannerContext, SqlToRel},
    sqlparser::{
        ast::ExprWithAlias,
        dialect::GenericDialect,
        keywords::Keyword,
        tokenizer::{Token, Tokenizer},
    },
};

use super::{
    aliases,
    error::{ExprError, first_sentence, unusable},
    functions::Functions,
    numbers, rewrite, type_names,
};

/// The longest expression.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// The most operators and keywords in an expression, not counting commas and literals. They bound the depth of the
/// tree, which is walked by recursion, and the time to type it, which is quadratic in them.
pub const OPERATORS_MAX: usize = 256;

/// The deepest nesting of parentheses and calls.
const NESTING_MAX: usize = 64;

/// The number of operators of an expression, as [`OPERATORS_MAX`] counts them; 0 for a text that is too long or not
/// SQL.
pub fn operator_count(text: &str) -> usize {
    if text.len() > TEXT_BYTES_MAX {
        return 0;
    }
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap_or_default();
    tokens.iter().filter(|token| is_operator(token)).count()
}

pub(super) fn parse(text: &str, short: &str) -> Result<ExprWithAlias, ExprError> {
    let syntax = |reason: String| ExprError::Syntax { text: short.to_owned(), reason };
    if text.trim().is_empty() {
        return Err(syntax("it is empty".to_owned()));
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(syntax(format!("it has {} bytes, the limit is {TEXT_BYTES_MAX}", text.len())));
    }
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize().map_err(|source| syntax(source.to_string()))?;
    let operators = tokens.iter().filter(|token| is_operator(token)).count();
    if operators > OPERATORS_MAX {
        return Err(syntax(format!("it has {operators} operators, the limit is {OPERATORS_MAX}; try IN (…)")));
    }
    let parsed = DFParserBuilder::new(text)
        .with_dialect(&dialect)
        .with_recursion_limit(NESTING_MAX)
        .build()
        .and_then(|mut parser| parser.parse_into_expr())
        .map_err(|source| syntax(first_sentence(&source)))?;
    if let Some(alias) = &parsed.alias {
        return Err(syntax(format!("AS {alias} is not allowed in an expression")));
    }
    type_names::check_names(&parsed.expr).map_err(|reason| ExprError::Unusable { text: short.to_owned(), reason })?;
    Ok(parsed)
}

/// Whether a token can make the tree deeper: any but commas, parentheses, literals, names and whitespace.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.keyword != Keyword::NoKeyword,
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Whitespace(_)
        | Token::Comma
        | Token::LParen
        | Token::RParen
        | Token::EOF => false,
        _ => true,
    }
}

pub(super) fn to_logical(mut sql: ExprWithAlias, schema: &DFSchema, lower_case: bool) -> Result<Expr, DataFusionError> {
    numbers::keep_digits(&mut sql.expr);
    aliases::expand(&mut sql.expr).map_err(DataFusionError::Plan)?;
    let context = Functions::default();
    let options = ParserOptions::new()
        .with_enable_ident_normalization(lower_case)
        .with_collect_spans(false)
        .with_parse_float_as_decimal(true);
    SqlToRel::new_with_options(&context, options).sql_to_expr(sql.expr, schema, &mut PlannerContext::new())
}

/// Rejects expressions whose value depends on anything but one row: a batch must be the same on every replica, at any
/// time.
pub(super) fn check_stable(expr: &Expr, short: &str) -> Result<(), ExprError> {
    let mut rejected = None;
    let walked = expr.apply(|node| {
        rejected = match node {
            Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
                Some(format!("{}() returns different values over time: batches must be reproducible", call.func.name()))
            }
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) => Some(
                "aggregate and window functions are not supported: an expression must be computed from one row"
                    .to_owned(),
            ),
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => {
                Some("subqueries are not supported".to_owned())
            }
            node if rewrite::is_ambiguous(node) => Some(rewrite::AMBIGUOUS.to_owned()),
            Expr::Placeholder(_) | Expr::ScalarVariable(..) => Some("placeholders are not supported".to_owned()),
            _ => None,
        };
        Ok(if rejected.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    match (walked, rejected) {
        (Err(source), _) => Err(unusable(short, &source)),
        (Ok(_), Some(reason)) => Err(ExprError::Unusable { text: short.to_owned(), reason }),
        (Ok(_), None) => Ok(()),
    }
}
