//! From the text of a pattern to its tree, by the rules of libstdc++'s ECMAScript.

use super::error::BadPattern;
use super::linear;
use super::tree::{ByteSet, Node, Place, is_word};

/// Deepest nesting of groups and quantifiers: the code after the parser walks the tree by recursion.
const MAX_DEPTH: u32 = 200;

/// Parses a whole pattern; fails if it would need too many states.
pub(super) fn parse(text: &[u8]) -> Result<Node, BadPattern> {
    let mut parser = Parser { text, at: 0, depth: 0, groups: 0, open: Vec::new() };
    let tree = parser.choice()?;
    if parser.at < text.len() {
        return Err(parser.bad("unmatched ')'"));
    }
    if tree.states() > linear::MAX_STATES {
        return Err(parser.bad("too many states"));
    }
    Ok(tree)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
    /// Groups opened so far, and those of them that are not closed yet.
    groups: u32,
    open: Vec<u32>,
}

/// What a backslash and the characters after it stand for.
enum Escape {
    Byte(u8),
    Class(ByteSet),
    At(Place),
    Again(u32),
}

/// What a parenthesis opens: a group or a look-ahead.
enum Kind {
    Numbered(u32),
    Plain,
    Ahead { negate: bool },
}

impl Parser<'_> {
    fn bad(&self, reason: &'static str) -> BadPattern {
        BadPattern { at: self.at, reason }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn choice(&mut self) -> Result<Node, BadPattern> {
        let mut branches = vec![self.sequence()?];
        while self.eat(b'|') {
            branches.push(self.sequence()?);
        }
        Ok(if branches.len() == 1 { branches.remove(0) } else { Node::Choice(branches) })
    }

    fn sequence(&mut self) -> Result<Node, BadPattern> {
        let mut nodes = Vec::new();
        while let Some(byte) = self.peek() {
            if matches!(byte, b'|' | b')') {
                break;
            }
            self.at += 1;
            nodes.push(self.term(byte)?);
        }
        Ok(Node::Sequence(nodes))
    }

    /// Parses an assertion, or an atom with its quantifiers; `byte` was just read.
    fn term(&mut self, byte: u8) -> Result<Node, BadPattern> {
        let atom = match byte {
            b'^' => return Ok(Node::At(Place::Start)),
            b'$' => return Ok(Node::At(Place::End)),
            b'*' | b'+' | b'?' | b'{' => return Err(self.bad("nothing to repeat")),
            b'.' => Node::Byte(ByteSet::of(|byte| byte != b'\n' && byte != b'\r')),
            b'[' => Node::Byte(self.bracket()?),
            b'(' => {
                let group = self.group()?;
                if matches!(group, Node::Ahead { .. }) {
                    return Ok(group);
                }
                group
            }
            b'\\' => match self.escape(false)? {
                Escape::At(place) => return Ok(Node::At(place)),
                Escape::Byte(byte) => Node::Byte(ByteSet::of(|b| b == byte)),
                Escape::Class(set) => Node::Byte(set),
                Escape::Again(group) => Node::Again(group),
            },
            _ => Node::Byte(ByteSet::of(|b| b == byte)),
        };
        self.quantified(atom)
    }

    fn deeper(&mut self) -> Result<(), BadPattern> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.bad("nested too deeply")) } else { Ok(()) }
    }

    /// Parses what follows an opening parenthesis, up to the closing one.
    fn group(&mut self) -> Result<Node, BadPattern> {
        self.deeper()?;
        let kind = if self.eat(b'?') {
            match self.next() {
                Some(b':') => Kind::Plain,
                Some(b'=') => Kind::Ahead { negate: false },
                Some(b'!') => Kind::Ahead { negate: true },
                _ => return Err(self.bad("unknown kind of group")),
            }
        } else {
            self.groups += 1;
            self.open.push(self.groups);
            Kind::Numbered(self.groups)
        };
        let inner = self.choice()?;
        if !self.eat(b')') {
            return Err(self.bad("missing ')'"));
        }
        self.depth -= 1;
        Ok(match kind {
            Kind::Plain => inner,
            Kind::Ahead { negate } => Node::Ahead { node: Box::new(inner), negate },
            Kind::Numbered(number) => {
                self.open.pop();
                Node::Group(number, Box::new(inner))
            }
        })
    }

    /// Wraps `atom` in the quantifiers that follow it, of which there may be several.
    fn quantified(&mut self, mut atom: Node) -> Result<Node, BadPattern> {
        let depth = self.depth;
        while let Some(byte) = self.peek() {
            let (least, most) = match byte {
                b'*' => (0, None),
                b'+' => (1, None),
                b'?' => (0, Some(1)),
                b'{' => (0, None),
                _ => break,
            };
            self.at += 1;
            let (least, most) = if byte == b'{' { self.braces()? } else { (least, most) };
            let greedy = !self.eat(b'?');
            self.deeper()?;
            atom = Node::Repeat { node: Box::new(atom), least, most, greedy };
        }
        self.depth = depth;
        Ok(atom)
    }

    /// Parses `n}`, `n,}` or `n,m}`.
    fn braces(&mut self) -> Result<(u32, Option<u32>), BadPattern> {
        let least = self.number()?;
        let most = if !self.eat(b',') {
            Some(least)
        } else if self.peek() == Some(b'}') {
            None
        } else {
            Some(self.number()?)
        };
        if !self.eat(b'}') {
            return Err(self.bad("missing '}'"));
        }
        if most.is_some_and(|most| most < least) {
            return Err(self.bad("a range that ends before it starts"));
        }
        Ok((least, most))
    }

    /// Parses a decimal number of at least one digit.
    fn number(&mut self) -> Result<u32, BadPattern> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = self.text.get(start..self.at).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| self.bad("not a small number"))
    }

    /// Parses what follows a backslash.
    fn escape(&mut self, in_bracket: bool) -> Result<Escape, BadPattern> {
        let byte = self.next().ok_or_else(|| self.bad("backslash at the end"))?;
        Ok(match byte {
            b'0' => Escape::Byte(0),
            b'b' if in_bracket => Escape::Byte(8),
            b'b' => Escape::At(Place::Boundary),
            b'B' => Escape::At(Place::NoBoundary),
            b'f' => Escape::Byte(0x0c),
            b'n' => Escape::Byte(b'\n'),
            b'r' => Escape::Byte(b'\r'),
            b't' => Escape::Byte(b'\t'),
            b'v' => Escape::Byte(0x0b),
            b'd' | b'D' | b's' | b'S' | b'w' | b'W' => {
                let set = class(&[byte.to_ascii_lowercase()]).unwrap_or_default();
                Escape::Class(if byte.is_ascii_uppercase() { set.complement() } else { set })
            }
            // Elsewhere this is a control character; libstdc++ takes the character itself.
            b'c' => Escape::Byte(self.next().ok_or_else(|| self.bad("\\c without a character"))?),
            b'x' => Escape::Byte(self.hex(2)?),
            b'u' => Escape::Byte(self.hex(4)?),
            b'1'..=b'9' => {
                self.at -= 1;
                let group = self.number()?;
                if group > self.groups || self.open.contains(&group) {
                    return Err(self.bad("back-reference to no finished group"));
                }
                Escape::Again(group)
            }
            other => Escape::Byte(other),
        })
    }

    /// Parses a hexadecimal number of exactly `digits` digits and returns its lowest byte.
    fn hex(&mut self, digits: usize) -> Result<u8, BadPattern> {
        let mut value = 0u32;
        for _ in 0..digits {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            value = value << 4 | digit.ok_or_else(|| self.bad("not a hexadecimal digit"))?;
            self.at += 1;
        }
        Ok(value as u8)
    }
}

