//! The functions of typed expressions as text, for plans that other processes run. SQL cannot call most of them by name,
//! and those that have the name of one of DataFusion's must not become that one.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_expr::{Operator, ScalarUDF};

use super::{
    decimals::{floats as nearest, whole},
    floats,
    functions::{extreme, own_functions, shift, span, zoned},
    unsigned::exact,
};

/// What separates the name of a function from its type.
const SEPARATOR: char = '\n';

/// The functions whose result type is a parameter.
const TYPED: [&str; 4] = ["minus_interval", "nearest_float", "plus_interval", "zoned"];

/// A function as text; `None` if it is one of DataFusion's.
pub fn encode_function(function: &ScalarUDF) -> Option<String> {
    let result = TYPED.contains(&function.name()).then(|| function.return_type(&[]).ok()).flatten();
    let found = functions(result.as_ref()).into_iter().find(|(_, known)| known.as_ref() == function);
    found.map(|(name, _)| match result {
        Some(result) => format!("{name}{SEPARATOR}{result}"),
        None => name,
    })
}

/// The function of a text.
pub fn decode_function(text: &str) -> Option<Arc<ScalarUDF>> {
    let (name, result) = match text.split_once(SEPARATOR) {
        Some((name, result)) => (name, Some(result.parse::<DataType>().ok()?)),
        None => (text, None),
    };
    functions(result.as_ref()).into_iter().find(|(known, _)| known == name).map(|(_, function)| function)
}

/// Every function with its name in texts, those with a result type only of this one.
fn functions(result: Option<&DataType>) -> Vec<(String, Arc<ScalarUDF>)> {
    let both = [false, true];
    if let Some(result) = result {
        let shifts = both.map(|subtract| (format!("shift {subtract}"), shift::function(subtract, result.clone())));
        let mut found = Vec::from(shifts);
        match result {
            DataType::Timestamp(unit, Some(zone)) => {
                found.extend(both.map(|is_try| (format!("zoned {is_try}"), zoned::function(*unit, zone, is_try))));
            }
            data_type if data_type.is_floating() => {
                found.push(("nearest".to_owned(), nearest::function(data_type.clone())));
            }
            _ => {}
        }
        return found;
    }
    let operators = [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide, Operator::Modulo];
    let operations = operators.into_iter().flat_map(|op| both.map(|is_unsigned| (op, is_unsigned)));
    let operations = operations
        .map(|(op, is_unsigned)| (format!("operation {op} {is_unsigned}"), exact::operation(op, is_unsigned)));
    let of_both = both.into_iter().flat_map(|yes| {
        [
            (format!("narrow {yes}"), exact::narrow(yes)),
            (format!("whole {yes}"), whole::function(yes)),
            (format!("extreme {yes}"), extreme::function(yes)),
        ]
    });
    let named = own_functions().map(|function| (format!("named {}", function.name()), function));
    let single = [("canonical".to_owned(), floats::canonical_function()), ("length".to_owned(), span::function())];
    operations.chain(of_both).chain(named).chain(single).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn functions_are_themselves_after_text() {
        let zone: Arc<str> = "America/New_York".into();
        let types = [
            DataType::Date32,
            DataType::Float16,
            DataType::Float64,
            DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(TimeUnit::Nanosecond, Some(zone)),
        ];
        let mut texts = HashSet::new();
        for result in types.iter().map(Some).chain([None]) {
            for (_, function) in functions(result) {
                let text = encode_function(&function).unwrap();
                assert_eq!(decode_function(&text).unwrap(), function, "{text}");
                assert!(texts.insert(text));
            }
        }
        assert!(texts.contains("named date_trunc"));
        assert_eq!(encode_function(&datafusion_functions::math::ceil()), None);
        assert!(decode_function("named abs").is_none());
    }
}
