//! The answer for a group in one sentence.

use std::fmt::Write as _;

use super::{Choice, GroupAdvice, SAME};
use crate::group::Pattern;
use crate::predict::Way;

/// A size as `11 GiB`, with two or three digits.
pub(super) fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 9.95 { format!("{value:.1} {}", units[unit]) } else { format!("{value:.0} {}", units[unit]) }
}

/// A share of the CPU in words.
fn cpu(ratio: f64) -> String {
    const WORDS: [(f64, &str); 8] = [
        (0.5, "half"),
        (1.0 / 3.0, "a third"),
        (0.25, "a quarter"),
        (0.2, "a fifth"),
        (1.0 / 6.0, "a sixth"),
        (1.0 / 7.0, "a seventh"),
        (0.125, "an eighth"),
        (0.1, "a tenth"),
    ];
    if ratio < 0.09 {
        return format!("{:.2} of the CPU", ratio.max(0.01));
    }
    if (1.0 / SAME..=SAME).contains(&ratio) {
        return "the same CPU".to_owned();
    }
    match WORDS.iter().find(|(value, _)| (ratio / value - 1.0).abs() < 0.07) {
        Some((_, word)) => format!("{word} of the CPU"),
        None => format!("{ratio:.2} times the CPU"),
    }
}

fn rate(ratio: f64) -> String {
    if (1.0 / SAME..SAME).contains(&ratio) {
        "the same rate".to_owned()
    } else if ratio >= 9.95 {
        format!("{ratio:.0} times the rate")
    } else if ratio >= 1.0 {
        format!("{ratio:.1} times the rate")
    } else {
        format!("{ratio:.2} times the rate")
    }
}

fn way(advice: &GroupAdvice, cache_bytes: u64) -> String {
    let is_written = advice.group.totals.written_bytes > advice.group.totals.read_bytes;
    match advice.way {
        Way::Buffered => "the page cache".to_owned(),
        Way::Direct => "direct I/O".to_owned(),
        Way::DirectAhead if is_written => "direct I/O with write-behind".to_owned(),
        Way::DirectAhead => "direct I/O with readahead".to_owned(),
        Way::OwnCache => format!("direct I/O below a cache of {} in the program", size(cache_bytes)),
    }
}

/// See the module's head.
pub(super) fn sentence(advice: &GroupAdvice, cache_bytes: u64, has_direct: bool) -> String {
    let head = format!("`{}`: {}.", advice.group.name, advice.group.pattern_text());
    let way = way(advice, cache_bytes);
    let figures = format!("{} at {}", rate(advice.rate), cpu(advice.cpu));
    match advice.choice {
        Choice::Unknown if advice.group.pattern == Pattern::Mapped => {
            format!("{head} No answer: accesses to mapped memory are not seen.")
        }
        Choice::Unknown => format!("{head} No answer: no calls were seen."),
        Choice::LeaveAsIs if !has_direct => {
            format!("{head} Leave it as it is: this filesystem has no direct I/O.")
        }
        Choice::LeaveAsIs if (1.0 / SAME..SAME).contains(&advice.rate) => {
            format!("{head} Leave it as it is: the ways differ by less than a tenth.")
        }
        Choice::LeaveAsIs => format!("{head} Leave it as it is: its calls take little of the run."),
        Choice::UseDirect => {
            let verb = if advice.recorded == Way::Buffered { "Use" } else { "Keep" };
            let mut text = format!("{head} {verb} {way}: {figures}");
            if advice.freed_bytes >= 1 << 20 && advice.way != Way::OwnCache {
                let _ = write!(text, ", {} of cache stay free", size(advice.freed_bytes));
            }
            if advice.others_rate > SAME {
                let _ = write!(text, "; the other files have {}", rate(advice.others_rate));
            }
            text + "."
        }
        Choice::UseCache => {
            let verb = if advice.recorded == Way::Buffered { "Keep" } else { "Use" };
            format!("{head} {verb} the page cache: {way} has {figures}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_words() {
        assert_eq!((&*size(5), &*size(11 << 30), &*size(1 << 20)), ("5 bytes", "11 GiB", "1.0 MiB"));
        assert_eq!((&*size(1023 << 10), &*size(u64::MAX)), ("1.0 MiB", "16384 PiB"));
        assert_eq!(
            (&*cpu(0.2), &*cpu(0.21), &*cpu(1.0)),
            ("a fifth of the CPU", "a fifth of the CPU", "the same CPU")
        );
        assert_eq!(
            (&*cpu(0.7), &*cpu(0.0), &*cpu(2.5)),
            ("0.70 times the CPU", "0.01 of the CPU", "2.50 times the CPU")
        );
        assert_eq!(
            (&*rate(1.4), &*rate(0.3), &*rate(1.02), &*rate(25.0)),
            ("1.4 times the rate", "0.30 times the rate", "the same rate", "25 times the rate")
        );
    }
}
