//! Patterns of paths: `*` and `?` do not match `/`, `**` does, `[a-z]` is a set.

/// Whether one of the patterns, one in a line, fits `path`. A pattern without `/` is compared with the file's name.
#[must_use]
pub fn fits_any(patterns: &[u8], path: &[u8]) -> bool {
    patterns.split(|byte| *byte == b'\n').any(|pattern| !pattern.is_empty() && fits(pattern, path))
}

/// Whether a pattern fits `path`.
#[must_use]
pub fn fits(pattern: &[u8], path: &[u8]) -> bool {
    if pattern.contains(&b'/') {
        return matches(pattern, path);
    }
    matches(pattern, path.rsplit(|byte| *byte == b'/').next().unwrap_or(path))
}

/// A place to continue after a mismatch: the last star takes one more byte.
#[derive(Clone, Copy)]
struct Star<'a> {
    pattern: &'a [u8],
    text: &'a [u8],
    crosses: bool,
}

/// The time is at most the product of both lengths, for each kind of star.
fn matches<'a>(mut pattern: &'a [u8], mut text: &'a [u8]) -> bool {
    // The last `*`, and the last `**`, to which a failed `*` returns.
    let (mut star, mut deep): (Option<Star<'a>>, Option<Star<'a>>) = (None, None);
    loop {
        if let [b'*', rest @ ..] = pattern {
            let crosses = rest.first() == Some(&b'*');
            pattern = if crosses { &rest[1..] } else { rest };
            let place = Some(Star { pattern, text, crosses });
            if crosses {
                (star, deep) = (None, place);
            } else {
                star = place;
            }
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        if let Some((rest, tail)) = one(pattern, text) {
            (pattern, text) = (rest, tail);
            continue;
        }
        let advanced = star.and_then(advanced);
        let next = advanced.or_else(|| deep.and_then(self::advanced));
        let Some(next) = next else { return false };
        if next.crosses {
            (star, deep) = (None, Some(next));
        } else {
            star = Some(next);
        }
        (pattern, text) = (next.pattern, next.text);
    }
}

fn advanced(star: Star<'_>) -> Option<Star<'_>> {
    let (first, rest) = star.text.split_first()?;
    (star.crosses || *first != b'/').then_some(Star { text: rest, ..star })
}

/// The rests after one element of the pattern and one byte, if they match.
fn one<'p, 't>(pattern: &'p [u8], text: &'t [u8]) -> Option<(&'p [u8], &'t [u8])> {
    let (element, rest) = pattern.split_first()?;
    let (byte, tail) = text.split_first()?;
    if *element == b'?' {
        return (*byte != b'/').then_some((rest, tail));
    }
    if *element == b'['
        && let Some((set, after)) = set(rest)
    {
        return (*byte != b'/' && is_in(set, *byte)).then_some((after, tail));
    }
    if *element == b'\\'
        && let Some((literal, after)) = rest.split_first()
    {
        return (literal == byte).then_some((after, tail));
    }
    (element == byte).then_some((rest, tail))
}

/// The content of a set and the pattern after it. A `]` at its begin is a member.
fn set(pattern: &[u8]) -> Option<(&[u8], &[u8])> {
    let begin = usize::from(matches!(pattern.first(), Some(b'!' | b'^')));
    let end = pattern.iter().skip(begin + 1).position(|byte| *byte == b']')? + begin + 1;
    Some((&pattern[..end], &pattern[end + 1..]))
}

fn is_in(set: &[u8], byte: u8) -> bool {
    let (is_negated, mut members) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut is_found = false;
    while let [first, rest @ ..] = members {
        if let [b'-', last, after @ ..] = rest {
            is_found |= (*first..=*last).contains(&byte);
            members = after;
        } else {
            is_found |= *first == byte;
            members = rest;
        }
    }
    is_found != is_negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_fit() {
        let cases: &[(&str, &str, bool)] = &[
            ("*.sst", "/data/a.sst", true),
            ("*.sst", "/data/a.sst.tmp", false),
            ("/data/*", "/data/a", true),
            ("/data/*", "/data/b/a", false),
            ("/data/**", "/data/b/a", true),
            ("/**/*.log", "/var/x/y.log", true),
            ("/**/*b/c", "/a/xb/yb/c", true),
            ("/**/*b/c", "/a/xb/y/c", false),
            ("/a/*/c/**z", "/a/b/c/d/e/z", true),
            ("[a-c]?x", "bax", true),
            ("[!a-c]x", "ax", false),
            ("[]x]", "]", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "a", false),
            ("?", "/", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(fits(pattern.as_bytes(), path.as_bytes()), *expected, "{pattern} {path}");
        }
    }

    #[test]
    fn any_line_counts_and_empty_lines_do_not() {
        assert!(fits_any(b"*.a\n\n*.b", b"/x/y.b"));
        assert!(!fits_any(b"\n", b"/x/y.b"));
        assert!(!fits_any(b"", b""));
    }

    #[test]
    fn stars_do_not_take_exponential_time() {
        let pattern = b"/**a*a**a*a**a*a**a*a**b";
        let text = [b"/".as_slice(), &[b'a'; 2000]].concat();
        assert!(!fits(pattern, &text));
    }
}
