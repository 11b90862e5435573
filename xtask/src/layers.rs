//! Layers: a crate imports crates below it, and the modules of a crate have no cycle (`cargo xtask layers`).
//!
//! The check reads `use` lines and paths in `src`, without tests. A module is a file or a folder of `src`; the root of a crate may import all
//! of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::source::{Source, sources};

/// The crates from the top down. Crates in one line may import each other.
const LAYERS: &[&[&str]] = &[
    &["cli"],
    &["c", "python", "preload", "sqlite"],
    &["fuse", "nfs", "virtiofs", "mount"],
    &["operations"],
    &["torture", "crash", "repro", "job", "bench", "load", "copy"],
    &["pool"],
    &["diorite"],
    &["ext-tools"],
    &["ext"],
    &["journal"],
    &["ext-format"],
    &["device", "nbd", "arrays", "sim"],
    &["scheduler"],
    &["block"],
];

/// Imports of one crate by module.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Print the layers, and fail if an import goes up or a crate has a cycle.
pub(crate) fn check() -> Result<(), String> {
    let mut wrong = Vec::new();
    let names: Vec<String> = crates()?.iter().filter_map(|path| name_of(path)).collect();
    for layer in LAYERS {
        let present: Vec<&str> =
            layer.iter().copied().filter(|name| names.iter().any(|known| known == name)).collect();
        if !present.is_empty() {
            println!("  {}", present.join("  "));
        }
    }
    for path in crates()? {
        let Some(name) = name_of(&path) else { continue };
        let sources = sources(&path.join("src"))?;
        wrong.extend(upward(&name, &sources));
        for cycle in cycles(&imports(&sources)) {
            wrong.push(format!("{name}: modules in a cycle: {}", cycle.join(", ")));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("layers:\n  {}", wrong.join("\n  "))) }
}

/// The directories of the crates.
pub(crate) fn crates() -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir("crates").map_err(|error| format!("crates: {error}"))?;
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.join("Cargo.toml").is_file());
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

fn height(name: &str) -> Option<usize> {
    LAYERS.iter().rev().position(|layer| layer.contains(&name))
}

/// The imports of a crate from crates above it.
fn upward(name: &str, sources: &[Source]) -> Vec<String> {
    let Some(own) = height(name) else {
        return vec![format!("{name}: in no layer; add it to LAYERS in xtask/src/layers.rs")];
    };
    let mut wrong = BTreeSet::new();
    for source in sources {
        for word in words(&source.code).filter(|word| word.followed_by_path).map(|word| word.text) {
            let other = match word.strip_prefix("diorite_") {
                Some(other) => other.replace('_', "-"),
                None if word == "diorite" => word.to_owned(),
                None => continue,
            };
            if other != name && height(&other).is_some_and(|height| height > own) {
                wrong.insert(format!("{name}: {} imports {other}, which is above", source.path.display()));
            }
        }
    }
    wrong.into_iter().collect()
}

/// The imports of each module of a crate.
fn imports(sources: &[Source]) -> Imports {
    let module = |path: &Path| {
        let first = path.components().next()?.as_os_str().to_string_lossy().into_owned();
        let first = first.strip_suffix(".rs").unwrap_or(&first).to_owned();
        (!matches!(first.as_str(), "lib" | "main")).then_some(first)
    };
    let modules: BTreeSet<String> = sources.iter().filter_map(|source| module(&source.path)).collect();
    // A name that the root re-exports stands for its module.
    let mut exported = BTreeMap::new();
    for source in sources.iter().filter(|source| module(&source.path).is_none()) {
        for path in paths(&source.code, &[]) {
            if let [first, .., last] = &path[..]
                && modules.contains(first)
            {
                exported.insert(last.clone(), first.clone());
            }
        }
    }
    let mut imports = Imports::new();
    for source in sources {
        let Some(own) = module(&source.path) else { continue };
        let mut at: Vec<String> =
            source.path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        at.pop_if(|last| last == "mod");
        let found = imports.entry(own.clone()).or_default();
        for path in paths(&source.code, &at) {
            let first = path.first().map_or("", String::as_str);
            let target = modules.get(first).or_else(|| exported.get(first));
            found.extend(target.filter(|target| **target != own).cloned());
        }
    }
    imports
}

