//! Sets of characters in patterns and expressions of POSIX: `[a-z_]`, `[!0-9]`, `[[:alpha:]]`.
//!
//! Where it sits: below `pattern.rs` and `find/regex.rs`, which translate text to the syntax of the crate `regex`.
//!
//! Format: POSIX.1-2017, "RE Bracket Expression". A malformed set is treated as by glibc's fnmatch(3), which the tests compare.

use std::fmt::Write as _;

/// The unit of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// A character of Unicode.
    Text,
    /// A byte, in a name that is not UTF-8.
    Bytes,
}

/// The syntax around a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// A pattern: `!` negates, too, and `\` makes the next character literal.
    Pattern,
    /// A pattern of names in any case. As in fnmatch(3), `[a]` fits `A`, but `[[:lower:]]` does not.
    PatternInAnyCase,
    /// A regular expression.
    Expression,
}

impl Syntax {
    fn is_pattern(self) -> bool {
        self != Self::Expression
    }
}

/// Fits no character.
pub(crate) const NEVER: &str = r"[^\s\S]";

/// Classes, with their members as text and as bytes.
const CLASSES: [(&str, &str, &str); 12] = [
    ("alnum", r"\p{Alphabetic}0-9", "[:alnum:]"),
    ("alpha", r"\p{Alphabetic}", "[:alpha:]"),
    ("blank", r"\t\p{Zs}", "[:blank:]"),
    ("cntrl", r"\p{Cc}", "[:cntrl:]"),
    ("digit", "0-9", "[:digit:]"),
    ("graph", r"[^\s\p{C}]", "[:graph:]"),
    ("lower", r"\p{Lowercase}", "[:lower:]"),
    ("print", r"[^\p{C}]", "[:print:]"),
    ("punct", r"\p{P}\p{S}", "[:punct:]"),
    ("space", r"\s", "[:space:]"),
    ("upper", r"\p{Uppercase}", "[:upper:]"),
    ("xdigit", "0-9A-Fa-f", "[:xdigit:]"),
];

/// A character by its number, which means the same in a set and outside of one.
pub(crate) fn literal(character: char, alphabet: Alphabet) -> String {
    match alphabet {
        Alphabet::Text => format!(r"\x{{{:X}}}", u32::from(character)),
        Alphabet::Bytes => format!(r"\x{:02X}", u32::from(character)),
    }
}

enum Member<'t> {
    Character(char),
    /// The name of a class.
    Class(&'t [char]),
}

/// The member at the start of `text`, and its length.
fn member(text: &[char], syntax: Syntax) -> Option<(Member<'_>, usize)> {
    if let ['[', kind @ (':' | '=' | '.'), rest @ ..] = text
        && let Some(end) = rest.windows(2).position(|pair| pair == [*kind, ']'])
    {
        let (name, len) = (&rest[..end], end + 4);
        match (kind, name) {
            (':', _) if name.iter().all(char::is_ascii_lowercase) => return Some((Member::Class(name), len)),
            ('=' | '.', [one]) => return Some((Member::Character(*one), len)),
            _ => {}
        }
    }
    match text {
        ['\\', next, ..] if syntax.is_pattern() => Some((Member::Character(*next), 2)),
        ['\\'] if syntax.is_pattern() => None,
        [first, ..] => Some((Member::Character(*first), 1)),
        [] => None,
    }
}

/// The set whose text begins after its `[`, in the syntax of `regex`, and the length up to its `]`. `None` if it has no end.
pub(crate) fn set(text: &[char], syntax: Syntax, alphabet: Alphabet) -> Option<(String, usize)> {
    let is_negated = match text.first()? {
        '^' => true,
        '!' => syntax.is_pattern(),
        _ => false,
    };
    let first = usize::from(is_negated);
    let (mut at, mut members, mut is_known) = (first, String::new(), true);
    // A `]` at the start is a member.
    while at == first || *text.get(at)? != ']' {
        let (found, len) = member(&text[at..], syntax)?;
        at += len;
        match (found, &text[at..]) {
            (Member::Character(start), ['-', end, ..]) if *end != ']' => {
                let (end, len) = match member(&text[at + 1..], syntax)? {
                    (Member::Character(end), len) => (end, len),
                    (Member::Class(_), _) => ('[', 1),
                };
                at += 1 + len;
                if is_known && start <= end {
                    push_range(&mut members, (start, end), syntax, alphabet);
                }
            }
            (Member::Character(one), _) if is_known => {
                push_range(&mut members, (one, one), syntax, alphabet);
            }
            (Member::Class(name), _) if is_known => {
                let known = CLASSES.iter().find(|(known, ..)| known.chars().eq(name.iter().copied()));
                // An unknown class fits nothing, and neither does what follows it.
                is_known = known.is_some();
                members.push_str(known.map_or("", |(_, text, bytes)| match alphabet {
                    Alphabet::Text => text,
                    Alphabet::Bytes => bytes,
                }));
            }
            _ => {}
        }
    }
    let set = match (is_negated, members.is_empty()) {
        (true, _) if !is_known => NEVER.to_owned(),
        (true, true) => r"[\s\S]".to_owned(),
        (false, true) => NEVER.to_owned(),
        (true, false) => format!("[^{members}]"),
        (false, false) => format!("[{members}]"),
    };
    Some((set, at + 1))
}

/// Add a range to the members of a set.
fn push_range(members: &mut String, range: (char, char), syntax: Syntax, alphabet: Alphabet) {
    let mut push = |(start, end): (char, char)| {
        let (first, last) = (literal(start, alphabet), literal(end, alphabet));
        let _ = if start == end { write!(members, "{first}") } else { write!(members, "{first}-{last}") };
    };
    push(range);
    if syntax == Syntax::PatternInAnyCase {
        in_other_case(range, alphabet).into_iter().for_each(push);
    }
}

/// The same letters in the other case. Of a range of several characters, only those of ASCII have one.
fn in_other_case((start, end): (char, char), alphabet: Alphabet) -> Vec<(char, char)> {
    let common = |first: char, last: char| {
        let common = (start.max(first), end.min(last));
        (common.0 <= common.1).then_some(common)
    };
    let upper = common('a', 'z').map(|(a, z)| (a.to_ascii_uppercase(), z.to_ascii_uppercase()));
    let lower = common('A', 'Z').map(|(a, z)| (a.to_ascii_lowercase(), z.to_ascii_lowercase()));
    let mut found: Vec<_> = upper.into_iter().chain(lower).collect();
    if start == end && alphabet == Alphabet::Text {
        found.extend(start.to_lowercase().chain(start.to_uppercase()).map(|one| (one, one)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_without_an_end_is_none() {
        for text in ["", "a", "]", "!]", "[:digit:]", "a\\", "[:alpha:", "^"] {
            let text: Vec<char> = text.chars().collect();
            assert_eq!(set(&text, Syntax::Pattern, Alphabet::Text), None, "{text:?}");
        }
    }

    #[test]
    fn an_expression_has_no_escapes_in_a_set() {
        let text: Vec<char> = r"\]x".chars().collect();
        let (found, len) = set(&text, Syntax::Expression, Alphabet::Text).unwrap();
        assert_eq!((&*found, len), (r"[\x{5C}]", 2));
    }
}
