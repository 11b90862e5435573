//! The Rust sources of the workspace as tokens, without comments and tests, for `lines` and `layers`.

use std::collections::HashSet;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, LineColumn, TokenStream, TokenTree};

/// A source file.
pub(crate) struct Source {
    /// Its path below the `src` of its crate.
    pub(crate) path: PathBuf,
    /// Its code.
    pub(crate) code: TokenStream,
    /// The number of lines with code.
    pub(crate) lines: usize,
}

impl Source {
    /// Parse a file. Returns the names of test modules in their own files too.
    pub(crate) fn parse(path: PathBuf, text: &str) -> Result<(Self, Vec<String>), String> {
        let code = text.parse::<TokenStream>().map_err(|error| format!("{}: {error}", path.display()))?;
        let mut modules = Vec::new();
        let code = without_tests(code, &mut modules);
        let (mut numbers, texts): (_, Vec<&str>) = (HashSet::new(), text.lines().collect());
        add_lines(&code, &mut numbers);
        // A string may have empty lines.
        let has_text = |number: &&usize| texts.get(**number - 1).is_some_and(|text| !text.trim().is_empty());
        let lines = numbers.iter().filter(has_text).count();
        Ok((Self { path, code, lines }, modules))
    }
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
        let is_root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| file.ends_with(name));
        let below = if is_root { file.with_file_name("") } else { file.with_extension("") };
        let (source, modules) = Source::parse(file, &text)?;
        tests.extend(modules.iter().map(|module| below.join(module)));
        sources.push(source);
    }
    sources.retain(|source| !source.path.with_extension("").ancestors().any(|path| tests.contains(path)));
    for source in &mut sources {
        source.path = source.path.strip_prefix(directory).map(Path::to_owned).unwrap_or_default();
    }
    Ok(sources)
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

/// The tokens without documentation and test-only items. The names of test modules in their own files are added to `modules`.
fn without_tests(code: TokenStream, modules: &mut Vec<String>) -> TokenStream {
    let (mut kept, mut trees) = (TokenStream::new(), code.into_iter().peekable());
    while let Some(tree) = trees.next() {
        let attribute = if is_punct(&tree, '#') { attribute(&mut trees) } else { None };
        match (tree, attribute) {
            (_, Some(attribute)) if attribute == "cfg (test)" => skip_item(&mut trees, modules),
            (_, Some(attribute)) if attribute.starts_with("doc =") => drop(trees.next()),
            (TokenTree::Group(group), _) => {
                let mut inner = Group::new(group.delimiter(), without_tests(group.stream(), modules));
                inner.set_span(group.span());
                kept.extend([TokenTree::from(inner)]);
            }
            (tree, _) => kept.extend([tree]),
        }
    }
    kept
}

fn is_punct(tree: &TokenTree, character: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// The text of the attribute after a `#`, whose brackets are next then.
fn attribute(trees: &mut Peekable<IntoIter>) -> Option<String> {
    trees.next_if(|tree| is_punct(tree, '!'));
    match trees.peek() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            Some(group.stream().to_string())
        }
        _ => None,
    }
}

/// Skip the item after an attribute: up to its semicolon, its braces, or its comma (a field).
fn skip_item(trees: &mut Peekable<IntoIter>, modules: &mut Vec<String>) {
    const ITEMS: [&str; 12] =
        ["pub", "fn", "use", "mod", "impl", "struct", "enum", "const", "static", "type", "trait", "let"];
    trees.next();
    let is_item = |tree: &TokenTree| {
        is_punct(tree, '#') || matches!(tree, TokenTree::Ident(word) if ITEMS.iter().any(|item| word == item))
    };
    let is_field = !trees.peek().is_some_and(is_item);
    let mut words = Vec::new();
    for tree in trees {
        match &tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            tree if is_punct(tree, ';') || is_field && is_punct(tree, ',') => break,
            tree => words.push(tree.to_string()),
        }
    }
    if let [.., keyword, name] = &words[..]
        && keyword == "mod"
    {
        modules.push(name.clone());
    }
}

/// Add the numbers of the lines with tokens.
fn add_lines(code: &TokenStream, lines: &mut HashSet<usize>) {
    for tree in code.clone() {
        let (LineColumn { line: start, .. }, LineColumn { line: end, .. }) =
            (tree.span().start(), tree.span().end());
        if let TokenTree::Group(group) = tree {
            lines.extend([start, end]);
            add_lines(&group.stream(), lines);
        } else {
            lines.extend(start..=end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_are_no_code() {
        let text = "//! A head.\n\n/// A function.\nfn a() {} // yes\n/* a /* b */ c */ let b = r#\"x\"\n\ny\"#;\n\
                    #[cfg(test)]\nmod tests { fn b() { c() } }\nd();\n#[cfg(test)]\nmod other;\n\
                    struct S { #[cfg(test)] t: u8,\nu: u8 }\n";
        let (source, modules) = Source::parse("a.rs".into(), text).expect("Rust");
        assert_eq!(modules, ["other"]);
        assert_eq!(source.lines, 6, "{}", source.code);
        let kept = source.code.to_string();
        assert!(kept.contains("u : u8") && !kept.contains("t : u8") && !kept.contains("tests"), "{kept}");
    }
}
