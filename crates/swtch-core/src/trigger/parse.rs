//! Reads a condition as a person writes it.

use regex_lite::Regex;

use super::{LengthField, NumberField, Relation, TriggerCondition, TriggerMistake};
use crate::reason::Reason;
use crate::units::Nanos;

/// Parentheses and `!` inside one another.
const MOST_LEVELS: usize = 32;

/// The fields, as a mistake names them.
const FIELDS: &str =
    "runq, off, blocked, ran (lengths of time), reason, comm, pid, tid, cpu, switches/s";

/// Operators, the longer ones first.
const OPERATORS: [&str; 8] = ["==", "!=", "<=", ">=", "=", "<", ">", "~"];

pub(super) fn condition(words: &str) -> Result<TriggerCondition, TriggerMistake> {
    let mut parser = Parser {
        words,
        characters: words.chars().collect(),
        next: 0,
        levels: 0,
    };
    let condition = parser.any()?;
    parser.skip_spaces();
    match parser.peek() {
        None => Ok(condition),
        Some(_) => Err(parser.mistake(parser.next, 1, "an & or | is missing before this".into())),
    }
}

struct Parser<'a> {
    words: &'a str,
    characters: Vec<char>,
    next: usize,
    levels: usize,
}

impl Parser<'_> {
    fn mistake(&self, at: usize, length: usize, what: String) -> TriggerMistake {
        TriggerMistake {
            words: self.words.to_owned(),
            at,
            length,
            what,
        }
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.next).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next += 1;
        }
    }

    /// Takes this mark, once or twice: `&` and `&&` are the same.
    fn take_mark(&mut self, mark: char) -> bool {
        self.skip_spaces();
        let is_there = self.peek() == Some(mark);
        for _ in 0..2 {
            if self.peek() == Some(mark) {
                self.next += 1;
            }
        }
        is_there
    }

    fn any(&mut self) -> Result<TriggerCondition, TriggerMistake> {
        let mut parts = vec![self.all()?];
        while self.take_mark('|') {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, TriggerCondition::Any))
    }

    fn all(&mut self) -> Result<TriggerCondition, TriggerMistake> {
        let mut parts = vec![self.one()?];
        while self.take_mark('&') {
            parts.push(self.one()?);
        }
        Ok(one_or(parts, TriggerCondition::All))
    }

    fn one(&mut self) -> Result<TriggerCondition, TriggerMistake> {
        self.skip_spaces();
        let at = self.next;
        let Some(mark @ ('!' | '(')) = self.peek() else {
            return self.comparison();
        };
        self.levels += 1;
        if self.levels > MOST_LEVELS {
            return Err(self.mistake(
                at,
                1,
                "there are too many ( and ! inside one another".into(),
            ));
        }
        self.next += 1;
        let inner = match mark {
            '!' => TriggerCondition::Not(Box::new(self.one()?)),
            _ => {
                let inner = self.any()?;
                self.skip_spaces();
                if self.peek() != Some(')') {
                    return Err(self.mistake(at, 1, "the ) for this is missing".into()));
                }
                self.next += 1;
                inner
            }
        };
        self.levels -= 1;
        Ok(inner)
    }

    fn comparison(&mut self) -> Result<TriggerCondition, TriggerMistake> {
        let (field_at, field) = self.word();
        if field.is_empty() {
            return Err(self.mistake(field_at, 1, format!("a field is missing here: {FIELDS}")));
        }
        let (operator_at, operator) = self.operator()?;
        let (at, value) = self.value()?;
        let bad_value =
            |parser: &Self, what: String| parser.mistake(at, value.chars().count(), what);
        let relation = |parser: &Self| {
            relation(operator).ok_or_else(|| {
                let what = format!("{field} is compared by =, !=, <, <=, > or >=");
                parser.mistake(operator_at, operator.len(), what)
            })
        };
        let equality = |parser: &Self| {
            let relation = relation(parser)?;
            match relation {
                Relation::Equal | Relation::Unequal => Ok(relation),
                _ => {
                    let what = format!("{field} is compared by = or !=");
                    Err(parser.mistake(operator_at, operator.len(), what))
                }
            }
        };
        if let Some(length_field) = length_field(&field) {
            let length = Nanos::from_words(&value).ok_or_else(|| {
                let what = "this needs to be a length of time with a unit: 20ms, 1.5s, 50us".into();
                bad_value(self, what)
            })?;
            return Ok(TriggerCondition::Length(
                length_field,
                relation(self)?,
                length,
            ));
        }
        if let Some(number_field) = number_field(&field) {
            let number = number(&value)
                .ok_or_else(|| bad_value(self, "this needs to be a number: 4711, 200k".into()))?;
            return Ok(TriggerCondition::Number(
                number_field,
                relation(self)?,
                number,
            ));
        }
        match field.as_str() {
            "reason" => {
                let reason = Reason::from_word(&value).ok_or_else(|| {
                    let all: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
                    bad_value(self, format!("there is no such reason: {}", all.join(", ")))
                })?;
                Ok(TriggerCondition::Reason(equality(self)?, reason))
            }
            "comm" if operator == "~" => Regex::new(&value)
                .map(TriggerCondition::CommLike)
                .map_err(|error| bad_value(self, format!("this is no pattern: {error}"))),
            "comm" => Ok(TriggerCondition::Comm(equality(self)?, value)),
            _ => {
                let what = format!("there is no field {field}: {FIELDS}");
                Err(self.mistake(field_at, field.chars().count(), what))
            }
        }
    }

    /// A field, and where it begins.
    fn word(&mut self) -> (usize, String) {
        self.skip_spaces();
        let at = self.next;
        while let Some(c) = self.peek()
            && (c.is_alphanumeric() || ['/', '_', '-'].contains(&c))
        {
            self.next += 1;
        }
        (at, self.characters[at..self.next].iter().collect())
    }

    fn operator(&mut self) -> Result<(usize, &'static str), TriggerMistake> {
        self.skip_spaces();
        let at = self.next;
        let rest: String = self.characters[at..].iter().take(2).collect();
        let found = OPERATORS
            .into_iter()
            .find(|operator| rest.starts_with(operator));
        let found = found.ok_or_else(|| {
            let what = "an operator is missing here: =, !=, <, <=, >, >= or ~".into();
            self.mistake(at, 1, what)
        })?;
        self.next += found.len();
        Ok((at, found))
    }

    /// A value: in quotes, or up to a space or a mark.
    fn value(&mut self) -> Result<(usize, String), TriggerMistake> {
        self.skip_spaces();
        let start = self.next;
        if let Some(quote @ ('"' | '\'')) = self.peek() {
            let rest = &self.characters[start + 1..];
            let Some(length) = rest.iter().position(|c| *c == quote) else {
                return Err(self.mistake(start, 1, "the quote is not closed".into()));
            };
            self.next = start + length + 2;
            return Ok((start + 1, rest[..length].iter().collect()));
        }
        while let Some(c) = self.peek()
            && !c.is_whitespace()
            && !['&', '|', ')'].contains(&c)
        {
            self.next += 1;
        }
        match self.next == start {
            true => Err(self.mistake(start, 1, "a value is missing here".into())),
            false => Ok((start, self.characters[start..self.next].iter().collect())),
        }
    }
}

