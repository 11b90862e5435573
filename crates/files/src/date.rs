//! Times as text, as `date -d` and `touch -d` accept them: `2001-02-03 04:05:06`, RFC 3339 and 2822, `@SECONDS`, `yesterday 12:00`, `3 days ago`.
//!
//! Where it sits: a table of forms above the crate `jiff`, which reads and calculates.

use diorite::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::fmt::rfc2822;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Zoned};

use crate::Wrong;

/// Forms of a date. A time, and an offset from UTC, can follow.
const DATES: [&str; 10] = [
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%Y%m%d",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d %Y",
    "%B %d %Y",
    "%b %d, %Y",
    "%B %d, %Y",
];

/// Forms of a time of day.
const TIMES: [&str; 5] = ["%H:%M", "%H:%M:%S%.f", "%I:%M%p", "%I:%M %p", "%I%p"];

/// The form that date(1) prints.
const OF_DATE: &str = "%a %b %d %H:%M:%S %z %Y";

/// Days by name, in days from today.
const DAYS: [(&str, i64); 4] = [("now", 0), ("today", 0), ("yesterday", -1), ("tomorrow", 1)];

/// The time that a text means. A time without a zone is local. A date alone means its first second, and a time alone is of today.
///
/// # Errors
/// The text is in none of the forms.
pub fn parse_time(text: &str) -> Result<Timestamp, Wrong> {
    parse_at(text.trim(), &Zoned::now()).ok_or_else(|| {
        let forms = "not a time; write 2001-02-03, \"2001-02-03 04:05:06\", 2001-02-03T04:05:06Z, @SECONDS, now, \"yesterday 12:00\", \"3 days ago\", or \"1 week\" (from now)";
        Wrong::new(text, forms)
    })
}

fn parse_at(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        return since_epoch(seconds);
    }
    let at = absolute(text, now).or_else(|| relative(text, now))?;
    let (seconds, nanoseconds) = (at.as_second(), at.subsec_nanosecond());
    let (seconds, nanoseconds) =
        if nanoseconds < 0 { (seconds - 1, nanoseconds + 1_000_000_000) } else { (seconds, nanoseconds) };
    Some(Timestamp { seconds, nanoseconds: nanoseconds as u32 })
}

/// Seconds, with a fraction of at most nine digits.
fn since_epoch(seconds: &str) -> Option<Timestamp> {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let nanoseconds = format!("{fraction:0<9}");
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|digit| digit.is_ascii_digit());
    let nanoseconds = is_fraction.then(|| nanoseconds.parse().ok())??;
    let at = Timestamp { seconds: whole.parse().ok()?, nanoseconds };
    // -1.5 is half a second before -1.
    let is_before = whole.starts_with('-') && at.nanoseconds > 0;
    Some(if is_before {
        Timestamp { seconds: at.seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - at.nanoseconds }
    } else {
        at
    })
}

/// A text with a date.
fn absolute(text: &str, now: &Zoned) -> Option<jiff::Timestamp> {
    let local = |time: DateTime| time.to_zoned(now.time_zone().clone()).ok().map(|at| at.timestamp());
    let text = &text.replace(" UTC", " +0000").replace(" GMT", " +0000");
    let standard = text.parse::<jiff::Timestamp>().ok();
    let standard = standard.or_else(|| text.parse::<Zoned>().ok().map(|at| at.timestamp()));
    let standard = standard.or_else(|| rfc2822::parse(text).ok().map(|at| at.timestamp()));
    let standard = standard.or_else(|| text.parse::<DateTime>().ok().and_then(local));
    let read = |form: &str| BrokenDownTime::parse(form, text).ok();
    let in_a_form = || {
        DATES.iter().find_map(|date| {
            let alone = read(date).and_then(|read| read.to_datetime().ok()).and_then(local);
            alone.or_else(|| {
                TIMES.iter().find_map(|time| {
                    let local_time = read(&format!("{date} {time}"));
                    let with_offset = || read(&format!("{date} {time} %z"))?.to_timestamp().ok();
                    local_time.and_then(|read| read.to_datetime().ok()).and_then(local).or_else(with_offset)
                })
            })
        })
    };
    standard.or_else(in_a_form).or_else(|| read(OF_DATE)?.to_timestamp().ok())
}

/// The time of day in a text.
fn time_of_day(text: &str) -> Option<Time> {
    TIMES.iter().find_map(|form| BrokenDownTime::parse(form, text).ok()?.to_time().ok())
}

/// A text whose meaning depends on the current time: `yesterday`, `tomorrow 3pm`, `12:30`, `2 days ago`, `+1 hour`, `last week`.
fn relative(text: &str, now: &Zoned) -> Option<jiff::Timestamp> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (day, rest) = match DAYS.iter().find(|(name, _)| *name == word) {
        Some((_, days)) => (now.checked_add(Span::new().days(*days)).ok()?, rest.trim()),
        None => (now.clone(), text),
    };
    if rest.is_empty() {
        return (!text.is_empty()).then(|| day.timestamp());
    }
    if let Some(time) = time_of_day(rest) {
        return day.date().to_datetime(time).to_zoned(now.time_zone().clone()).ok().map(|at| at.timestamp());
    }
    let span = match rest.split_once(' ') {
        Some(("last", unit)) => format!("1 {unit} ago"),
        Some(("next" | "a" | "an", unit)) => format!("1 {unit}"),
        Some((sign @ ("+" | "-"), span)) => format!("{sign}{span}"),
        _ => rest.to_owned(),
    };
    day.checked_add(span.parse::<Span>().ok()?).ok().map(|at| at.timestamp())
}

