//! The flags, the width and the precision of a directive in a format: `%-10s`, `%05a`, `%.3Y`, as in printf(3).

/// A wider column is a mistake.
const WIDTH_MAX: usize = 4096;

/// How a value is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    padding: Padding,
    sign: Option<u8>,
    /// With the prefix of the number's base.
    pub(crate) alternate: bool,
    width: usize,
    precision: Option<Precision>,
}

/// Where a value that is shorter than its column is padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Padding {
    #[default]
    Spaces,
    /// Zeros, for numbers.
    Zeros,
    /// Spaces after the value.
    After,
}

/// The number after the point of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// No number: `%.Y`.
    Unstated,
    Of(usize),
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The precision cuts it.
    Text,
    /// A number without a sign. The precision is its least number of digits.
    Unsigned,
    /// As `Unsigned`, with a sign.
    Signed,
}

fn number(text: &mut &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    std::str::from_utf8(number).ok()?.parse().ok().map(|number: usize| number.min(WIDTH_MAX))
}

impl Layout {
    /// Take the layout from the start of a text.
    pub(crate) fn parse(text: &mut &[u8]) -> Self {
        let mut layout = Self::default();
        while let [flag @ (b'-' | b'0' | b'+' | b'#' | b' ' | b'\'' | b'I'), rest @ ..] = *text {
            match flag {
                b'-' => layout.padding = Padding::After,
                b'0' if layout.padding == Padding::Spaces => layout.padding = Padding::Zeros,
                b'+' => layout.sign = Some(b'+'),
                b' ' => layout.sign = layout.sign.or(Some(b' ')),
                b'#' => layout.alternate = true,
                // Digits of the locale.
                _ => {}
            }
            *text = rest;
        }
        layout.width = number(text).unwrap_or(0);
        if let [b'.', rest @ ..] = *text {
            *text = rest;
            layout.precision = Some(number(text).map_or(Precision::Unstated, Precision::Of));
        }
        layout
    }

    /// Take the precision, for a value that has its own rule for it.
    pub(crate) fn take_precision(&mut self) -> Option<Precision> {
        self.precision.take()
    }

    /// Add a value to a text.
    pub(crate) fn push(self, value: &[u8], kind: Kind, out: &mut Vec<u8>) {
        let precision = self.precision.map(|precision| match precision {
            Precision::Unstated => 0,
            Precision::Of(number) => number,
        });
        if kind == Kind::Text {
            let value = &value[..precision.unwrap_or(value.len()).min(value.len())];
            return self.pad(b"", value, b' ', out);
        }
        let (sign, digits): (&[u8], &[u8]) = match value {
            [b'-', digits @ ..] => (b"-", digits),
            [b'0', b'x', digits @ ..] => (b"0x", digits),
            digits if kind == Kind::Signed => (self.sign.as_slice(), digits),
            digits => (b"", digits),
        };
        let zeros = precision.unwrap_or(0).saturating_sub(digits.len());
        let digits = [&vec![b'0'; zeros], digits].concat();
        // As in printf(3), zeros fill the column only without a precision.
        let has_zeros = self.padding == Padding::Zeros && precision.is_none();
        self.pad(sign, &digits, if has_zeros { b'0' } else { b' ' }, out);
    }

    fn pad(self, sign: &[u8], value: &[u8], pad: u8, out: &mut Vec<u8>) {
        let padding = vec![pad; self.width.saturating_sub(sign.len() + value.len())];
        let parts: [&[u8]; 3] = match (self.padding, pad) {
            (Padding::After, _) => [sign, value, &padding],
            (_, b'0') => [sign, &padding, value],
            _ => [&padding, sign, value],
        };
        out.extend(parts.concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_printf() {
        for (directive, value, kind, wanted) in [
            ("", "6", Kind::Signed, "6"),
            ("5", "6", Kind::Signed, "    6"),
            ("-5", "6", Kind::Signed, "6    "),
            ("05", "6", Kind::Signed, "00006"),
            ("-05", "6", Kind::Signed, "6    "),
            ("+5", "6", Kind::Signed, "   +6"),
            ("+05", "-6", Kind::Signed, "-0006"),
            (" ", "6", Kind::Signed, " 6"),
            ("+", "6", Kind::Unsigned, "6"),
            ("08", "0x1f", Kind::Unsigned, "0x00001f"),
            (".3", "6", Kind::Unsigned, "006"),
            ("05.3", "6", Kind::Unsigned, "  006"),
            (".3", "abcd", Kind::Text, "abc"),
            ("05", "ab", Kind::Text, "   ab"),
            ("-4", "ab", Kind::Text, "ab  "),
            (".", "ab", Kind::Text, ""),
        ] {
            let mut rest = directive.as_bytes();
            let mut out = Vec::new();
            Layout::parse(&mut rest).push(value.as_bytes(), kind, &mut out);
            assert_eq!((String::from_utf8_lossy(&out).as_ref(), rest), (wanted, &b""[..]), "{directive:?}");
        }
    }
}
