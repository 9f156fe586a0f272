//! Inputs that nest deeply, from few bytes: `{9000:List(}` is `List(` 9000 times.
//!
//! A mutation of such an input changes how deep it nests and what is nested, also inside the literals of other languages:
//! names of types, regular expressions and JSON in strings of SQL.

/// The most bytes of an input with its repetitions.
const BYTES_MAX: usize = 256 << 10;

/// The input with every repetition expanded, as far as it fits.
pub(crate) fn written_out(data: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(data.len()), data);
    while let Some((first, after)) = rest.split_first() {
        if let Some((times, text, end)) = repetition(rest) {
            let room = BYTES_MAX.saturating_sub(out.len()) / text.len().max(1);
            (0..times.min(room)).for_each(|_| out.extend_from_slice(text));
            rest = end;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

/// The number, the text and what follows of a repetition at the start.
fn repetition(data: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let inside = data.strip_prefix(b"{")?;
    let colon = inside.iter().position(|byte| !byte.is_ascii_digit()).filter(|colon| inside[*colon] == b':')?;
    let times = str::from_utf8(&inside[..colon]).ok()?.parse().ok()?;
    let text = &inside[colon + 1..];
    let end = text.iter().position(|byte| *byte == b'}')?;
    Some((times, &text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::written_out;

    #[test]
    fn repetitions_are_written_out_and_other_braces_kept() {
        assert_eq!(written_out(b"f('{3:L(}x{3:)}')"), b"f('L(L(L(x)))')");
        for same in ["{\"a\": {}}", "a{2}", "{3:ab", "{:a}", "{99999999999999999999999:a}", "{3a:b}", ""] {
            assert_eq!(written_out(same.as_bytes()), same.as_bytes());
        }
        assert_eq!(written_out(b"{5:}x"), b"x");
        assert_eq!(written_out(b"{4000000000:ab}").len(), 256 << 10);
    }
}
