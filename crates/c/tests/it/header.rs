//! `include/diorite.h` is generated from the sources of this crate, and checked in. After a change:
//!
//! ```text
//! DIORITE_UPDATE_HEADER=1 cargo test -p diorite-c header
//! ```
#![allow(clippy::disallowed_methods, reason = "sources and the header are no data")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The modules of the crate in the order of the header, and their titles.
const SECTIONS: &[(&str, &str)] = &[
    ("error", "Errors"),
    ("filesystem", "Filesystems"),
    ("names", "Names"),
    ("directory", "Directories"),
    ("file", "Files"),
    ("memory", "Memory for direct I/O"),
    ("queue", "Queues"),
];

/// The width of a line.
const WIDTH: usize = 100;

const BEGIN: &str = "\
/*
 * libdiorite: files on ext2, ext3 and ext4 images and disks without a mount, and direct I/O between a disk and the application's
 * memory. Linux only.
 *
 * - Functions return 0 or a count, and a negative error number if they fail: -ENOENT. diorite_error_message() describes the failure.
 * - An open function creates a handle, and the matching close function frees it. A closed handle must not be used. A NULL handle is
 *   -EINVAL unless the function says otherwise.
 * - Memory and strings belong to the caller. The library uses them only during the call, except for transfers of a queue. NULL memory is
 *   -EFAULT.
 * - Sizes and offsets are in bytes.
 * - A forked child must not use handles of its parent. The library must not be unloaded.
 * - O_DIRECT (fcntl.h) needs _GNU_SOURCE before the first include. The rest of this header needs only C99 or C++11.
 *
 * This file is generated from the sources in crates/c/src.
 */
#ifndef DIORITE_H
#define DIORITE_H

/* The version of this header: DIORITE_VERSION >= DIORITE_MAKE_VERSION(0, 1, 0). diorite_version() returns the version of the library. */
#define DIORITE_VERSION_MAJOR @MAJOR@
#define DIORITE_VERSION_MINOR @MINOR@
#define DIORITE_VERSION_PATCH @PATCH@
#define DIORITE_MAKE_VERSION(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define DIORITE_VERSION DIORITE_MAKE_VERSION(DIORITE_VERSION_MAJOR, DIORITE_VERSION_MINOR, DIORITE_VERSION_PATCH)

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";

const END: &str = "
#ifdef __cplusplus
}
#endif

#endif /* DIORITE_H */
";

#[test]
fn header_is_what_the_sources_say() {
    let path = directory().join("include/diorite.h");
    let made = header();
    if std::env::var_os("DIORITE_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "include/diorite.h is stale: DIORITE_UPDATE_HEADER=1 cargo test -p diorite-c header"
    );
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    let mut text = BEGIN
        .replace("@MAJOR@", env!("CARGO_PKG_VERSION_MAJOR"))
        .replace("@MINOR@", env!("CARGO_PKG_VERSION_MINOR"))
        .replace("@PATCH@", env!("CARGO_PKG_VERSION_PATCH"));
    for (module, title) in SECTIONS {
        let path = directory().join("src").join(module).with_extension("rs");
        let source = std::fs::read_to_string(&path).expect("a module");
        write!(text, "\n\n/*\n * {title}\n * {}\n *\n", "-".repeat(title.len())).expect("text");
        for line in module_head(&source) {
            text.push_str(format!(" * {line}").trim_end());
            text.push('\n');
        }
        text.push_str(" */\n\n");
        text.push_str(declarations(&path).trim_start());
    }
    text.push_str(END);
    reflow(&text.replace('`', ""))
}

/// The part of a module's head for the header.
fn module_head(source: &str) -> Vec<&str> {
    const INTERNAL: [&str; 3] = ["Safety policy:", "Invariants:", "Locking:"];
    let lines = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line));
    let mut lines: Vec<&str> =
        lines.take_while(|line| !INTERNAL.iter().any(|word| line.starts_with(word))).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

fn declarations(module: &Path) -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Type,
        no_includes: true,
        usize_is_size_t: true,
        line_length: WIDTH,
        tab_width: 4,
        documentation_style: cbindgen::DocumentationStyle::C,
        ..cbindgen::Config::default()
    };
    config.export.rename.insert("iovec".to_owned(), "struct iovec".to_owned());
    config.enumeration.rename_variants = cbindgen::RenameRule::QualifiedScreamingSnakeCase;
    let bindings =
        cbindgen::Builder::new().with_config(config).with_src(module).generate().expect("declarations");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("text")
}

/// Wrap comments.
fn reflow(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let begin = line.trim_start();
        if begin != "/**" && begin != "/*" {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let indent = &line[..line.len() - begin.len()];
        let comment = lines.by_ref().take_while(|line| line.trim() != "*/");
        let comment = comment.map(|line| line.trim_start().trim_start_matches('*'));
        let comment: Vec<&str> = comment.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let filled = fill(&comment, WIDTH - indent.len() - 3);
        if let [only] = &filled[..]
            && indent.len() + begin.len() + only.len() + 4 <= WIDTH
        {
            writeln!(out, "{indent}{begin} {only} */").expect("text");
            continue;
        }
        writeln!(out, "{indent}{begin}").expect("text");
        for line in filled {
            writeln!(out, "{}", format!("{indent} * {line}").trim_end()).expect("text");
        }
        writeln!(out, "{indent} */").expect("text");
    }
    out
}

/// Wrap paragraphs and list items at `width`. Indented lines do not change.
fn fill(lines: &[&str], width: usize) -> Vec<String> {
    let mut filled = Vec::new();
    let mut paragraph = String::new();
    for line in lines {
        let is_verbatim = line.is_empty() || line.starts_with("    ") || line.starts_with("---");
        if is_verbatim || line.starts_with("- ") {
            wrap(&std::mem::take(&mut paragraph), width, &mut filled);
        }
        if is_verbatim {
            filled.push((*line).to_owned());
        } else {
            paragraph.push_str(line.trim());
            paragraph.push(' ');
        }
    }
    wrap(&paragraph, width, &mut filled);
    filled
}

fn wrap(paragraph: &str, width: usize, filled: &mut Vec<String>) {
    let hanging = if paragraph.starts_with("- ") { "  " } else { "" };
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            filled.push(std::mem::replace(&mut line, format!("{hanging}{word}")));
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        filled.push(line);
    }
}
