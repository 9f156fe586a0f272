//! Headers of tar archives: names, sizes and kinds of entries, and the records of POSIX that replace them.

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// The name of the next entry.
    LongName,
    /// Records about the next entry.
    Extension,
    /// Records that change no contents.
    Ignored,
    /// Any other entry, such as a link.
    Other(&'static str),
}

/// A header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TarHeader {
    /// The name, with folders.
    pub name: Vec<u8>,
    /// Bytes of the contents.
    pub size: u64,
    /// The kind.
    pub kind: EntryKind,
}

/// Properties of the next entry that its header does not hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// The name.
    pub name: Option<Vec<u8>>,
    /// Bytes of the contents.
    pub size: Option<u64>,
}

// === impl EntryKind ===

impl EntryKind {
    /// Whether it is an entry itself, and not about one.
    pub(crate) fn is_entry(self) -> bool {
        !matches!(self, Self::LongName | Self::Extension | Self::Ignored)
    }
}

// === impl TarHeader ===

impl TarHeader {
    /// Parses a block that is not all zeros.
    pub(crate) fn parse(block: &[u8; 512]) -> Result<Self, String> {
        check_sum(block)?;
        let size = number(&block[124..136]).ok_or("the size of an entry is not a number")?;
        let mut name = text(&block[..100]).to_vec();
        // GNU's format has other fields in the place of the prefix.
        let prefix = text(&block[345..500]);
        if block[257..263] == *b"ustar\0" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let kind = match block[156] {
            0 | b'0' if name.ends_with(b"/") => EntryKind::Folder,
            0 | b'0' | b'7' => EntryKind::File,
            b'5' => EntryKind::Folder,
            b'L' => EntryKind::LongName,
            b'x' => EntryKind::Extension,
            b'g' | b'K' => EntryKind::Ignored,
            b'1' => EntryKind::Other("a hard link"),
            b'2' => EntryKind::Other("a symbolic link"),
            b'3' | b'4' => EntryKind::Other("a device"),
            b'6' => EntryKind::Other("a pipe"),
            b'S' => EntryKind::Other("a sparse file"),
            _ => EntryKind::Other("of an unknown kind"),
        };
        Ok(Self { name, size, kind })
    }
}

/// Reads the records of an extended header: each is its length, a key and a value, such as `18 path=some/name`.
pub(crate) fn pax_overrides(mut records: &[u8], overrides: &mut Overrides) -> Result<(), String> {
    let unreadable = || "an extended header is not readable".to_owned();
    while !records.is_empty() {
        let space = records.iter().position(|byte| *byte == b' ').ok_or_else(unreadable)?;
        let length = parse_decimal(&records[..space]).and_then(|length| usize::try_from(length).ok());
        let record = length.and_then(|length| records.get(space + 1..length)).ok_or_else(unreadable)?;
        records = &records[space + 1 + record.len()..];
        let record = record.strip_suffix(b"\n").ok_or_else(unreadable)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(unreadable)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => overrides.name = Some(value.to_vec()),
            b"size" => overrides.size = Some(parse_decimal(value).ok_or_else(unreadable)?),
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err("an entry is a sparse file: write the archive without --sparse".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_sum(block: &[u8; 512]) -> Result<(), String> {
    let others = block[..148].iter().chain(&block[156..]);
    // The field itself is summed as eight spaces. Old programs summed bytes with a sign.
    let (unsigned, signed) = others.fold((256_i64, 256_i64), |(unsigned, signed), byte| {
        (unsigned + i64::from(*byte), signed + i64::from(byte.cast_signed()))
    });
    match number(&block[148..156]).and_then(|sum| i64::try_from(sum).ok()) {
        Some(sum) if sum == unsigned || sum == signed => Ok(()),
        _ => Err("the checksum of a header is wrong".to_owned()),
    }
}

/// A number in octal digits, or in binary where the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        // The bits after the first one; more than 64, or a sign, are no size.
        let first = u128::from(field[0] & 0x7f);
        let value = field[1..].iter().fold(first, |value, byte| (value << 8) | u128::from(*byte));
        return u64::try_from(value).ok();
    }
    let digits = field.split(|byte| *byte == 0).next()?.trim_ascii();
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn parse_decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The bytes before the first zero.
pub(crate) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &[u8], size: &[u8], kind: u8) -> [u8; 512] {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name);
        block[124..124 + size.len()].copy_from_slice(size);
        block[156] = kind;
        let sum = block.iter().map(|byte| u32::from(*byte)).sum::<u32>() + 256;
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    #[test]
    fn headers_have_name_size_and_kind() {
        let binary = [0x80, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0x01];
        for (name, size, kind, expected) in [
            (&b"a/b.jpg"[..], &b"00000000017\0"[..], b'0', Ok((15, EntryKind::File))),
            (b"old", b"     12 \0", 0, Ok((10, EntryKind::File))),
            (b"folder/", b"0", 0, Ok((0, EntryKind::Folder))),
            (b"large", &binary, b'0', Ok((0x2_0000_0001, EntryKind::File))),
            (b"link", b"0", b'2', Ok((0, EntryKind::Other("a symbolic link")))),
            (b"bad", b"19", b'0', Err("not a number")),
            (b"negative", &[0xff; 12], b'0', Err("not a number")),
        ] {
            let found = TarHeader::parse(&block(name, size, kind));
            match expected {
                Ok((size, kind)) => assert_eq!(found, Ok(TarHeader { name: name.to_vec(), size, kind })),
                Err(reason) => assert!(found.unwrap_err().contains(reason)),
            }
        }
        let mut flipped = block(b"a", b"1", b'0');
        flipped[0] ^= 1;
        assert!(TarHeader::parse(&flipped).unwrap_err().contains("checksum"));
    }

    #[test]
    fn extended_headers_replace_name_and_size() {
        let mut overrides = Overrides::default();
        pax_overrides(b"19 path=some/n=ame\n11 size=77\n12 mtime=1.5\n", &mut overrides).unwrap_err();
        pax_overrides(b"19 path=some/n=ame\n11 size=77\n13 mtime=1.5\n", &mut overrides).unwrap();
        assert_eq!(overrides, Overrides { name: Some(b"some/n=ame".to_vec()), size: Some(77) });
        for bad in [&b"5"[..], b"99 path=a\n", b"0 path=a\n", b"8 path=ab", b"7 path\n", b"12 size=-1\n", b"-1 a=b\n"] {
            assert!(pax_overrides(bad, &mut overrides).is_err(), "{bad:?}");
        }
        let sparse = pax_overrides(b"22 GNU.sparse.major=1\n", &mut overrides);
        assert!(sparse.unwrap_err().contains("sparse"));
    }
}
