//! Patterns of names, as in fnmatch(3).
//!
//! A pattern becomes a regular expression, so that a match takes time in proportion to the name, whatever the pattern.
//! A name in UTF-8 has characters; in any other name each byte is one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use crate::set::{Alphabet, NEVER, Syntax, literal, set};

/// The compiled form of the longest pattern of a command line fits into this.
const COMPILED_BYTES_MAX: usize = 1 << 30;

/// The characters that `*` and `?` match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wildcards {
    /// Everything.
    All,
    /// Everything but a slash; `**` fits slashes, too.
    WithinNames,
}

/// A pattern of names: `*`, `?`, `[a-z]`, `[!a]`, `[[:digit:]]`, and `\` before a literal character. A `[` without `]` stands for itself.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Vec<u8>,
    wildcards: Wildcards,
    ignores_case: bool,
    has_literal_dot: bool,
    for_text: OnceLock<Option<Regex>>,
    for_bytes: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// A pattern. `*` fits slashes and leading dots, too.
    pub fn new(text: &OsStr) -> Self {
        Self {
            text: text.as_bytes().to_vec(),
            wildcards: Wildcards::All,
            ignores_case: false,
            has_literal_dot: false,
            for_text: OnceLock::new(),
            for_bytes: OnceLock::new(),
        }
    }

    /// A pattern of paths: only `**` fits slashes, and `**/` at the start also stands for no directory, as in rsync.
    pub(crate) fn of_path(text: &[u8]) -> Self {
        Self { wildcards: Wildcards::WithinNames, ..Self::new(OsStr::from_bytes(text)) }
    }

    /// The same pattern, for names in any case.
    #[must_use]
    pub fn in_any_case(self) -> Self {
        Self { ignores_case: true, for_text: OnceLock::new(), for_bytes: OnceLock::new(), ..self }
    }

    /// The same pattern; a dot at the start of a name fits only a dot, as in a shell.
    #[must_use]
    pub fn with_literal_dot(self) -> Self {
        Self { has_literal_dot: true, ..self }
    }

    /// Whether a name fits.
    pub fn fits(&self, name: &[u8]) -> bool {
        let begins_with_dot = matches!(*self.text, [b'.', ..] | [b'\\', b'.', ..]);
        if self.has_literal_dot && name.starts_with(b".") && !begins_with_dot {
            return false;
        }
        let is_text = std::str::from_utf8(name).is_ok();
        let for_text = if is_text { self.for_text.get_or_init(|| self.for_text()) } else { &None };
        let expression =
            for_text.as_ref().or_else(|| self.for_bytes.get_or_init(|| self.for_bytes()).as_ref());
        expression.is_some_and(|expression| expression.is_match(name))
    }

    /// The expression for names in UTF-8; `None` if the pattern is something else.
    fn for_text(&self) -> Option<Regex> {
        let text: Vec<char> = std::str::from_utf8(&self.text).ok()?.chars().collect();
        self.compiled(&text, Alphabet::Text)
    }

    fn for_bytes(&self) -> Option<Regex> {
        let bytes: Vec<char> = self.text.iter().copied().map(char::from).collect();
        self.compiled(&bytes, Alphabet::Bytes)
    }

    fn compiled(&self, text: &[char], alphabet: Alphabet) -> Option<Regex> {
        let syntax = if self.ignores_case { Syntax::PatternInAnyCase } else { Syntax::Pattern };
        let expression = format!(r"\A(?:{})\z", translated(text, self.wildcards, syntax, alphabet));
        let mut builder = RegexBuilder::new(&expression);
        builder.unicode(alphabet == Alphabet::Text).dot_matches_new_line(true);
        builder.case_insensitive(self.ignores_case).size_limit(COMPILED_BYTES_MAX).build().ok()
    }
}

