//! Values of options as fio writes them.

use std::time::Duration;

use diorite_block::IoPriority;

use super::check::Check;
use super::spec::{BlockSizes, Engine, Pattern, Size, Tolerance};

pub(super) fn priority(class: Option<u64>, level: Option<u8>) -> IoPriority {
    match class {
        Some(1) => IoPriority::RealTime(level.unwrap_or(4)),
        Some(3) => IoPriority::Idle,
        _ => IoPriority::BestEffort(level.unwrap_or(4)),
    }
}

/// `read`, `read:-8k` (a step between sequential transfers), `randread:8` (transfers in sequence at each offset).
pub(super) fn pattern(value: &str) -> Result<(Pattern, i64, u32), &'static str> {
    let (name, modifier) = value.split_once(':').map_or((value, None), |(name, rest)| (name, Some(rest)));
    let pattern = match name {
        "read" => Pattern::Read,
        "write" => Pattern::Write,
        "randread" => Pattern::RandomRead,
        "randwrite" => Pattern::RandomWrite,
        "rw" | "readwrite" => Pattern::Mixed,
        "randrw" => Pattern::RandomMixed,
        "trim" | "randtrim" | "trimwrite" => {
            return Err("not supported; use read or write, or run the file with fio on a mount");
        }
        _ => return Err("expected read, write, randread, randwrite, rw or randrw"),
    };
    let Some(modifier) = modifier else { return Ok((pattern, 0, 1)) };
    if pattern.is_random() {
        let run = modifier.parse().ok().filter(|run| *run > 0);
        return run.map(|run| (pattern, 0, run)).ok_or("expected a number of transfers after the colon");
    }
    let (sign, bytes) = modifier.strip_prefix('-').map_or((1, modifier), |bytes| (-1, bytes));
    let bytes: i64 = size(bytes)?.try_into().map_err(|_| "the size is too large")?;
    Ok((pattern, sign * bytes, 1))
}

pub(super) fn engine(value: &str) -> Result<(String, Engine), &'static str> {
    let engine = match value {
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => Engine::Synchronous,
        "io_uring" | "libaio" | "posixaio" => Engine::Queue,
        "mmap" => return Err("mapped files are not supported; choose psync"),
        _ => {
            return Err(
                "not an engine for files; choose sync, psync, vsync, pvsync, pvsync2, io_uring, libaio or \
                 posixaio",
            );
        }
    };
    Ok((value.to_owned(), engine))
}

pub(super) fn verify(value: &str) -> Result<Check, String> {
    let names = || Check::NAMES.map(|(name, _)| name).join(", ");
    Check::named(value).ok_or_else(|| format!("expected one of {}", names()))
}

const BLOCK: &str = "expected a block size such as 4k, 1m or 4k,64k (reads, writes)";

fn block(text: &str) -> Result<u64, &'static str> {
    match size(text) {
        Ok(0) | Err(_) => Err(BLOCK),
        Ok(bytes) if bytes > 1 << 30 => Err("the largest block is 1g"),
        Ok(bytes) => Ok(bytes),
    }
}

/// Values of reads and writes, separated by a comma. A missing value repeats the last one; an empty one is `empty`. A third value, of fio's
/// trims, has no effect.
fn by_direction<T: Clone, E>(
    value: &str,
    empty: &T,
    read: impl Fn(&str) -> Result<T, E>,
    too_many: E,
) -> Result<[T; 2], E> {
    let mut values = Vec::new();
    for part in value.split(',') {
        values.push(if part.is_empty() { empty.clone() } else { read(part)? });
    }
    match values.as_slice() {
        [all] => Ok([all.clone(), all.clone()]),
        [reads, writes] | [reads, writes, _] => Ok([reads.clone(), writes.clone()]),
        _ => Err(too_many),
    }
}

/// `bs=4k` or `bs=4k,64k` (reads, writes).
pub(super) fn block_sizes(value: &str) -> Result<[BlockSizes; 2], &'static str> {
    by_direction(value, &BlockSizes::fixed(4096), |text| block(text).map(BlockSizes::fixed), BLOCK)
}

/// `bsrange=1k-4k` or `bsrange=1k-4k,2k-8k`.
pub(super) fn block_ranges(value: &str) -> Result<[BlockSizes; 2], &'static str> {
    const EXPECTED: &str = "expected a range of block sizes such as 1k-4k";
    let range = |text: &str| {
        let (least, most) = text.split_once(['-', ':']).ok_or(EXPECTED)?;
        let (least, most) = (block(least)?, block(most)?);
        if least > most { Err(EXPECTED) } else { Ok(BlockSizes::range(least, most)) }
    };
    by_direction(value, &BlockSizes::fixed(4096), range, EXPECTED)
}

