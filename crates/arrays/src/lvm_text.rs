//! The text of LVM2's metadata: sections, and values that are numbers, strings or lists of these.

use std::collections::BTreeMap;

use crate::parts::Result;

/// Deepest nesting of sections; LVM2 has four levels.
const DEPTH_MAX: u32 = 16;
/// Most values of all sections. A volume has about twenty, and each takes some hundred bytes of memory.
const VALUES_MAX: u32 = 1 << 20;

/// A value of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Section(Section),
}

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section(BTreeMap<String, Value>);

impl Section {
    /// The whole text.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser { rest: text, values: 0 };
        let section = parser.section(0)?;
        if parser.peek().is_some() { Err(parser.unexpected("the end")) } else { Ok(section) }
    }

    /// The sections in this one.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((name.as_str(), section)),
            _ => None,
        })
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Self> {
        match self.0.get(name) {
            Some(Value::Section(section)) => Some(section),
            _ => None,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        match self.0.get(name) {
            Some(Value::Number(number)) => {
                u64::try_from(*number).map_err(|_| format!("{name} = {number} is below zero"))
            }
            _ => Err(format!("there is no number {name}")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str> {
        match self.0.get(name) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(format!("there is no text {name}")),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<&[Value]> {
        match self.0.get(name) {
            Some(Value::List(list)) => Ok(list),
            _ => Err(format!("there is no list {name}")),
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
    /// Values so far.
    values: u32,
}

impl<'t> Parser<'t> {
    /// The next character after spaces and comments.
    fn peek(&mut self) -> Option<char> {
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.strip_prefix('#') {
                Some(comment) => self.rest = comment.split_once('\n').map_or("", |(_, next)| next),
                None => return self.rest.chars().next(),
            }
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        is_there
    }

    fn word(&mut self) -> &'t str {
        self.peek();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn unexpected(&self, wanted: &str) -> String {
        let here: String = self.rest.chars().take(20).collect();
        format!("the metadata has {here:?} where {wanted} should be")
    }

    fn count_value(&mut self) -> Result<()> {
        self.values += 1;
        if self.values > VALUES_MAX { Err("the metadata has too many values".to_owned()) } else { Ok(()) }
    }

    /// Up to a `}` or the end.
    fn section(&mut self, depth: u32) -> Result<Section> {
        if depth > DEPTH_MAX {
            return Err("the metadata has too many nested sections".to_owned());
        }
        let mut values = BTreeMap::new();
        while !matches!(self.peek(), None | Some('}')) {
            self.count_value()?;
            let name = self.word();
            if name.is_empty() {
                return Err(self.unexpected("a name"));
            }
            let value = if self.take('{') {
                let section = self.section(depth + 1)?;
                if !self.take('}') {
                    return Err(self.unexpected("a }"));
                }
                Value::Section(section)
            } else if self.take('=') {
                self.value()?
            } else {
                return Err(self.unexpected("= or {"));
            };
            values.insert(name.to_owned(), value);
        }
        Ok(Section(values))
    }

    fn value(&mut self) -> Result<Value> {
        if !self.take('[') {
            return self.scalar();
        }
        let mut list = Vec::new();
        while !self.take(']') {
            self.count_value()?;
            list.push(self.scalar()?);
            if !self.take(',') && self.peek() != Some(']') {
                return Err(self.unexpected("a comma or ]"));
            }
        }
        Ok(Value::List(list))
    }

    fn scalar(&mut self) -> Result<Value> {
        if self.take('"') {
            return self.text();
        }
        let word = self.word();
        word.parse().map(Value::Number).map_err(|_| format!("the metadata has the value {word:?}"))
    }

    /// After the opening quote.
    fn text(&mut self) -> Result<Value> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(Value::Text(text));
                }
                '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
                other => text.push(other),
            }
        }
        Err("the metadata has an unterminated string".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_nonsense_is_explained() {
        let text = "# comment\nvg {\nid = \"a-b\"\nstatus = [\"READ\", \"WRITE\"] # why\nempty = []\nn = 4\nlv { name = \"q\\\"x\" }\n}\nversion = 1\n";
        let section = Section::parse(text).expect("sound");
        let group = section.section("vg").expect("a section");
        assert_eq!(group.text("id"), Ok("a-b"));
        assert_eq!(group.list("status").map(<[_]>::len), Ok(2));
        assert_eq!(group.list("empty").map(<[_]>::len), Ok(0));
        assert_eq!(group.number("n"), Ok(4));
        assert_eq!(group.section("lv").map(|lv| lv.text("name")), Some(Ok("q\"x")));
        assert_eq!(section.number("version"), Ok(1));
        for bad in ["a", "a = ", "a = [1 2]", "a {", "}", "a = \"x", "= 1", "a = [", &"a {".repeat(1000)] {
            assert!(Section::parse(bad).is_err(), "{bad}");
        }
        for many in ["a=1 ".repeat(1 << 21), format!("a = [{}]", "1,".repeat(1 << 21))] {
            assert_eq!(Section::parse(&many), Err("the metadata has too many values".to_owned()));
        }
    }
}
