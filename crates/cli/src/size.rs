//! Sizes with units, as in coreutils: `4096`, `4K`, `512M` and `1.5GiB` are powers of 1024, `4KB` and `1.5GB` are powers of 1000.

use std::str::FromStr;

use diorite_copy::Slack;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// The size of a new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageSize {
    /// As small as possible.
    Fit,
    Bytes(Size),
}

impl FromStr for ImageSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "fit" { Ok(Self::Fit) } else { text.parse().map(Self::Bytes) }
    }
}

/// Free space: `64M` or `10%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlackSize(pub(crate) Slack);

impl FromStr for SlackSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse::<Size>().map(|size| Self(Slack::Bytes(size.0)));
        };
        match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..=10_000.0).contains(&percent) => Ok(Self(Slack::Percent(percent))),
            _ => {
                Err(format!("`{text}` is not a percentage; write a number from 0 to 10000, for instance 10%"))
            }
        }
    }
}

const UNITS: &str = "KMGTPE";

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size; write a number of bytes, or 4K, 512M, 1.5G");
        let upper = text.trim().to_ascii_uppercase();
        let (bare, base) = match upper.strip_suffix("IB") {
            Some(bare) => (bare, 1024),
            None => upper.strip_suffix('B').map_or((&*upper, 1024u64), |bare| (bare, 1000)),
        };
        let unit = bare.chars().last().and_then(|last| UNITS.find(last));
        let (number, factor) = match unit {
            Some(index) => (&bare[..bare.len() - 1], base.pow(index as u32 + 1)),
            None => (bare, 1),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Size).ok_or_else(wrong);
        }
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = value * factor as f64;
        if bytes.is_finite() && (0.0..u64::MAX as f64).contains(&bytes) && factor > 1 {
            Ok(Self(bytes.round() as u64))
        } else {
            Err(wrong())
        }
    }
}

/// A count with its noun.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A size in a sentence: `1 byte`, `1.5K`.
pub(crate) fn size_in_words(bytes: u64) -> String {
    if bytes < 1024 { counted(bytes, "byte", "bytes") } else { human(bytes) }
}

/// At most four characters and a unit: `1023`, `1.5K`, `512M`.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64;
    let mut unit = ' ';
    for next in UNITS.chars() {
        value /= 1024.0;
        unit = next;
        // A value that would round to 1024 belongs to the next unit.
        if value < 1023.5 {
            break;
        }
    }
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(read("4096"), Ok(4096));
        assert_eq!(read("4k"), Ok(4096));
        assert_eq!(read("1.5G"), Ok(3 << 29));
        assert_eq!(read("2MiB"), Ok(2 << 20));
        assert_eq!((read("1GB"), read("1.5kB"), read("7B")), (Ok(1_000_000_000), Ok(1500), Ok(7)));
        for wrong in ["", "x", "-1", "1.5", "99999999999G", "1e30G", "nanG", "4KK", "16E"] {
            assert!(read(wrong).is_err(), "{wrong}: {:?}", read(wrong));
        }
    }

    #[test]
    fn human_sizes_are_short() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (10 << 20, "10M"),
            ((1 << 20) - 1, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }
}
