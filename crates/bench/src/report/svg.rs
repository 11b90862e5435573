//! SVG elements of the figures, and number formatting.

use std::fmt::Write;

/// An SVG drawing under construction, in its own units.
#[derive(Debug)]
pub(crate) struct Drawing {
    body: String,
    width: f64,
    height: f64,
}

/// Position of text relative to its point.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    /// A filled rectangle with its value as a title; corners are rounded a little.
    pub(crate) fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), title: &str) {
        let radius = (height / 4.0).min(width / 2.0).clamp(0.0, 3.0);
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{height:.2}\" rx=\"{radius:.1}\"><title>{}</title></rect>",
            width.max(0.5),
            escape(title),
        ));
    }

    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text),
        ));
    }

    pub(crate) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    pub(crate) fn finish(self, label: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            self.width,
            self.height,
            escape(label),
            self.body
        )
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
    }
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A value with about three significant digits and separated thousands.
pub(crate) fn readable(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1000.0 {
        let digits = format!("{magnitude:.0}");
        let mut grouped = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        return if value < 0.0 { format!("-{grouped}") } else { grouped };
    }
    let decimals = match magnitude {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Text in lines of at most `characters`, broken at spaces; a longer word has its own line.
pub(crate) fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= characters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// About `count` round steps that cover zero to `largest`.
pub(crate) fn ticks(largest: f64, count: usize) -> Vec<f64> {
    if !(largest.is_finite() && largest > 0.0) {
        return vec![0.0];
    }
    let rough = largest / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    (0..=20u8).map(|index| f64::from(index) * step).take_while(|tick| *tick <= largest * 1.0001).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let shown = [1_234_567.0, 999.4, 42.25, 3.0, 0.125, -2500.0].map(readable);
        assert_eq!(shown, ["1,234,567", "999", "42.2", "3", "0.125", "-2,500"]);
    }

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(ticks(137.0, 4), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(0.0, 4), [0.0]);
        assert_eq!(ticks(f64::NAN, 4), [0.0]);
    }

    #[test]
    fn long_labels_break_at_spaces() {
        assert_eq!(wrapped("cfq:fixed on sata-2009-stall", 20), ["cfq:fixed on", "sata-2009-stall"]);
        assert_eq!(wrapped("abcdefgh i", 4), ["abcdefgh", "i"]);
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
