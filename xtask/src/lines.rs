//! Lines of code by crate: without tests, comments and blank lines (`cargo xtask lines`).

use std::path::Path;

use crate::source::sources;

/// Print them.
pub(crate) fn print() -> Result<(), String> {
    let mut crates = super::layers::crates()?;
    crates.push("xtask".into());
    let mut total = 0;
    for path in crates {
        let mut lines = lines_of(&path.join("src"))?;
        // The library of `diorite uncached`, which the build script compiles.
        let preloaded = path.join("preload");
        if preloaded.is_dir() {
            lines += lines_of(&preloaded)?;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        println!("{lines:>7}  {name}");
        total += lines;
    }
    let python = Path::new("crates/python/python/diorite");
    let entries = std::fs::read_dir(python).map_err(|error| format!("{}: {error}", python.display()))?;
    let scripts = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let scripts = scripts.filter(|path| path.extension().is_some_and(|extension| extension == "py"));
    let lines: usize = scripts.map(|path| python_lines(&path)).sum();
    println!("{lines:>7}  python, in Python\n{:>7}", total + lines);
    Ok(())
}

fn lines_of(directory: &Path) -> Result<usize, String> {
    Ok(sources(directory)?.iter().map(|source| source.lines).sum())
}

/// Lines of Python without comments and blank lines; documentation counts.
fn python_lines(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).count()
}