fn one_or(
    mut parts: Vec<TriggerCondition>,
    join: impl FnOnce(Vec<TriggerCondition>) -> TriggerCondition,
) -> TriggerCondition {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

fn relation(operator: &str) -> Option<Relation> {
    Some(match operator {
        "=" | "==" => Relation::Equal,
        "!=" => Relation::Unequal,
        "<" => Relation::Less,
        "<=" => Relation::AtMost,
        ">" => Relation::More,
        ">=" => Relation::AtLeast,
        _ => return None,
    })
}

fn length_field(word: &str) -> Option<LengthField> {
    Some(match word {
        "runq" => LengthField::RunQueue,
        "off" => LengthField::Off,
        "blocked" => LengthField::Blocked,
        "ran" => LengthField::Ran,
        _ => return None,
    })
}

fn number_field(word: &str) -> Option<NumberField> {
    Some(match word {
        "cpu" => NumberField::Cpu,
        "pid" => NumberField::Pid,
        "tid" => NumberField::Tid,
        "switches/s" => NumberField::SwitchesPerSecond,
        _ => return None,
    })
}

/// A number, also in thousands (`200k`) or millions (`1.5M`).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "checked to lie in the range of u64"
)]
fn number(words: &str) -> Option<u64> {
    let (digits, unit) = match words.as_bytes().last()? {
        b'k' => (&words[..words.len() - 1], 1e3),
        b'M' => (&words[..words.len() - 1], 1e6),
        _ => return words.parse().ok(),
    };
    let number = digits.parse::<f64>().ok()? * unit;
    (0.0..u64::MAX as f64)
        .contains(&number)
        .then_some(number as u64)
}
