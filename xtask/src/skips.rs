//! Counts skipped tests. A test that cannot run here prints `SKIPPED: why` and passes.

/// The expected skips, one in a line.
const EXPECTED: &str = include_str!("../expected_skips.txt");

/// The skips in the output of tests.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    /// Test and reason.
    found: Vec<(String, String)>,
    /// Whether the current line is output of a passed test.
    in_passed: bool,
    test: String,
}

impl Skips {
    /// Add a skip.
    pub(crate) fn add(&mut self, test: &str, why: &str) {
        self.found.push((test.to_owned(), why.to_owned()));
    }

    /// Add the skips of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        self.found.extend(other.found);
    }

    /// Print the skips. With `no_skip` a skip that is not in `expected_skips.txt` is an error.
    pub(crate) fn report(&self, no_skip: bool) -> Result<(), String> {
        println!("--- {} skipped", self.found.len());
        for (test, why) in &self.found {
            println!("SKIPPED: {test}: {why}");
        }
        let unexpected = self.unexpected(EXPECTED);
        if no_skip && !unexpected.is_empty() {
            return Err(format!("skipped, and not in xtask/expected_skips.txt: {}", unexpected.join(", ")));
        }
        Ok(())
    }

    /// Process a line of output. Returns whether it should be printed.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.in_passed = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            self.in_passed = false;
        }
        if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            test.clone_into(&mut self.test);
        }
        if let Some((_, why)) = line.split_once("SKIPPED: ") {
            let test = if self.in_passed { self.test.clone() } else { "a thread of some test".to_owned() };
            self.add(&test, why);
        }
        !self.in_passed
    }

    /// The skips that are not in `expected`, which has lines `TEST: REASON`. REASON is the beginning of a reason.
    fn unexpected(&self, expected: &str) -> Vec<&str> {
        let is_expected = |test: &str, why: &str| {
            let mut lines = expected.lines().filter_map(|line| line.split_once(": "));
            lines.any(|(known, reason)| known == test && why.starts_with(reason))
        };
        let unexpected = self.found.iter().filter(|(test, why)| !is_expected(test, why));
        unexpected.map(|(test, _)| test.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_named_and_the_output_of_tests_that_passed_is_not_shown() {
        let output = "running 2 tests\ntest one ... ok\ntest two ... ok\n\nsuccesses:\n\n---- one stdout ----\nSKIPPED: no disk\n\n\
                      ---- two stdout ----\nchatter\n\n\nsuccesses:\n    one\n    two\n\ntest result: ok. 2 passed";
        let mut skips = Skips::default();
        let shown: Vec<&str> = output.lines().filter(|line| skips.take(line)).collect();
        assert_eq!(skips.found, [("one".to_owned(), "no disk".to_owned())]);
        assert_eq!(
            shown,
            ["running 2 tests", "test one ... ok", "test two ... ok", "", "test result: ok. 2 passed"]
        );
    }

    #[test]
    fn only_expected_skips_are_forgiven() {
        let found =
            [("one", "cannot mount here: a reason"), ("one", "not root"), ("two", "cannot mount here")];
        let found = found.map(|(test, why)| (test.to_owned(), why.to_owned())).to_vec();
        let skips = Skips { found, ..Skips::default() };
        assert_eq!(skips.unexpected("# a comment\none: cannot mount here\n"), ["one", "two"]);
    }

    #[test]
    fn what_failed_is_shown() {
        let output = "successes:\nsuccesses:\n    one\n\nfailures:\n\n---- two stdout ----\npanicked\n";
        let mut skips = Skips::default();
        let shown: Vec<&str> = output.lines().filter(|line| skips.take(line)).collect();
        assert_eq!(shown, ["failures:", "", "---- two stdout ----", "panicked"]);
    }
}
