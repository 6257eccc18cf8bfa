//! The file given by `--config_path`: a flat YAML or JSON mapping of flag names to values.

use std::collections::BTreeMap;

use super::error::{FlagError, Origin, Warning};
use super::scan::{Assignment, normal, suggestion};
use super::table::{self, Kind};
use super::value::Value;

/// Key for the lifetime of clients in configuration files of the reference, which has no flag of that name.
const CLIENT_TTL_KEY: &str = "client_live_ttl_sec";

/// Parses the text of a configuration file.
pub fn parse(path: &str, text: &str) -> Result<(Vec<Assignment>, Vec<Warning>), FlagError> {
    let bad = |reason: String| FlagError::BadConfig { path: path.to_owned(), reason };
    // Scalars keep the text they were written as, so that 0017 and 10s survive; null means "not set".
    let entries: BTreeMap<String, Option<String>> = if path.ends_with(".json") {
        json_entries(text).map_err(bad)?
    } else {
        serde_saphyr::from_str(text).map_err(|why| bad(why.to_string()))?
    };
    let mut assignments = Vec::new();
    let mut warnings = Vec::new();
    for (key, text) in entries {
        let Some(text) = text else { continue };
        let name = if key == CLIENT_TTL_KEY { "client_ttl".to_owned() } else { normal(&key) };
        let Some(flag) = table::position(&name) else {
            let hint = suggestion(&name).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            warnings.push(Warning(format!("{path}: unknown key '{key}' is ignored{hint}")));
            continue;
        };
        if matches!(name.as_str(), "config_path" | "flagfile" | "fromenv" | "tryfromenv" | "undefok") {
            warnings.push(Warning(format!("{path}: '{key}' is ignored: it works on the command line only")));
            continue;
        }
        let definition = &table::all()[flag];
        let origin = Origin::ConfigFile(path.to_owned());
        let value = Value::parse(definition.kind, yaml_word(definition.kind, &text)).map_err(|accepted| {
            FlagError::BadValue {
                flag: definition.name,
                value: text.clone(),
                accepted: accepted.to_owned(),
                origin: origin.clone(),
            }
        })?;
        assignments.push(Assignment { flag, text, value, origin });
    }
    Ok((assignments, warnings))
}

/// Translates the two words for booleans that YAML has and gflags does not.
fn yaml_word(kind: Kind, text: &str) -> &str {
    match kind {
        Kind::Bool if text.eq_ignore_ascii_case("on") => "true",
        Kind::Bool if text.eq_ignore_ascii_case("off") => "false",
        _ => text,
    }
}

fn json_entries(text: &str) -> Result<BTreeMap<String, Option<String>>, String> {
    use serde_json::Value as Json;
    let entries: BTreeMap<String, Json> = serde_json::from_str(text).map_err(|why| why.to_string())?;
    entries
        .into_iter()
        .map(|(key, value)| match value {
            Json::Null => Ok((key, None)),
            Json::Bool(value) => Ok((key, Some(value.to_string()))),
            Json::Number(value) => Ok((key, Some(value.to_string()))),
            Json::String(value) => Ok((key, Some(value))),
            Json::Array(_) | Json::Object(_) => Err(format!("the value of '{key}' is not a plain value")),
        })
        .collect()
}
