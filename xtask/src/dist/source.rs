//! The source distribution, and the list of the components of the program (SBOM).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Release;
use crate::command::{call, shell};

/// The files of the last commit.
pub(super) fn build(release: &Release) -> Result<(), String> {
    let name = format!("diorite-{}", release.version);
    shell(&format!(
        "git archive --format=tar --prefix={name}/ HEAD | gzip -9n > {dist}/{name}-source.tar.gz",
        dist = release.directory.display(),
    ))
    .map(drop)
}

/// The crates that the program is linked from, by name, version, licence and checksum.
pub(super) fn build_sbom(release: &Release) -> Result<(), String> {
    let metadata = call(&[
        env!("CARGO"),
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        &super::gnu_triple(),
    ])?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let text = call(&[
        env!("CARGO"),
        "tree",
        "--locked",
        "-p",
        "diorite-cli",
        "-e",
        "normal",
        "--prefix",
        "none",
        "-f",
        "{p}",
    ])?;
    let lock = std::fs::read_to_string("Cargo.lock").map_err(|error| format!("Cargo.lock: {error}"))?;
    let components = components(&metadata, &text, &checksums(&lock));
    let sbom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "diorite", "version": release.version, "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        } },
        "components": components,
    });
    let path = release.directory.join(format!("diorite-{}.cdx.json", release.version));
    let text = serde_json::to_string_pretty(&sbom).map_err(|error| error.to_string())?;
    super::write(&path, &(text + "\n"))
}

/// The components among all packages of `cargo metadata` that `cargo tree` lists.
fn components(metadata: &Value, tree: &str, checksums: &BTreeMap<(String, String), String>) -> Vec<Value> {
    // A line is `name vVERSION`, and `(*)` or the path of a crate of the workspace.
    let linked: std::collections::BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            Some((name, rest.split(' ').next()?))
        })
        .collect();
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut found: Vec<Value> = packages
        .iter()
        .filter_map(|package| {
            let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
            linked.contains(&(name, version)).then(|| {
                let mut component = json!({
                    "type": "library", "name": name, "version": version, "purl": format!("pkg:cargo/{name}@{version}"),
                });
                if let Some(licence) = package["license"].as_str() {
                    component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
                }
                if let Some(sum) = checksums.get(&(name.to_owned(), version.to_owned())) {
                    component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
                }
                component
            })
        })
        .collect();
    found.sort_by_key(|component| component["purl"].as_str().map(str::to_owned));
    found
}

/// The checksums in the lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    packages
        .filter_map(|package| {
            Some(((value(package, "name")?, value(package, "version")?), value(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_the_linked_packages_with_their_checksums() {
        let package = |name: &str| json!({ "name": name, "version": "1.2.3", "license": "MIT/Apache-2.0" });
        let metadata = json!({ "packages": [package("log"), package("unused")] });
        let lock = "[[package]]\nname = \"log\"\nversion = \"1.2.3\"\nchecksum = \"abcd\"\n\n[[package]]\nname = \"own\"\nversion = \"1.2.3\"\n";
        let found =
            components(&metadata, "own v1.2.3 (/src)\nlog v1.2.3\nlog v1.2.3 (*)\n", &checksums(lock));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["purl"], "pkg:cargo/log@1.2.3");
        assert_eq!(found[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(found[0]["hashes"][0]["content"], "abcd");
    }
}