/// The paths in code relative to the crate's root. In the root of a crate, `use` lines that begin with a module count too. `at` is the
/// module of the code.
fn paths(code: &str, at: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for word in words(code) {
        let is_start = match word.text {
            "crate" | "super" => word.followed_by_path && !word.follows_path,
            "use" => at.is_empty(),
            _ => false,
        };
        if is_start {
            let start = if word.text == "use" { word.end } else { word.end - word.text.len() };
            tree(&mut code[start..].trim_start(), at, &mut found);
        }
    }
    found
}

/// Parse a path or a tree of paths at the start of `text`.
fn tree(text: &mut &str, base: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = base.to_vec();
    loop {
        *text = text.trim_start();
        if let Some(inside) = text.strip_prefix('{') {
            *text = inside;
            loop {
                *text = text.trim_start();
                if text.is_empty() {
                    return;
                }
                if let Some(rest) = text.strip_prefix('}') {
                    *text = rest;
                    return;
                }
                let before = text.len();
                tree(text, &path, found);
                // The comma, or text that is not a path.
                let skipped = text.find([',', '}']).unwrap_or(text.len());
                *text = text[skipped..].trim_start_matches(',');
                if text.len() == before {
                    return;
                }
            }
        }
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        match &text[..end] {
            "" => break,
            "crate" => path.clear(),
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(name.to_owned()),
        }
        *text = &text[end..];
        match text.strip_prefix("::") {
            Some(rest) => *text = rest,
            None => break,
        }
    }
    found.push(path);
}

/// A word of code.
struct Word<'a> {
    text: &'a str,
    end: usize,
    follows_path: bool,
    followed_by_path: bool,
}

fn words(code: &str) -> impl Iterator<Item = Word<'_>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + code[at..].find(is_part)?;
        let end = start + code[start..].find(|c| !is_part(c)).unwrap_or(code.len() - start);
        at = end;
        Some(Word {
            text: &code[start..end],
            end,
            follows_path: code[..start].ends_with("::"),
            followed_by_path: code[end..].starts_with("::"),
        })
    })
}

/// Modules that import each other directly or indirectly.
fn cycles(imports: &Imports) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
        while let Some(next) = waiting.pop() {
            waiting.extend(imports.get(next).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|name| (name, reached(name))).collect();
    let mut cycles: Vec<Vec<String>> = Vec::new();
    for (name, seen) in reach.iter().filter(|(name, seen)| seen.contains(**name)) {
        if !cycles.iter().flatten().any(|known| known == *name) {
            let both = |other: &&String| reach.get(*other).is_some_and(|back| back.contains(*name));
            cycles.push(seen.iter().filter(both).cloned().collect());
        }
    }
    cycles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, code: &str) -> Source {
        Source { path: path.into(), code: code.to_owned() }
    }

    #[test]
    fn an_import_that_goes_up_is_found() {
        let sources = [source("a.rs", "use diorite_block::Bio;\nfn f() { diorite_copy::copy() }")];
        assert_eq!(upward("diorite", &sources), ["diorite: a.rs imports copy, which is above"]);
        assert!(upward("cli", &sources).is_empty());
        assert!(upward("new", &sources)[0].contains("in no layer"));
    }

    #[test]
    fn a_cycle_of_modules_is_found() {
        let sources = [
            source("lib.rs", "mod a; mod b; mod c; pub use b::{One, two::Three};"),
            source("a.rs", "use crate::{Three, c::{self, X}};"),
            source("b/mod.rs", "mod two;"),
            source("b/two.rs", "use super::super::a::Y; use super::own;"),
            source("c.rs", "fn f() { std::mem::drop(1) }"),
        ];
        let imports = imports(&sources);
        assert_eq!(imports["a"], ["b", "c"].map(str::to_owned).into());
        assert_eq!(imports["b"], ["a"].map(str::to_owned).into());
        assert_eq!(cycles(&imports), [["a", "b"]]);
    }
}
