//! Regular expressions of a search, in the syntaxes of GNU find (`-regextype`), for the crate `regex`.
//!
//! Not supported: references back to a group, which would take exponential time.

use regex::bytes::{Regex, RegexBuilder};

use crate::Wrong;
use crate::set::{Alphabet, Syntax, literal, set};

/// Which characters are operators, and which need a `\` for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `\(`, `\)`, `\|`, `+`, `?`: the default.
    Emacs,
    /// `\(`, `\)`, `\|`, `\+`, `\?`, `\{`, `\}`.
    Basic,
    /// `(`, `)`, `|`, `+`, `?`, `{`, `}`.
    Extended,
}

impl Dialect {
    /// The names of GNU find.
    pub(super) fn named(name: &str) -> Result<Self, Wrong> {
        match name {
            "findutils-default" | "emacs" => Ok(Self::Emacs),
            "ed" | "grep" | "posix-basic" | "posix-minimal-basic" | "sed" => Ok(Self::Basic),
            "awk" | "egrep" | "gnu-awk" | "posix-awk" | "posix-egrep" | "posix-extended" => {
                Ok(Self::Extended)
            }
            _ => Err(Wrong::new(format!("-regextype {name}"), "write emacs, posix-basic or posix-extended")),
        }
    }

    fn is_operator(self, character: char, is_escaped: bool) -> bool {
        match (character, self) {
            ('(' | ')' | '|', Self::Emacs | Self::Basic) | ('{' | '}' | '+' | '?', Self::Basic) => is_escaped,
            ('(' | ')' | '|' | '{' | '}' | '+' | '?', Self::Extended) | ('+' | '?', Self::Emacs) => {
                !is_escaped
            }
            _ => false,
        }
    }
}

/// The expression for whole paths.
pub(super) fn compiled(text: &str, dialect: Dialect, ignores_case: bool) -> Result<Regex, Wrong> {
    let wrong = |why: &str| Wrong::new(text, why);
    let characters: Vec<char> = text.chars().collect();
    let expression = translated(&characters, dialect).map_err(wrong)?;
    let mut builder = RegexBuilder::new(&format!(r"\A(?:{expression})\z"));
    builder.dot_matches_new_line(true).case_insensitive(ignores_case);
    let why = "not a regular expression: check its parentheses and repetitions";
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            wrong("the regular expression is too large; use fewer repetitions")
        }
        _ => wrong(why),
    })
}

fn translated(text: &[char], dialect: Dialect) -> Result<String, &'static str> {
    let (mut expression, mut at) = (String::new(), 0);
    while let Some(&next) = text.get(at) {
        at += 1;
        // Here `*` and others have nothing to repeat.
        let is_start = expression.is_empty() || expression.ends_with(['(', '|']);
        match (next, &text[at..]) {
            ('[', rest) => {
                let (set, len) =
                    set(rest, Syntax::Expression, Alphabet::Text).ok_or("a `[` is not closed")?;
                expression.push_str(&set);
                at += len;
            }
            ('\\', [escaped, ..]) => {
                at += 1;
                expression.push_str(&after_backslash(*escaped, dialect, is_start)?);
            }
            ('\\', []) => return Err("a `\\` is at its end"),
            ('.', _) => expression.push('.'),
            ('*', _) if !is_start => expression.push('*'),
            ('^', _) if is_start || dialect == Dialect::Extended => expression.push('^'),
            ('$', rest) if rest.is_empty() || dialect == Dialect::Extended => expression.push('$'),
            (other, _) if dialect.is_operator(other, false) => {
                push_operator(&mut expression, other, is_start);
            }
            // As they are, because they can be the counts of a repetition.
            (other, _) if other.is_ascii_digit() || other == ',' => expression.push(other),
            (other, _) => expression.push_str(&literal(other, Alphabet::Text)),
        }
    }
    Ok(expression)
}

/// A repetition of nothing is a character.
fn push_operator(expression: &mut String, operator: char, is_start: bool) {
    if is_start && "+?{".contains(operator) {
        expression.push_str(&literal(operator, Alphabet::Text));
    } else {
        expression.push(operator);
    }
}

fn after_backslash(escaped: char, dialect: Dialect, is_start: bool) -> Result<String, &'static str> {
    let mut expression = String::new();
    match escaped {
        '1'..='9' => return Err("references back to a group are not supported; write the group again"),
        'w' | 'W' | 'b' | 'B' | 's' | 'S' => expression.extend(['\\', escaped]),
        '<' => expression.push_str(r"\b{start}"),
        '>' => expression.push_str(r"\b{end}"),
        '`' => expression.push_str(r"\A"),
        '\'' => expression.push_str(r"\z"),
        operator if dialect.is_operator(operator, true) => push_operator(&mut expression, operator, is_start),
        other => expression.push_str(&literal(other, Alphabet::Text)),
    }
    Ok(expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(text: &str, dialect: Dialect, path: &str) -> bool {
        compiled(text, dialect, false).unwrap().is_match(path.as_bytes())
    }

    #[test]
    fn each_dialect_has_its_operators() {
        use Dialect::{Basic, Emacs, Extended};
        for (text, dialect, path) in [
            (r".*\.\(c\|h\)", Emacs, "/a/b.h"),
            (r".*\.(c|h)", Extended, "/a/b.h"),
            (r".*/[[:digit:]]+", Emacs, "/a/12"),
            (r".*/[0-9]\+", Basic, "/a/12"),
            (r".*/[0-9]\{2\}", Basic, "/a/12"),
            (r".*/[0-9]{2}", Extended, "/a/12"),
            (r"/a(b)", Emacs, "/a(b)"),
            (r"/a{2}", Emacs, "/a{2}"),
            (r"/a\{2\}", Emacs, "/a{2}"),
            (r"/a+", Basic, "/a+"),
            (r"*a", Emacs, "*a"),
            (r"^/a$", Emacs, "/a"),
            (r"/[\]x", Emacs, r"/\x"),
            (r".*\<b\>.*", Emacs, "/a b c"),
        ] {
            assert!(fits(text, dialect, path), "{text}");
        }
        assert!(!fits(r"b\.h", Emacs, "/a/b.h"), "the whole path must fit");
        for wrong in [r"\(a", "[a", r"\(a\)\1", "a\\"] {
            assert!(compiled(wrong, Emacs, false).is_err(), "{wrong}");
        }
    }
}
