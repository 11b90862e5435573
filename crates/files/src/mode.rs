//! Permissions as text, as chmod(1) accepts them: `755`, `u+rwX,g-w,o=`, `+t`.
//!
//! The grammar is that of POSIX, with the extensions of GNU chmod: `+755`, several operators in a clause (`u=rw+s`), and copies (`g=u`).

use crate::Wrong;

/// All bits.
const ALL: u16 = 0o7777;
const SET_ID: u16 = 0o6000;

/// A parsed change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

/// The bits of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    /// A number. A short one keeps the set-ID bits of a directory.
    Number { bits: u16, keeps_set_id: bool },
    /// Letters: the bits, and whether `X` is among them.
    Letters { bits: u16, execute_if_any: bool },
    /// The permissions of a class: the shift of its bits.
    Class(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// The affected bits, or `None` for all that the umask permits.
    who: Option<u16>,
    operator: Operator,
    bits: Bits,
}

impl ModeChange {
    /// Parse a change.
    ///
    /// # Errors
    /// It is neither octal nor symbolic.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let wrong = || {
            let example =
                "permissions are an octal number up to 7777, such as 755, or changes, such as u+x,go-w";
            Wrong::new(text, example)
        };
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let bits = number(text).ok_or_else(wrong)?;
            return Ok(Self { steps: vec![Step { who: Some(ALL), operator: Operator::Set, bits }] });
        }
        let clauses = text.split(',').map(clause).collect::<Option<Vec<_>>>();
        Ok(Self { steps: clauses.ok_or_else(wrong)?.concat() })
    }

    /// The permissions of a file after the change. `umask` affects clauses that name no class.
    pub fn apply(&self, permissions: u16, is_directory: bool, umask: u16) -> u16 {
        self.steps.iter().fold(permissions & ALL, |mode, step| step.apply(mode, is_directory, umask))
    }
}

impl Step {
    fn apply(&self, mode: u16, is_directory: bool, umask: u16) -> u16 {
        let who = self.who.unwrap_or(ALL);
        let (bits, names_set_id) = match self.bits {
            Bits::Number { bits, keeps_set_id } => (bits, !keeps_set_id),
            Bits::Letters { bits, execute_if_any } => {
                let executes = execute_if_any && (is_directory || mode & 0o111 != 0);
                (bits | if executes { 0o111 } else { 0 }, bits & SET_ID != 0)
            }
            Bits::Class(shift) => (((mode >> shift) & 7) * 0o111, false),
        };
        let bits = bits & who & if self.who.is_none() { !(umask & 0o777) } else { ALL };
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => {
                let kept = if is_directory && !names_set_id { SET_ID } else { 0 };
                mode & (!who | kept) | bits
            }
        }
    }
}

/// An octal number.
fn number(text: &str) -> Option<Bits> {
    let bits =
        text.bytes().all(|digit| digit.is_ascii_digit()).then(|| u16::from_str_radix(text, 8).ok())??;
    // As in GNU chmod: 00755 clears the set-ID bits of a directory, 0755 does not.
    (bits <= ALL).then_some(Bits::Number { bits, keeps_set_id: text.len() < 5 && bits & SET_ID == 0 })
}

/// A clause such as `go-w` or `u=rw+s`.
fn clause(text: &str) -> Option<Vec<Step>> {
    let classes = text.find(|c| !"ugoa".contains(c))?;
    let who = text[..classes].chars().fold(0, |who, class| {
        who | match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            _ => ALL,
        }
    });
    let who = (who != 0).then_some(who);
    let mut steps = Vec::new();
    let mut rest = &text[classes..];
    while let Some(first) = rest.chars().next() {
        let operator = match first {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        let (who, bits) = operand(who, &rest[1..end])?;
        steps.push(Step { who, operator, bits });
        rest = &rest[end..];
    }
    Some(steps)
}

/// The bits after an operator, and the classes that they affect.
fn operand(who: Option<u16>, text: &str) -> Option<(Option<u16>, Bits)> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        // `+111` affects what it names, whatever the umask.
        return who.is_none().then(|| number(text)).flatten().map(|bits| (Some(ALL), bits));
    }
    match text {
        "u" => return Some((who, Bits::Class(6))),
        "g" => return Some((who, Bits::Class(3))),
        "o" => return Some((who, Bits::Class(0))),
        _ => {}
    }
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in text.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            's' => bits |= SET_ID,
            't' => bits |= 0o1000,
            'X' => execute_if_any = true,
            _ => return None,
        }
    }
    Some((who, Bits::Letters { bits, execute_if_any }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of GNU chmod 9.1 for the mode of a file, or of a directory.
    #[test]
    fn changes_are_those_of_gnu_chmod() {
        for (text, before, is_directory, after) in [
            ("755", 0o600, false, 0o755),
            ("755", 0o6600, false, 0o755),
            ("755", 0o6600, true, 0o6755),
            ("00755", 0o6600, true, 0o755),
            ("u+x", 0o644, false, 0o744),
            ("u+rwX,g-w,o=", 0o474, false, 0o750),
            ("+x", 0o644, false, 0o755),
            ("+w", 0o444, false, 0o644),
            ("a+w", 0o444, false, 0o666),
            ("-x", 0o777, false, 0o666),
            ("=r", 0o777, false, 0o444),
            ("=", 0o777, false, 0),
            ("=", 0o6777, true, 0o6000),
            ("a=rX", 0o640, false, 0o444),
            ("a=rX", 0o640, true, 0o555),
            ("g=u", 0o741, false, 0o771),
            ("o+g", 0o750, false, 0o755),
            ("u=rw+s", 0o777, false, 0o4677),
            ("ug+s", 0o755, false, 0o6755),
            ("+t", 0o755, true, 0o1755),
            ("u+t", 0o755, false, 0o755),
            ("go-s", 0o6755, false, 0o4755),
            ("+4111", 0o600, false, 0o4711),
            ("u=s", 0o2755, true, 0o6055),
        ] {
            let change = ModeChange::parse(text).unwrap();
            assert_eq!(change.apply(before, is_directory, 0o022), after, "{text} on {before:o}");
        }
    }

    #[test]
    fn other_texts_are_wrong() {
        for text in ["", "8", "10000", "u", "x", "u+q", "u++x,", "+rwxy", "7 5", "u+7", "-1x", "g=ux"] {
            let error = ModeChange::parse(text);
            assert!(error.is_err(), "{text}: {error:?}");
        }
    }
}
