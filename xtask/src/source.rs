//! The Rust sources of the workspace without comments, contents of strings and tests, for `lines` and `layers`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A source file.
pub(crate) struct Source {
    /// Its path below the `src` of its crate.
    pub(crate) path: PathBuf,
    /// Its code. Characters of strings are `_`.
    pub(crate) code: String,
}

/// The sources below a directory, without tests.
pub(crate) fn sources(directory: &Path) -> Result<Vec<Source>, String> {
    let mut files = Vec::new();
    find(directory, &mut files).map_err(|error| format!("{}: {error}", directory.display()))?;
    files.sort();
    let mut sources = Vec::new();
    let mut tests = HashSet::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let (code, modules) = without_tests(&without_comments(&text));
        let is_root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| file.ends_with(name));
        let below = if is_root { file.with_file_name("") } else { file.with_extension("") };
        tests.extend(modules.iter().map(|module| below.join(module)));
        sources.push((file, code));
    }
    let is_test = |file: &Path| file.with_extension("").ancestors().any(|path| tests.contains(path));
    sources.retain(|(file, _)| !is_test(file));
    let relative = |file: PathBuf| file.strip_prefix(directory).map(Path::to_owned).unwrap_or(file);
    Ok(sources.into_iter().map(|(file, code)| Source { path: relative(file), code }).collect())
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The text with comments as spaces and the contents of strings and characters as `_`; lines stay.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (len, fill) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), ' ')
        } else if rest.starts_with("/*") {
            (block_comment(rest), ' ')
        } else if let Some(len) = string(rest, code.chars().next_back()) {
            (len, '_')
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.extend(rest[..len].chars().map(|c| if c == '\n' { c } else { fill }));
        rest = &rest[len..];
    }
    code
}

/// The length of the comment at the start of a text. Comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The length of the string or character literal at the start of a text; `before` is the character before it.
fn string(text: &str, before: Option<char>) -> Option<usize> {
    let is_in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let opened = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - opened.len();
    if prefix > 1 || prefix == 1 && is_in_word {
        return None;
    }
    if let Some(raw) = opened.strip_prefix('r').filter(|_| !is_in_word) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let len = body.find(&end).map_or(body.len(), |at| at + end.len());
        return Some(text.len() - body.len() + len);
    }
    let quote = opened.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = opened.char_indices().skip(1);
    // A lifetime has no closing quote after one character.
    let is_character = opened[1..].starts_with('\\') || opened.chars().nth(2) == Some('\'');
    if quote == '\'' && !is_character {
        return None;
    }
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(prefix + at + 1);
        }
    }
    Some(text.len())
}

/// The code without test-only items, and the names of test modules in their own files.
fn without_tests(code: &str) -> (String, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let (mut kept, mut modules, mut rest) = (String::new(), Vec::new(), code);
    while let Some(at) = rest.find(MARK) {
        kept.push_str(&rest[..at]);
        let item = &rest[at + MARK.len()..];
        let item = &item[..item_len(item)];
        if let Some(name) = item.trim().trim_start_matches("pub(crate) ").strip_prefix("mod ") {
            modules.extend(name.strip_suffix(';').map(str::to_owned));
        }
        rest = &rest[at + MARK.len() + item.len()..];
    }
    kept.push_str(rest);
    (kept, modules)
}

/// The length of the first item: up to its semicolon, its comma (a field), or the end of its braces.
fn item_len(code: &str) -> usize {
    let start = code.trim_start();
    let is_field = ![
        "pub", "fn", "use", "mod", "impl", "struct", "enum", "const", "static", "type", "trait", "#", "let",
    ]
    .iter()
    .any(|word| start.starts_with(word));
    let (mut depth, mut in_braces) = (0_i32, false);
    for (at, c) in code.char_indices() {
        match c {
            '{' | '(' | '[' => {
                in_braces |= c == '{' && depth == 0;
                depth += 1;
            }
            '}' | ')' | ']' => {
                depth -= 1;
                if depth < 0 {
                    return at;
                }
                if depth == 0 && c == '}' && in_braces {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            ',' if depth == 0 && is_field => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_contents_of_strings_are_no_code() {
        let text = "let a = \"// no\"; // yes\n/* a /* b */ c */ let b = r#\"x\"y\"#;\nlet c: &'a u8 = '\\'';\nlet d = b\"\\\"\";";
        let code = without_comments(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(code.lines().next(), Some("let a = _______;       "));
        assert_eq!(code.lines().nth(1).map(str::trim), Some("let b = ________;"));
        assert_eq!(code.lines().nth(2), Some("let c: &'a u8 = ____;"));
        assert_eq!(code.lines().nth(3), Some("let d = _____;"));
    }

    #[test]
    fn tests_are_left_out() {
        let (code, modules) = without_tests(
            "a();\n#[cfg(test)]\nmod tests { fn b() { c() } }\nd();\n#[cfg(test)]\nmod other;\ne();",
        );
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a();", "d();", "e();"]);
        assert_eq!(modules, ["other"]);
    }
}
