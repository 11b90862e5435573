//! Words of a line of the shell: quotes and backslashes as in a shell, `;` between commands, `#` for a comment.

use crate::failure::{Failure, Result};

/// A word, and where it begins in the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) start: usize,
    pub(super) text: String,
    /// The quote that is not closed at the end of the line.
    pub(super) quote: Option<char>,
    /// Whether a part of it is in quotes or follows a backslash.
    pub(super) is_quoted: bool,
    /// A character without quotes that is an operator in other shells.
    operator: Option<char>,
}

/// The words of the first command of a text, and the text after it. A command ends at `;` or at the end of its line.
pub(super) fn words(text: &str) -> Result<(Vec<Word>, &str)> {
    let (words, rest) = parse(text);
    let rest = rest.unwrap_or_default();
    let command = text[..text.len() - rest.len()].trim_end_matches([';', '\n']);
    if words.last().is_some_and(|word| word.quote.is_some()) {
        return Err(Failure::Usage(format!("{command}: a quote is not closed")));
    }
    if let Some(operator) = words.iter().find_map(|word| word.operator) {
        return Err(Failure::Usage(format!(
            "{command}: `{operator}` is not supported in this shell; quote it if it is part of a name"
        )));
    }
    Ok((words, rest))
}

/// The words before the end of an incomplete line, and the one at its end, which may be empty.
pub(super) fn incomplete(line: &str) -> (Vec<Word>, Word) {
    let mut start = 0;
    let mut words = loop {
        match parse(&line[start..]) {
            (_, Some(rest)) => start = line.len() - rest.len(),
            (words, None) => break words,
        }
    };
    let is_inside = |word: &Word| word.quote.is_some() || !ends_in_space(line);
    let last = if words.last().is_some_and(is_inside) { words.pop() } else { None };
    let last = last.map(|word| Word { start: start + word.start, ..word });
    (words, last.unwrap_or_else(|| Word { start: line.len(), ..Word::default() }))
}

/// Whether a space ends the last word. A space after an odd number of backslashes is a part of it.
fn ends_in_space(line: &str) -> bool {
    let before = line.trim_end_matches(char::is_whitespace);
    let backslashes = before.len() - before.trim_end_matches('\\').len();
    let spaces = line[before.len()..].chars().count();
    spaces > backslashes % 2
}

/// The words of the first command of a text, and the text after it; `None` if the command is the last one.
fn parse(text: &str) -> (Vec<Word>, Option<&str>) {
    let (mut words, mut open): (Vec<Word>, Option<Word>) = (Vec::new(), None);
    let (mut rest, mut has_end) = (text.char_indices(), false);
    while let Some((start, next)) = rest.next() {
        if next == '#' && open.is_none() {
            // A comment, up to the end of the line.
            has_end = rest.any(|(_, next)| next == '\n');
            break;
        }
        has_end = matches!(next, ';' | '\n');
        if has_end {
            break;
        }
        if next.is_whitespace() {
            words.extend(open.take());
            continue;
        }
        let word = open.get_or_insert_with(|| Word { start, ..Word::default() });
        match next {
            quote @ ('\'' | '"') => {
                (word.quote, word.is_quoted) = (Some(quote), true);
                while let Some((_, inside)) = rest.next() {
                    match inside {
                        end if end == quote => {
                            word.quote = None;
                            break;
                        }
                        '\\' if quote == '"' => word.text.extend(rest.next().map(|(_, next)| next)),
                        inside => word.text.push(inside),
                    }
                }
            }
            '\\' => {
                word.is_quoted = true;
                word.text.extend(rest.next().map(|(_, next)| next));
            }
            '|' | '&' | '<' | '>' => {
                word.operator = Some(next);
                word.text.push(next);
            }
            other => word.text.push(other),
        }
    }
    words.extend(open);
    (words, has_end.then_some(rest.as_str()))
}

/// A word that stands for `text`, in an open quote or without one.
pub(super) fn quoted(text: &str, quote: Option<char>) -> String {
    let mut word: String = quote.into_iter().collect();
    for (at, next) in text.chars().enumerate() {
        let is_special = match quote {
            Some('"') => matches!(next, '"' | '\\'),
            Some(_) => false,
            None => next.is_whitespace() || "'\"\\|&<>;*?[".contains(next) || next == '#' && at == 0,
        };
        if is_special {
            word.push('\\');
        }
        word.push(next);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_in_a_shell() {
        let split = |line: &str| words(line).unwrap().0.into_iter().map(|word| word.text).collect::<Vec<_>>();
        assert_eq!(split("ls -l  /a"), ["ls", "-l", "/a"]);
        assert_eq!(split(r#"cat 'a b' "c\"d" e\ f '' # not this"#), ["cat", "a b", "c\"d", "e f", ""]);
        assert_eq!(split("a#b"), ["a#b"]);
        assert!(split("  ").is_empty());
        assert!(words("ls 'a").is_err());
    }

    #[test]
    fn quoted_and_commented_semicolons_separate_nothing() {
        for (text, split) in [
            ("a; b", &["a", "b"][..]),
            ("a ';' \";\\\";\" \\;b", &["a ; ;\"; ;b"]),
            ("a # it's; x\nb", &["a", "b"]),
            ("a#b;c", &["a#b", "c"]),
            ("'a\nb'", &["a\nb"]),
            ("a 'b' '#';c", &["a b #", "c"]),
            ("a;\n;b # c", &["a", "", "", "b"]),
        ] {
            let (mut commands, mut rest) = (Vec::new(), text);
            while !rest.is_empty() {
                let (command, after) = words(rest).unwrap();
                commands.push(command.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" "));
                rest = after;
            }
            assert_eq!(commands, split, "{text}");
        }
    }

    #[test]
    fn the_last_word_of_a_line_is_found_in_quotes_and_after_spaces() {
        for (line, before, start, text, quote) in [
            ("", 0, 0, "", None),
            ("ls", 0, 0, "ls", None),
            ("ls ", 1, 3, "", None),
            ("ls a\\ b", 1, 3, "a b", None),
            ("ls a\\ ", 1, 3, "a ", None),
            ("ls a\\\\ ", 2, 7, "", None),
            ("ls 'a b", 1, 3, "a b", Some('\'')),
            ("ls \"a ", 1, 3, "a ", Some('"')),
            ("ls 'a' ", 2, 7, "", None),
            ("ls a; cat b", 1, 10, "b", None),
            ("ls a;", 0, 5, "", None),
        ] {
            let (words, last) = incomplete(line);
            assert_eq!(
                (words.len(), last.start, &*last.text, last.quote),
                (before, start, text, quote),
                "{line:?}"
            );
        }
    }

    #[test]
    fn a_quoted_word_is_read_as_its_text() {
        for text in ["a", "a b", "it's", "\"x\\", "#x", "a#", " ", "a|b&c>d<;*?[", "&"] {
            for line in [quoted(text, None), quoted(text, Some('"')) + "\""] {
                let read = words(&line).unwrap();
                assert!(read.0.len() == 1 && read.0[0].text == text, "{line}");
            }
        }
        assert_eq!(quoted("a b", Some('\'')), "'a b");
    }
}
