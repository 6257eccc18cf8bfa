//! Converts fields that a user passes on to Kubernetes into Kubernetes' own types. Unknown fields would be dropped
//! silently, so they are errors.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::BuildError;

/// Converts a value to a Kubernetes type.
pub(super) fn typed<T: Serialize + DeserializeOwned>(field: &str, value: &Value) -> Result<T, BuildError> {
    let failed = |why: String| BuildError::PassedOn { field: field.to_owned(), why };
    let object: T = serde_json::from_value(value.clone()).map_err(|why| failed(why.to_string()))?;
    let kept = serde_json::to_value(&object).map_err(|why| failed(why.to_string()))?;
    match lost(value, &kept) {
        Some(path) => Err(failed(format!("there is no field {path}"))),
        None => Ok(object),
    }
}

/// Converts a list of values to a Kubernetes type.
pub(super) fn typed_list<T: Serialize + DeserializeOwned>(
    field: &str,
    values: &[Value],
) -> Result<Vec<T>, BuildError> {
    let numbered = values.iter().enumerate();
    numbered.map(|(index, value)| typed(&format!("{field}[{index}]"), value)).collect()
}

/// Returns the path of the first field of `before` that `after` lacks.
fn lost(before: &Value, after: &Value) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(name, value)| {
            if value.is_null() {
                return None;
            }
            let Some(kept) = after.get(name) else { return Some(name.clone()) };
            lost(value, kept).map(|rest| format!("{name}.{rest}"))
        }),
        (Value::Array(before), Value::Array(after)) => {
            before.iter().zip(after).enumerate().find_map(|(index, (before, after))| {
                lost(before, after).map(|rest| format!("[{index}].{rest}"))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Affinity, Container};
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_words_are_errors() {
        let good = json!({"name": "a", "image": "b", "ports": [{"containerPort": 1}], "command": []});
        assert_eq!(typed::<Container>("x", &good).map(|container| container.name), Ok("a".to_owned()));
        let message = |value: Value| match typed::<Container>("x", &value) {
            Ok(_) => "accepted".to_owned(),
            Err(why) => why.to_string(),
        };
        assert_eq!(message(json!({"name": "a", "imag": "b"})), "spec.x: there is no field imag");
        assert_eq!(
            message(json!({"name": "a", "ports": [{"containerPort": 1, "hostport": 2}]})),
            "spec.x: there is no field ports.[0].hostport"
        );
        assert!(message(json!({"name": 7})).starts_with("spec.x: invalid type"));
        assert!(typed::<Affinity>("x", &json!({"nodeAfinity": {}})).is_err());
    }
}