/// What a bracket expression consists of.
enum Item {
    Byte(u8),
    Class(ByteSet),
    Dash,
    End,
}

/// The previous item, which a dash may make the start of a range.
enum Last {
    Nothing,
    Byte(u8),
    Class,
}

impl Parser<'_> {
    /// Parses a bracket expression, whose `[` was just read.
    fn bracket(&mut self) -> Result<ByteSet, BadPattern> {
        let negate = self.eat(b'^');
        let mut set = ByteSet::default();
        let mut last = Last::Nothing;
        if self.eat(b'-') {
            last = Last::Byte(b'-');
        }
        loop {
            let byte = match self.item()? {
                Item::End => break,
                Item::Class(class) => {
                    set.add_all(class);
                    last.replace(Last::Class, &mut set);
                    continue;
                }
                Item::Byte(byte) => byte,
                Item::Dash if self.eat(b']') => {
                    set.add(b'-');
                    break;
                }
                Item::Dash => match last {
                    Last::Class => return Err(self.bad("a range cannot start with a class")),
                    Last::Nothing => b'-',
                    Last::Byte(from) => {
                        let to = match self.item()? {
                            Item::Byte(byte) => byte,
                            Item::Dash => b'-',
                            Item::Class(_) | Item::End => return Err(self.bad("a range without an end")),
                        };
                        // libstdc++ compares `char`, which is signed: 0x80 to 0xff come before 0.
                        let (from, to) = (from as i8, to as i8);
                        if from > to {
                            return Err(self.bad("a range that ends before it starts"));
                        }
                        set.add_all(ByteSet::of(|byte| (from..=to).contains(&(byte as i8))));
                        last = Last::Nothing;
                        continue;
                    }
                },
            };
            last.replace(Last::Byte(byte), &mut set);
        }
        last.replace(Last::Nothing, &mut set);
        Ok(if negate { set.complement() } else { set })
    }

    fn item(&mut self) -> Result<Item, BadPattern> {
        let byte = self.next().ok_or_else(|| self.bad("missing ']'"))?;
        Ok(match byte {
            b'-' => Item::Dash,
            b']' => Item::End,
            b'\\' => match self.escape(true)? {
                Escape::Byte(byte) => Item::Byte(byte),
                Escape::Class(set) => Item::Class(set),
                Escape::At(_) | Escape::Again(_) => return Err(self.bad("not a character")),
            },
            b'[' => match self.peek() {
                None => return Err(self.bad("missing ']'")),
                Some(b':') => Item::Class(self.class_name()?),
                Some(mark @ (b'.' | b'=')) => self.collating(mark)?,
                Some(_) => Item::Byte(b'['),
            },
            byte => Item::Byte(byte),
        })
    }

    /// Parses the element of `[.x.]` or `[=x=]`, of which the first bracket was just read. In the "C" locale a
    /// character stands for itself; elements with names are not supported.
    fn collating(&mut self, mark: u8) -> Result<Item, BadPattern> {
        let element = match self.text.get(self.at..self.at + 4) {
            Some(&[_, byte, end, b']']) if end == mark => byte,
            _ => return Err(self.bad("not a collating element of one character")),
        };
        self.at += 4;
        Ok(if mark == b'.' { Item::Byte(element) } else { Item::Class(ByteSet::of(|byte| byte == element)) })
    }

    /// Parses the set of `[:name:]`, of which the first bracket was just read.
    fn class_name(&mut self) -> Result<ByteSet, BadPattern> {
        self.at += 1;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len());
        let name = rest[..len].to_ascii_lowercase();
        if rest.get(len..len + 2) != Some(b":]") {
            return Err(self.bad("missing ':]'"));
        }
        self.at += len + 2;
        class(&name).ok_or_else(|| self.bad("unknown class of characters"))
    }
}