/// `bssplit=4k/10:64k/50:32k/40` or one for reads and one for writes.
pub(super) fn block_splits(value: &str) -> Result<[BlockSizes; 2], &'static str> {
    const EXPECTED: &str = "expected a list such as 4k/60:64k/40 with at most 100 percent";
    let split = |text: &str| {
        let mut sizes = Vec::new();
        for part in text.split(':') {
            let (bytes, percent) = part.split_once('/').unwrap_or((part, ""));
            let percent = match percent {
                "" => None,
                number => Some(number.parse::<u8>().ok().filter(|number| *number <= 100).ok_or(EXPECTED)?),
            };
            sizes.push((block(bytes)?, percent));
        }
        BlockSizes::split(&sizes).ok_or(EXPECTED)
    };
    by_direction(value, &BlockSizes::fixed(4096), split, EXPECTED)
}

/// `size=10g` or `size=50%`.
pub(super) fn size_or_share(value: &str) -> Result<Size, &'static str> {
    match value.strip_suffix('%') {
        None => size(value).map(Size::Bytes),
        Some(percent) => {
            let percent = percent.parse().ok().filter(|percent| *percent <= 100);
            percent.map(Size::Percent).ok_or("expected a share from 0% to 100%")
        }
    }
}

/// `filesize=4k` or `filesize=4k-64k`.
pub(super) fn file_sizes(value: &str) -> Result<(u64, u64), &'static str> {
    let (least, most) = value.split_once('-').unwrap_or((value, value));
    let (least, most) = (size(least)?, size(most)?);
    if least == 0 || least > most {
        Err("expected a size of files, or a range such as 4k-64k")
    } else {
        Ok((least, most))
    }
}

/// `rate=1m`, or `rate=1m,500k` (reads, writes), or `rate=,500k`.
pub(super) fn rates(value: &str) -> Result<[Option<u64>; 2], &'static str> {
    let rate = |text: &str| size(text).map(|rate| Some(rate).filter(|rate| *rate > 0));
    by_direction(value, &None, rate, "expected at most three rates")
}

pub(super) fn preallocate(value: &str) -> Result<bool, &'static str> {
    match value {
        "none" | "0" => Ok(false),
        "native" | "posix" | "1" => Ok(true),
        _ => Err("expected none, native or posix; for others run the file with fio on a mount"),
    }
}

/// `none`, `read`, `write`, `io`, `verify`, `all`.
pub(super) fn tolerance(value: &str) -> Result<Tolerance, &'static str> {
    let (reads, writes, verify) = match value {
        "none" | "0" => (false, false, false),
        "read" => (true, false, false),
        "write" => (false, true, false),
        "io" => (true, true, false),
        "verify" => (false, false, true),
        "all" | "1" => (true, true, true),
        _ => return Err("expected none, read, write, io, verify or all"),
    };
    Ok(Tolerance { reads, writes, verify })
}

/// `0xaa555aa5`, `"text"`, a decimal number: the bytes that are repeated.
pub(super) fn byte_pattern(value: &str) -> Result<Vec<u8>, &'static str> {
    const EXPECTED: &str = "expected a pattern such as 0xdeadbeef, 170 or \"text\"";
    if let Some(text) =
        value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|text| !text.is_empty())
    {
        return Ok(text.as_bytes().to_vec());
    }
    if let Some(digits) = value.strip_prefix("0x").filter(|digits| !digits.is_empty() && digits.len() <= 1024)
    {
        let digits = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
        let bytes = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
        return bytes.collect::<Option<_>>().ok_or(EXPECTED);
    }
    let number: u32 = value.parse().map_err(|_| EXPECTED)?;
    let bytes = number.to_le_bytes();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    Ok(bytes[..used].to_vec())
}