/// The end of the local day of a time.
pub(crate) fn end_of_day(time: Timestamp) -> Timestamp {
    let at = jiff::Timestamp::from_second(time.seconds).map(|at| at.to_zoned(TimeZone::system()));
    let end = at.and_then(|at| at.tomorrow()).and_then(|next| next.start_of_day());
    end.map_or(time, |end| Timestamp { seconds: end.timestamp().as_second(), nanoseconds: 0 })
}

/// A duration such as `90s`, `2d` or `1week`, in seconds, as fd takes it.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    // `2d ago` is the same as `2d`.
    let span = text.parse::<Span>().ok()?.abs();
    let now = Zoned::now();
    let then: SignedDuration = now.checked_sub(span).ok()?.duration_until(&now);
    Some(then.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<(i64, u32)> {
        let now: Zoned = "2024-03-10T12:00:00+00:00[UTC]".parse().unwrap();
        parse_at(text, &now).map(|time| (time.seconds, time.nanoseconds))
    }

    #[test]
    fn forms_of_a_time() {
        assert_eq!(at("@5"), Some((5, 0)));
        assert_eq!(at("@1.25"), Some((1, 250_000_000)));
        assert_eq!(at("@-1.5"), Some((-2, 500_000_000)));
        assert_eq!(at("1970-01-02T00:00:00Z"), Some((86_400, 0)));
        assert_eq!(at("1970-01-01T00:00:00.5+01:00"), Some((-3600, 500_000_000)));
        assert_eq!(at("now"), Some((1_710_072_000, 0)));
        assert_eq!(at("3 days ago"), Some((1_710_072_000 - 3 * 86_400, 0)));
        assert_eq!(at("2h ago"), Some((1_710_072_000 - 7200, 0)));
        for text in
            ["", "@", "@x", "soon", "2001-13-01", "@1.0000000001", "2024-02-30", "yesterday x", "25:00"]
        {
            assert_eq!(at(text), None, "{text}");
        }
    }

    /// The result of GNU date for the text at that time.
    #[test]
    fn times_are_those_of_gnu_date() {
        for (text, wanted) in [
            ("2024-01-02", "2024-01-02T00:00:00Z"),
            ("2024-01-02 03:04", "2024-01-02T03:04:00Z"),
            ("2024-01-02T03:04", "2024-01-02T03:04:00Z"),
            ("2024-01-02 03:04 UTC", "2024-01-02T03:04:00Z"),
            ("2024-01-02 03:04:05 +0100", "2024-01-02T02:04:05Z"),
            ("2024-01-02 03:04:05.25", "2024-01-02T03:04:05.25Z"),
            ("2024-01-02 3:04pm", "2024-01-02T15:04:00Z"),
            ("2024/01/02", "2024-01-02T00:00:00Z"),
            ("01/02/2024", "2024-01-02T00:00:00Z"),
            ("20240102", "2024-01-02T00:00:00Z"),
            ("2 Jan 2024", "2024-01-02T00:00:00Z"),
            ("2 January 2024 10:00", "2024-01-02T10:00:00Z"),
            ("Jan 2 2024", "2024-01-02T00:00:00Z"),
            ("January 2, 2024", "2024-01-02T00:00:00Z"),
            ("Tue, 02 Jan 2024 03:04:05 +0000", "2024-01-02T03:04:05Z"),
            ("Sat Nov 28 20:21:21 UTC 2026", "2026-11-28T20:21:21Z"),
            ("yesterday", "2024-03-09T12:00:00Z"),
            ("tomorrow", "2024-03-11T12:00:00Z"),
            ("yesterday 10:30", "2024-03-09T10:30:00Z"),
            ("today 3pm", "2024-03-10T15:00:00Z"),
            ("12:30", "2024-03-10T12:30:00Z"),
            ("1 week", "2024-03-17T12:00:00Z"),
            ("+1 day", "2024-03-11T12:00:00Z"),
            ("-1 day", "2024-03-09T12:00:00Z"),
            ("now + 1 hour", "2024-03-10T13:00:00Z"),
            ("last week", "2024-03-03T12:00:00Z"),
            ("next month", "2024-04-10T12:00:00Z"),
            ("a week ago", "2024-03-03T12:00:00Z"),
            ("5 min ago", "2024-03-10T11:55:00Z"),
        ] {
            let wanted: jiff::Timestamp = wanted.parse().unwrap();
            let wanted = (wanted.as_second(), wanted.subsec_nanosecond() as u32);
            assert_eq!(at(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("90s"), Some(90));
        assert_eq!(parse_duration("2h"), Some(7200));
        assert_eq!(parse_duration("x"), None);
    }
}
