//! One state of a recording as text: `late:120:++-+[3]`.

use std::fmt;
use std::str::FromStr;

use diorite_sim::crash::Fate;

use crate::subject::Timing;

/// A state: the timing of the workload, the number of events before the power cut, and the fate of each unflushed write: `+` kept, `-` lost,
/// `[N]` torn after N sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What the system wrote by itself.
    pub timing: Timing,
    /// Number of events before the power cut.
    pub event: usize,
    /// One for each unflushed write, in the order of issue.
    pub fates: Vec<Fate>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Timing::NAMES.iter().find(|(timing, _)| *timing == self.timing).map_or("", |(_, name)| name);
        write!(f, "{name}:{}:", self.event)?;
        self.fates.iter().try_for_each(|fate| match fate {
            Fate::Lost => f.write_str("-"),
            Fate::Whole => f.write_str("+"),
            Fate::Torn { sectors } => write!(f, "[{sectors}]"),
        })
    }
}

/// The text is no case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCase;

impl fmt::Display for InvalidCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a case: write it as a failed test printed it, such as late:120:++-+[3]")
    }
}

impl std::error::Error for InvalidCase {}

impl FromStr for Case {
    type Err = InvalidCase;

    fn from_str(text: &str) -> Result<Self, InvalidCase> {
        let (timing, rest) = text.trim().split_once(':').ok_or(InvalidCase)?;
        let (timing, _) = *Timing::NAMES.iter().find(|(_, name)| *name == timing).ok_or(InvalidCase)?;
        let (event, mut rest) = rest.split_once(':').ok_or(InvalidCase)?;
        let event = event.parse().map_err(|_| InvalidCase)?;
        let mut fates = Vec::new();
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            fates.push(match first {
                '+' => Fate::Whole,
                '-' => Fate::Lost,
                '[' => {
                    let (sectors, after) = rest.split_once(']').ok_or(InvalidCase)?;
                    rest = after;
                    Fate::Torn { sectors: sectors.parse().map_err(|_| InvalidCase)? }
                }
                _ => return Err(InvalidCase),
            });
        }
        Ok(Self { timing, event, fates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let fates = vec![Fate::Whole, Fate::Lost, Fate::Torn { sectors: 17 }, Fate::Whole];
        let case = Case { timing: Timing::DataFirst, event: 120, fates };
        assert_eq!(case.to_string(), "data:120:+-[17]+");
        assert_eq!(case.to_string().parse(), Ok(case));
        for wrong in ["", "12", "late:x:+", "late:1:+?", "late:1:[3", "late:1:[x]", "never:1:+"] {
            assert_eq!(wrong.parse::<Case>(), Err(InvalidCase), "{wrong}");
        }
    }
}
