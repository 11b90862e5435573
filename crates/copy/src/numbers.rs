//! Numbers in tar headers.
//!
//! On disk: octal digits as text, or a first byte with its highest bit set and then a big-endian number in two's complement (GNU tar
//! manual, "Basic Tar Format"; star(5)). The crate `tar` reads the last eight bytes of a field only, so that a larger number wraps.

use std::ops::RangeInclusive;

/// Maximum of a user or group number: the highest 32-bit number means "none".
pub(crate) const OWNERS: RangeInclusive<i128> = 0..=u32::MAX as i128 - 1;
/// Permission bits, and the kind of file that old archives have above them.
pub(crate) const MODES: RangeInclusive<i128> = 0..=0o177_777;
/// Sizes of files.
pub(crate) const SIZES: RangeInclusive<i128> = 0..=i64::MAX as i128;
/// Seconds since 1970.
pub(crate) const SECONDS: RangeInclusive<i128> = i64::MIN as i128..=i64::MAX as i128;
/// Major and minor numbers of devices in Linux.
pub(crate) const MAJORS: RangeInclusive<i128> = 0..=0xfff;
pub(crate) const MINORS: RangeInclusive<i128> = 0..=0xf_ffff;

/// The number in a field of a header, of at most twelve bytes.
pub(crate) fn field(bytes: &[u8]) -> Option<i128> {
    let (first, rest) = bytes.split_first()?;
    if first & 0x80 == 0 {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let digits = std::str::from_utf8(&bytes[..end]).ok()?.trim();
        return i128::from_str_radix(digits, 8).ok();
    }
    // The second highest bit is the sign.
    let high = i128::from(first & 0x7f) - i128::from(first & 0x40) * 2;
    Some(rest.iter().fold(high, |number, byte| number << 8 | i128::from(*byte)))
}

/// The number in a pax record.
pub(crate) fn record(text: &[u8]) -> Option<i128> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The number called `what`, if it is in `range`. The error continues a sentence about the entry.
pub(crate) fn checked<T: TryFrom<i128>>(
    what: &str,
    number: Option<i128>,
    range: &RangeInclusive<i128>,
) -> Result<T, String> {
    let number = number.ok_or_else(|| format!("its {what} is not a number"))?;
    let narrow = || T::try_from(number).ok().filter(|_| range.contains(&number));
    narrow().ok_or_else(|| format!("its {what} is {number}, outside of {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_octal_or_two_s_complement() {
        assert_eq!(field(b"0000644\0"), Some(0o644));
        assert_eq!(field(b"   644 \0"), Some(0o644));
        assert_eq!(field(b"77777777777\0"), Some(0o77_777_777_777));
        for blank in [&b"\0\0\0\0\0\0\0\0"[..], b"        ", b"0000008\0", b"-1\0\0\0\0\0\0"[..].as_ref()] {
            assert!(field(blank).is_none_or(|number| number < 0), "{blank:?}");
        }
        assert_eq!(field(b"\x80\0\0\x01\0\0\0\0"), Some(1 << 32));
        assert_eq!(field(b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        // The crate sees the last eight bytes, which are 5.
        assert_eq!(field(b"\x80\0\0\x01\0\0\0\0\0\0\0\x05"), Some((1 << 64) + 5));
        assert!(checked::<u64>("size", field(b"\x80\0\0\x01\0\0\0\0\0\0\0\x05"), &SIZES).is_err());
    }
}