/// A decimal number, or a hexadecimal one after `0x`.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// A number with one of fio's size suffixes.
pub(super) fn size(value: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "expected a size such as 4096, 0x1000, 64k, 1m or 2g";
    let hex =
        value.len() - value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")).unwrap_or(value).len();
    let is_digit = |c: char| if hex > 0 { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let end = value[hex..].find(|c: char| !is_digit(c)).map_or(value.len(), |at| hex + at);
    let number = whole_number(&value[..end]).ok_or(EXPECTED)?;
    let suffix = value[end..].to_ascii_lowercase();
    let prefix = suffix.strip_suffix('b').unwrap_or(&suffix);
    // As in fio, powers of 1000 have the `i` that elsewhere means 1024.
    let (unit, base) = prefix.strip_suffix('i').map_or((prefix, 1024u64), |unit| (unit, 1000));
    let power = match unit {
        "" if base == 1024 => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(EXPECTED),
    };
    number.checked_mul(base.pow(power)).ok_or("the size is too large")
}

/// A time; a bare number is seconds.
pub(super) fn duration(value: &str) -> Result<Duration, &'static str> {
    time(value, Duration::from_secs(1))
}

/// A time; a bare number is microseconds.
pub(super) fn microseconds(value: &str) -> Result<Duration, &'static str> {
    time(value, Duration::from_micros(1))
}

fn time(value: &str, unit: Duration) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "expected a time such as 10, 500ms, 30s or 2m";
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u32 = value[..digits].parse().map_err(|_| EXPECTED)?;
    let unit = match &value[digits..] {
        "" => unit,
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "d" => Duration::from_secs(86400),
        "ns" => Duration::from_nanos(1),
        _ => return Err(EXPECTED),
    };
    unit.checked_mul(number).ok_or("the time is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_have_values_of_their_own() {
        assert_eq!(rates("300").unwrap(), [Some(300); 2]);
        assert_eq!(rates(",500k").unwrap(), [None, Some(500 << 10)]);
        assert!(rates("1,2,3,4").is_err());
    }

    #[test]
    fn splits_are_shares_and_what_is_left() {
        let [reads, writes] = block_splits("4k/10:64k/50:32k,2k/50:4k:8k").unwrap();
        assert_eq!([0.05, 0.15, 0.59, 0.65, 0.99].map(|at| reads.pick(at, false) >> 10), [4, 64, 64, 32, 32]);
        assert_eq!([0.4, 0.6, 0.9].map(|at| writes.pick(at, false) >> 10), [2, 4, 8]);
        assert!(block_splits("4k/60:8k/60").is_err());
        let [range, ..] = block_ranges("4k-16k").unwrap();
        assert_eq!([0.0, 0.3, 0.6, 0.99].map(|at| range.pick(at, false) >> 10), [4, 8, 12, 16]);
        assert_eq!(range.pick(0.3, true), 4096 + 4915);
    }

    /// fio takes them, and job files that were made for it have them.
    #[test]
    fn numbers_may_be_hexadecimal_and_sizes_shares() {
        assert_eq!(
            ["0x1000", "0X100k", "0xffG"].map(|text| size(text).unwrap()),
            [4096, 256 << 10, 255 << 30]
        );
        assert_eq!(whole_number("0x10"), Some(16));
        assert_eq!(size_or_share("0x200").unwrap(), Size::Bytes(512));
        assert_eq!(size_or_share("25%").unwrap(), Size::Percent(25));
        for wrong in ["0x", "0xk", "x10", "101%", "-1%"] {
            assert!(size_or_share(wrong).is_err(), "{wrong}");
        }
    }

    /// `kib` was read as `kb`.
    #[test]
    fn suffixes_mean_what_they_mean_in_fio() {
        let sizes = ["7", "7b", "4k", "4KB", "4ki", "4KiB", "1m", "1mib", "2tb", "1ti", "1p"];
        let bytes = [7, 7, 4096, 4096, 4000, 4000, 1 << 20, 1_000_000, 2 << 40, 1_000_000_000_000, 1 << 50];
        assert_eq!(sizes.map(|text| size(text).unwrap()), bytes);
        for wrong in ["", "k", "4i", "4ib", "4bb", "4kk", "4q", "16384p"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_have_steps() {
        assert_eq!(pattern("read:-8k").unwrap(), (Pattern::Read, -8192, 1));
        assert_eq!(pattern("write:112k").unwrap(), (Pattern::Write, 112 << 10, 1));
        assert_eq!(pattern("randread:4").unwrap(), (Pattern::RandomRead, 0, 4));
        assert_eq!(byte_pattern("0xaa555aa5").unwrap(), [0xaa, 0x55, 0x5a, 0xa5]);
        assert_eq!(byte_pattern("170").unwrap(), [170]);
    }
}
