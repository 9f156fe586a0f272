//! Rust sources without what the tests of layering do not read: comments, literals and test code.

/// Returns a source's code: comments are dropped, literals are emptied, and items under `#[cfg(test)]` are left out.
pub(crate) fn code(text: &str) -> String {
    without_test_items(&without_literals(text))
}

fn without_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let skipped = skipped_bytes(rest, code.chars().next_back());
        if skipped > 0 {
            code.push(if rest.starts_with('/') { '\n' } else { ' ' });
            rest = &rest[skipped..];
        } else {
            code.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    code
}

/// Returns the length of the comment or literal that a text starts with; 0 if it starts with code.
fn skipped_bytes(text: &str, before: Option<char>) -> usize {
    let is_in_word = before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let hashes = text.strip_prefix('r').map_or(0, |rest| rest.len() - rest.trim_start_matches('#').len());
    let is_raw = !is_in_word && text.starts_with('r') && text[1 + hashes..].starts_with('"');
    if text.starts_with("//") {
        text.find('\n').unwrap_or(text.len())
    } else if text.starts_with("/*") {
        text.find("*/").map_or(text.len(), |end| end + 2)
    } else if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = 2 + hashes;
        text[start..].find(&end).map_or(text.len(), |found| start + found + end.len())
    } else if text.starts_with('"') {
        quoted_bytes(text, '"')
    } else if text.starts_with("'\\") || text.chars().nth(2) == Some('\'') && text.starts_with('\'') {
        quoted_bytes(text, '\'')
    } else {
        0
    }
}

fn quoted_bytes(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (index, letter) in text.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if letter == quote => return index + quote.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn without_test_items(code: &str) -> String {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(ATTRIBUTE) {
        kept.push_str(&rest[..start]);
        let item = &rest[start + ATTRIBUTE.len()..];
        rest = &item[item_bytes(item)..];
    }
    kept + rest
}

/// Returns the length of an item: up to its closing brace, or to a semicolon outside braces.
fn item_bytes(item: &str) -> usize {
    let mut depth = 0;
    for (index, letter) in item.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(letter, '}' | ';') {
            return index + 1;
        }
    }
    item.len()
}

#[test]
fn only_code_is_kept() {
    let text = "use a::b; // c::d\n/* e */ let x = \"f \\\" g\"; let y = r#\"h\"i\"#; let z = ('\"', 'j', '\\'');\n\
                fn k<'l>(m: &'l str) {}\n#[cfg(test)]\nmod tests { fn n() {} }\nfn o() {}\n#[cfg(test)]\nmod p;\n";
    let words = code(text).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words, "use a::b; let x = ; let y = ; let z = ( , , ); fn k<'l>(m: &'l str) {} fn o() {}");
}
