//! `-J`: the sizes of the journal and of its area for fast commits, in the syntax of `mke2fs`.

use std::str::FromStr;

use crate::size::Size;

/// Sizes of the parts of a journal; `None` depends on the size of the filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalSizes {
    /// The log.
    pub(crate) log: Option<Size>,
    /// The area after it.
    pub(crate) fast_commits: Option<Size>,
}

impl FromStr for JournalSizes {
    type Err = String;

    /// `SIZE`, or `size=SIZE,fast_commit_size=SIZE`. In the second form a number without a unit is MiB for the log and KiB for the area.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None => sizes.log = Some(word.parse()?),
                Some(("size", size)) => sizes.log = Some(in_units(size, 1 << 20)?),
                Some(("fast_commit_size", size)) => sizes.fast_commits = Some(in_units(size, 1 << 10)?),
                Some(_) => {
                    return Err(format!(
                        "unknown option `{word}`; the options are size and fast_commit_size"
                    ));
                }
            }
        }
        Ok(sizes)
    }
}

/// A size, or a number of units.
fn in_units(text: &str, unit: u64) -> Result<Size, String> {
    let Ok(number) = text.parse::<u64>() else { return text.parse() };
    number.checked_mul(unit).map(Size).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_units_of_mke2fs() {
        let sizes = |text: &str| text.parse::<JournalSizes>().map(|sizes| (sizes.log, sizes.fast_commits));
        assert_eq!(sizes("4M"), Ok((Some(Size(4 << 20)), None)));
        assert_eq!(sizes("size=4"), Ok((Some(Size(4 << 20)), None)));
        assert_eq!(sizes("size=8M,fast_commit_size=256"), Ok((Some(Size(8 << 20)), Some(Size(256 << 10)))));
        assert_eq!(sizes("fast_commit_size=1M"), Ok((None, Some(Size(1 << 20)))));
        assert!(sizes("device=/dev/x").is_err() && sizes("size=99999999999999999").is_err());
    }
}
