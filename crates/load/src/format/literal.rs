//! The literals of Python that headers of `.npy` have: text, numbers, truth values, tuples, lists, one dictionary.
//!
//! Where it sits: below `npy.rs`. Recursion has a limit, and the text has one too.

use std::iter::Peekable;
use std::ops::Range;
use std::str::CharIndices;

use crate::error::Damage;

/// Nesting of tuples and lists.
const DEPTH_MAX: u32 = 16;

/// A literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Number(u64),
    Bool(bool),
    None,
    Tuple(Vec<Literal>),
    List(Vec<Literal>),
}

/// An entry of a dictionary, with the place of its value in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Literal,
    pub(super) text: Range<usize>,
}

struct Parser<'t> {
    text: &'t str,
    rest: Peekable<CharIndices<'t>>,
}

const WRONG: Damage = Damage::Form("the header is not a dictionary of Python");

/// Parse a dictionary whose keys are text, and which is the whole text but for spaces.
pub(super) fn dictionary(text: &str) -> Result<Vec<Entry>, Damage> {
    let mut parser = Parser { text, rest: text.char_indices().peekable() };
    parser.expect('{')?;
    let mut entries: Vec<Entry> = Vec::new();
    while !parser.eat('}') {
        let Literal::Text(key) = parser.value(0)? else { return Err(WRONG) };
        if entries.iter().any(|entry| entry.key == key) {
            return Err(Damage::Twice(key));
        }
        parser.expect(':')?;
        parser.spaces();
        let start = parser.position();
        let value = parser.value(0)?;
        entries.push(Entry { key, value, text: start..parser.position() });
        if !parser.eat(',') {
            parser.expect('}')?;
            break;
        }
    }
    parser.spaces();
    if parser.rest.peek().is_none() { Ok(entries) } else { Err(WRONG) }
}

impl Parser<'_> {
    fn spaces(&mut self) {
        while self.rest.next_if(|(_, char)| char.is_ascii_whitespace()).is_some() {}
    }

    fn position(&mut self) -> usize {
        self.rest.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.spaces();
        self.rest.next_if(|(_, char)| *char == wanted).is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), Damage> {
        if self.eat(wanted) { Ok(()) } else { Err(WRONG) }
    }

    fn value(&mut self, depth: u32) -> Result<Literal, Damage> {
        self.spaces();
        if depth > DEPTH_MAX {
            return Err(Damage::Form("the header is nested too deep"));
        }
        match self.rest.peek().map(|(_, char)| *char) {
            Some(quote @ ('\'' | '"')) => {
                self.rest.next();
                self.quoted(quote).map(Literal::Text)
            }
            Some('0'..='9') => self.number().map(Literal::Number),
            Some('(') => {
                self.rest.next();
                let (mut items, has_comma) = self.items(')', depth)?;
                // Parentheses around one value without a comma are no tuple.
                if items.len() == 1 && !has_comma {
                    return items.pop().ok_or(WRONG);
                }
                Ok(Literal::Tuple(items))
            }
            Some('[') => {
                self.rest.next();
                Ok(Literal::List(self.items(']', depth)?.0))
            }
            _ => self.word(),
        }
    }

    /// Values up to the end, and whether a comma follows the last.
    fn items(&mut self, end: char, depth: u32) -> Result<(Vec<Literal>, bool), Damage> {
        let (mut items, mut has_comma) = (Vec::new(), false);
        while !self.eat(end) {
            if !items.is_empty() && !has_comma {
                return Err(WRONG);
            }
            items.push(self.value(depth + 1)?);
            has_comma = self.eat(',');
        }
        Ok((items, has_comma))
    }

    fn number(&mut self) -> Result<u64, Damage> {
        let mut number: u64 = 0;
        while let Some((_, digit)) = self.rest.next_if(|(_, char)| char.is_ascii_digit()) {
            let digit = u64::from(digit.to_digit(10).unwrap_or(0));
            number = number.checked_mul(10).and_then(|n| n.checked_add(digit)).ok_or(Damage::Overflow)?;
        }
        // Python 2 wrote long numbers so.
        self.rest.next_if(|(_, char)| *char == 'L');
        Ok(number)
    }

    fn word(&mut self) -> Result<Literal, Damage> {
        let mut word = String::new();
        while word.len() < 8
            && let Some((_, letter)) = self.rest.next_if(|(_, char)| char.is_ascii_alphabetic())
        {
            word.push(letter);
        }
        match &*word {
            "True" => Ok(Literal::Bool(true)),
            "False" => Ok(Literal::Bool(false)),
            "None" => Ok(Literal::None),
            _ => Err(WRONG),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Damage> {
        let mut text = String::new();
        loop {
            let (_, char) = self.rest.next().ok_or(WRONG)?;
            match char {
                '\\' => text.push(self.escaped()?),
                '\n' => return Err(WRONG),
                char if char == quote => return Ok(text),
                char => text.push(char),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Damage> {
        let (_, kind) = self.rest.next().ok_or(WRONG)?;
        let digits = match kind {
            '\\' | '\'' | '"' => return Ok(kind),
            'n' => return Ok('\n'),
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return Err(WRONG),
        };
        let mut code: u32 = 0;
        for _ in 0..digits {
            let digit = self.rest.next().and_then(|(_, char)| char.to_digit(16)).ok_or(WRONG)?;
            code = code.checked_mul(16).map(|code| code + digit).ok_or(WRONG)?;
        }
        char::from_u32(code).ok_or(WRONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_numpy_is_parsed() {
        let text = "{'descr': [('a', '<f4'), (('t', 'b\\x41'), '|S3', (2,))], 'fortran_order': False, 'shape': (3L, 4), }  \n";
        let entries = dictionary(text).expect("a dictionary");
        assert_eq!(&text[entries[0].text.clone()], "[('a', '<f4'), (('t', 'b\\x41'), '|S3', (2,))]");
        assert_eq!(entries[1].value, Literal::Bool(false));
        assert_eq!(entries[2].value, Literal::Tuple(vec![Literal::Number(3), Literal::Number(4)]));
        let Literal::List(fields) = &entries[0].value else { panic!("a list") };
        let Literal::Tuple(second) = &fields[1] else { panic!("a tuple") };
        let names = ["t", "bA"].map(|name| Literal::Text(name.to_owned()));
        assert_eq!(second[0], Literal::Tuple(names.into()));
        assert_eq!(second[2], Literal::Tuple(vec![Literal::Number(2)]));
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        let deep = format!("{{'a': {}1}}", "(".repeat(1 << 16));
        for text in [
            "",
            "{",
            "{}}",
            "{1: 2}",
            "{'a' 1}",
            "{'a': 1 'b': 2}",
            "{'a': -1}",
            "{'a': __import__('os')}",
            "{'a': 1e3}",
            "{'a': (1 2)}",
            "{'a': 'b}",
            "{'a': '\\q'}",
            "{'a': '\\ud800'}",
            "{'a': 99999999999999999999}",
            "{'a': 1, 'a': 2}",
            "{'a': {}}",
            "{'a': Truest}",
            &deep,
        ] {
            assert!(dictionary(text).is_err(), "{text:.40}");
        }
    }
}
