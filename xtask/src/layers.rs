//! Layers: a crate imports crates below it, and the modules of a crate have no cycle (`cargo xtask layers`).
//!
//! The check reads the paths in `src`, without tests. A module is a file or a folder of `src`; the root of a crate may import all
//! of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Spacing, TokenStream, TokenTree};

use crate::source::{Source, sources};

/// The crates from the top down. Crates in one line may import each other.
const LAYERS: &[&[&str]] = &[
    &["cli"],
    &["c", "python"],
    &["mount"],
    &["torture", "repro", "job", "advise", "bench", "uncached", "copy", "crash", "files", "load"],
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
    for layer in LAYERS {
        println!("  {}", layer.join("  "));
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
        for path in paths(&source.code) {
            let other = match path[0].strip_prefix("diorite_") {
                Some(other) if path.len() > 1 => other.replace('_', "-"),
                None if path.len() > 1 && path[0] == "diorite" => path[0].clone(),
                _ => continue,
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
        for path in paths(&source.code) {
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
        for path in paths(&source.code).iter().filter(|path| matches!(path[0].as_str(), "crate" | "super")) {
            let first = first_from_root(path, &at);
            let target = first.and_then(|first| modules.get(&first).or_else(|| exported.get(&first)));
            found.extend(target.filter(|target| **target != own).cloned());
        }
    }
    imports
}

/// The first name of a path from the root of the crate. The path is in the module `at`.
fn first_from_root(path: &[String], at: &[String]) -> Option<String> {
    let mut full = at.to_vec();
    for part in path {
        match part.as_str() {
            "crate" => full.clear(),
            "super" => drop(full.pop()),
            "self" => {}
            name => full.push(name.to_owned()),
        }
    }
    full.into_iter().next()
}

/// All paths in code; a tree of `use` is several.
fn paths(code: &TokenStream) -> Vec<Vec<String>> {
    let (mut found, mut trees) = (Vec::new(), code.clone().into_iter().peekable());
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Group(group) => found.extend(paths(&group.stream())),
            TokenTree::Ident(first) => {
                let mut path = vec![first.to_string()];
                let mut below = Vec::new();
                let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(colon) if colon.as_char() == ':' && colon.spacing() == Spacing::Joint);
                while below.is_empty() && trees.next_if(is_colon).is_some() {
                    trees.next();
                    match trees.next_if(|tree| !matches!(tree, TokenTree::Punct(_))) {
                        Some(TokenTree::Ident(name)) => path.push(name.to_string()),
                        Some(TokenTree::Group(group)) => below = paths(&group.stream()),
                        _ => break,
                    }
                }
                found.extend(below.iter().map(|below| [&path[..], below].concat()));
                found.push(path);
            }
            _ => {}
        }
    }
    found
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
        Source::parse(path.into(), code).expect("Rust").0
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
