//! The selected entries of an archive.

/// All entries, or those with given names and everything below them.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Without `./` and slashes at the end; each with whether an entry has it.
    names: Vec<(Vec<u8>, bool)>,
}

/// A name without `./` and `/` at its start and slashes at its end.
fn plain(mut name: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] | [b'.', b'/', rest @ ..] | [rest @ .., b'/'] = name {
        name = rest;
    }
    if name == b"." { b"" } else { name }
}

impl Members {
    /// These entries; all, if there are no names.
    pub fn named<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Self {
        Self { names: names.into_iter().map(|name| (plain(name).to_vec(), false)).collect() }
    }

    /// Whether all entries are wanted.
    pub fn are_all(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether the entry is wanted.
    pub fn wants(&mut self, entry: &[u8]) -> bool {
        if self.are_all() {
            return true;
        }
        let entry = plain(entry);
        let mut is_wanted = false;
        for (name, is_found) in &mut self.names {
            let rest = entry.strip_prefix(name.as_slice());
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || name.is_empty()) {
                *is_found = true;
                is_wanted = true;
            }
        }
        is_wanted
    }

    /// Names that no entry had.
    pub fn missing(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().filter(|(_, is_found)| !is_found).map(|(name, _)| name.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::Members;

    #[test]
    fn a_name_stands_for_the_entry_and_everything_below_it() {
        let mut members = Members::named([&b"./a/b/"[..], b"c", b"missing"]);
        for (entry, is_wanted) in [
            ("a", false),
            ("a/b", true),
            ("./a/b/", true),
            ("/a/b/c/d", true),
            ("a/bc", false),
            ("c", true),
            ("a/c", false),
            ("", false),
        ] {
            assert_eq!(members.wants(entry.as_bytes()), is_wanted, "{entry}");
        }
        assert_eq!(members.missing().collect::<Vec<_>>(), [b"missing"]);
        assert!(Members::default().wants(b"any"));
        assert!(Members::named([&b"."[..]]).wants(b"./any"), "the whole archive");
    }
}
