//! placeholder until merged
pub struct Pattern(regex::bytes::Regex);
#[derive(Debug)]
pub struct BadPattern;
#[derive(Debug)]
pub struct TooCostly;
impl Pattern {
    pub fn parse(text: &[u8]) -> Result<Self, BadPattern> {
        let text = std::str::from_utf8(text).map_err(|_| BadPattern)?;
        regex::bytes::RegexBuilder::new(text).unicode(false).build().map(Self).map_err(|_| BadPattern)
    }
    pub fn is_match(&self, key: &[u8]) -> Result<bool, TooCostly> {
        Ok(self.0.is_match(key))
    }
}