/// A pattern in the syntax of `regex`.
fn translated(text: &[char], wildcards: Wildcards, syntax: Syntax, alphabet: Alphabet) -> String {
    let (mut expression, mut at) = (String::new(), 0);
    while let Some(&next) = text.get(at) {
        let is_first = at == 0;
        at += 1;
        match (next, &text[at..]) {
            ('*', rest) => {
                let stars = rest.iter().take_while(|next| **next == '*').count();
                at += stars;
                let ends_name = text.get(at) == Some(&'/');
                if wildcards == Wildcards::WithinNames && stars > 0 && is_first && ends_name {
                    expression.push_str("(?:.*/)?");
                    at += 1;
                } else if wildcards == Wildcards::WithinNames && stars == 0 {
                    expression.push_str("[^/]*");
                } else {
                    expression.push_str(".*");
                }
            }
            ('?', _) if wildcards == Wildcards::WithinNames => expression.push_str("[^/]"),
            ('?', _) => expression.push('.'),
            ('\\', [literal_one, ..]) => {
                expression.push_str(&literal(*literal_one, alphabet));
                at += 1;
            }
            ('\\', []) => expression.push_str(NEVER),
            ('[', rest) => match set(rest, syntax, alphabet) {
                Some((set, len)) => {
                    // The set has both cases of its letters.
                    expression.push_str("(?-i:");
                    match wildcards {
                        Wildcards::All => expression.push_str(&set),
                        Wildcards::WithinNames => expression.extend(["[", &set, "&&[^/]]"]),
                    }
                    expression.push(')');
                    at += len;
                }
                None => expression.push_str(&literal('[', alphabet)),
            },
            (other, _) => expression.push_str(&literal(other, alphabet)),
        }
    }
    expression
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        Pattern::new(OsStr::new(pattern)).fits(name.as_bytes())
    }

    #[test]
    fn patterns_are_those_of_fnmatch() {
        for (pattern, name) in [
            ("*.conf", "a.conf"),
            ("*", ".hidden"),
            ("*", "a\nb"),
            ("?", "é"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[^a-c]x", "dx"),
            ("a**b", "a/x/b"),
            (r"\*", "*"),
            (r"a\[b", "a[b"),
            ("a[b", "a[b"),
            ("[]]", "]"),
            ("*/x", "a/b/x"),
            ("[[:digit:]]", "5"),
            ("[![:space:]a-f]", "g"),
            ("[[:upper:][:digit:]_]", "_"),
            ("[[:alpha:]]", "é"),
            ("[à-ü]", "é"),
            ("[&&~~--a]", "&"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*.conf", "a.con"),
            ("?", "ab"),
            ("[a-c]x", "dx"),
            (r"\*", "a"),
            ("a", "A"),
            ("[![:space:]a-f]", " "),
            ("[![:space:]a-f]", "c"),
            ("[[:nosuch:]]", "n"),
            ("[z-a]", "m"),
            ("a.c", "abc"),
            ("(a|b)+", "a"),
            ("a\\", "a\\"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        let in_any_case = |pattern: &str| Pattern::new(OsStr::new(pattern)).in_any_case();
        assert!(in_any_case("*.JPG").fits(b"a.jpg") && in_any_case("[à]").fits("À".as_bytes()));
        assert!(in_any_case("[![:lower:]]").fits(b"A") && !in_any_case("[!a[:upper:]]").fits(b"A"));
        assert!(!Pattern::new(OsStr::new("*")).with_literal_dot().fits(b".a"));
        assert!(Pattern::new(OsStr::new(".*")).with_literal_dot().fits(b".a"));
    }

    /// Bytes that are not UTF-8 fitted each other.
    #[test]
    fn other_names_are_bytes() {
        let fits = |pattern: &[u8], name: &[u8]| Pattern::new(OsStr::from_bytes(pattern)).fits(name);
        assert!(fits(b"\xff*", b"\xffa") && !fits(b"\xff*", b"\xfea") && fits(b"?", b"\xff"));
        assert!(fits(b"[\xf0-\xff]", b"\xf5") && fits(b"[[:digit:]]?", b"1\xff"));
        assert!(!fits(b"[[:alpha:]]", b"\xff") && fits(b"[!a]", b"\xff"));
    }

    /// A pattern that takes exponential time with backtracking.
    #[test]
    fn time_is_in_proportion_to_the_name() {
        let pattern = "*a".repeat(50) + "b";
        assert!(!fits(&pattern, &"a".repeat(1000)));
    }

    #[test]
    fn patterns_of_paths_keep_to_names() {
        let fits = |pattern: &str, path: &str| Pattern::of_path(pattern.as_bytes()).fits(path.as_bytes());
        assert!(fits("a/*.o", "a/b.o") && !fits("a/*.o", "a/b/c.o") && fits("a/**.o", "a/b/c.o"));
        assert!(!fits("a/**/x", "a/x") && !fits("a?x", "a/x") && !fits("a[!b]x", "a/x"));
        assert!(fits("**/x", "x") && fits("**/x", "a/b/x") && fits("a/**/x", "a/b/c/x"));
    }
}
