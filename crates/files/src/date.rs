//! Times as text: `2001-02-03 04:05:06`, RFC 3339, `@SECONDS`, `now`, `yesterday`, `3 days ago`.

use diorite::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Zoned};

use crate::Wrong;

/// The time that a text means. A time without a zone is local. A date alone means its first second.
///
/// # Errors
/// The text is in none of the forms.
pub fn parse_time(text: &str) -> Result<Timestamp, Wrong> {
    parse_at(text.trim(), &Zoned::now()).ok_or_else(|| {
        let forms = "not a time; write 2001-02-03, \"2001-02-03 04:05:06\", 2001-02-03T04:05:06Z, @SECONDS, now, or \"3 days ago\"";
        Wrong::new(text, forms)
    })
}

fn parse_at(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let nanoseconds = format!("{fraction:0<9}");
        let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|digit| digit.is_ascii_digit());
        let nanoseconds = is_fraction.then(|| nanoseconds.parse().ok())??;
        let at = Timestamp { seconds: whole.parse().ok()?, nanoseconds };
        // -1.5 is half a second before -1.
        let is_before = whole.starts_with('-') && at.nanoseconds > 0;
        return Some(if is_before {
            Timestamp { seconds: at.seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - at.nanoseconds }
        } else {
            at
        });
    }
    let local = |time: DateTime| time.to_zoned(TimeZone::system()).ok().map(|at| at.timestamp());
    let at = match text {
        "now" | "today" => Some(now.timestamp()),
        "yesterday" => now.checked_sub(Span::new().days(1)).ok().map(|at| at.timestamp()),
        "tomorrow" => now.checked_add(Span::new().days(1)).ok().map(|at| at.timestamp()),
        _ => None,
    };
    let at = at
        .or_else(|| text.parse::<jiff::Timestamp>().ok())
        .or_else(|| text.parse::<Zoned>().ok().map(|at| at.timestamp()))
        .or_else(|| text.parse::<DateTime>().ok().and_then(local))
        .or_else(|| text.parse::<Date>().ok().and_then(|date| local(date.into())))
        .or_else(|| DateTime::strptime("%Y-%m-%d %H:%M", text).ok().and_then(local))
        .or_else(|| ago(text, now))?;
    let (seconds, nanoseconds) = (at.as_second(), at.subsec_nanosecond());
    let (seconds, nanoseconds) =
        if nanoseconds < 0 { (seconds - 1, nanoseconds + 1_000_000_000) } else { (seconds, nanoseconds) };
    Some(Timestamp { seconds, nanoseconds: nanoseconds as u32 })
}

/// `3 days ago`, `2h ago`, `1 week`.
fn ago(text: &str, now: &Zoned) -> Option<jiff::Timestamp> {
    let text = text.strip_suffix(" ago").unwrap_or(text).trim();
    let span = text.parse::<Span>().ok()?;
    now.checked_sub(span).ok().map(|at| at.timestamp())
}

/// A duration such as `90s`, `2d` or `1week`, in seconds, as fd takes it.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let span = text.parse::<Span>().ok()?;
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
        for text in ["", "@", "@x", "soon", "2001-13-01", "@1.0000000001"] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("90s"), Some(90));
        assert_eq!(parse_duration("2h"), Some(7200));
        assert_eq!(parse_duration("x"), None);
    }
}