impl Last {
    /// Replaces the previous item by `next` and adds it to the set, because it did not start a range.
    fn replace(&mut self, next: Last, set: &mut ByteSet) {
        if let Last::Byte(byte) = std::mem::replace(self, next) {
            set.add(byte);
        }
    }
}

/// Returns the set of a named class, in the "C" locale: bytes from 0x80 on are in none of them.
fn class(name: &[u8]) -> Option<ByteSet> {
    let member: fn(u8) -> bool = match name {
        b"d" | b"digit" => |b| b.is_ascii_digit(),
        b"w" => is_word,
        b"s" | b"space" => |b| b.is_ascii_whitespace() || b == 0x0b,
        b"alnum" => |b| b.is_ascii_alphanumeric(),
        b"alpha" => |b| b.is_ascii_alphabetic(),
        b"blank" => |b| b == b' ' || b == b'\t',
        b"cntrl" => |b| b.is_ascii_control(),
        b"graph" => |b| b.is_ascii_graphic(),
        b"lower" => |b| b.is_ascii_lowercase(),
        b"print" => |b| b.is_ascii_graphic() || b == b' ',
        b"punct" => |b| b.is_ascii_punctuation(),
        b"upper" => |b| b.is_ascii_uppercase(),
        b"xdigit" => |b| b.is_ascii_hexdigit(),
        _ => return None,
    };
    Some(ByteSet::of(member))
}
