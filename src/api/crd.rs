//! The definition of the resource, as it is installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube::CustomResourceExt;

use super::MasterCluster;

/// Returns the definition of `MasterCluster` with its columns and validation rules.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut crd = MasterCluster::crd();
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns());
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            refuse_null(root);
            root.x_kubernetes_validations = Some(root_rules());
        }
    }
    crd
}

/// What `kubectl get` shows; the last two with `-o wide` only.
fn columns() -> Vec<CustomResourceColumnDefinition> {
    let column = |name: &str, type_: &str, path: &str| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    };
    let explained = |column: CustomResourceColumnDefinition, text: &str| CustomResourceColumnDefinition {
        description: Some(text.to_owned()),
        ..column
    };
    let wide = |column| CustomResourceColumnDefinition { priority: Some(1), ..column };
    vec![
        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        column("Leader", "string", ".status.leader.name"),
        explained(
            column("Standbys", "integer", ".status.caughtUpReplicas"),
            "how many could take over at once",
        ),
        explained(column("Lag", "integer", ".status.lag"), "the most records that a standby is behind"),
        column("Phase", "string", ".status.phase"),
        column("Age", "date", ".metadata.creationTimestamp"),
        wide(column("Term", "integer", ".status.term")),
        wide(column("Version", "string", ".status.version")),
    ]
}

/// Rules that look at the name of the resource, which only the root can see.
fn root_rules() -> Vec<ValidationRule> {
    let rule = |rule: &str, message: &str, path: Option<&str>| ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        field_path: path.map(str::to_owned),
        ..ValidationRule::default()
    };
    vec![
        rule(
            "size(self.metadata.name) <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "the name must begin with a letter, have only a-z, 0-9 and -, and be no longer than 52, because pods and \
             Services are named after it",
            None,
        ),
        rule(
            // Cheap enough for the API server's estimate, which a pattern made from the name is not.
            "self.spec.switchover.target == '' || (self.spec.switchover.target.startsWith(self.metadata.name + '-') && \
             self.spec.switchover.target.matches('-[0-6]$') && \
             size(self.spec.switchover.target) == size(self.metadata.name) + 2)",
            "the target of a switchover is one of the pods: the name of this resource, a dash and a number",
            Some(".spec.switchover.target"),
        ),
    ]
}

/// A field that may be left out need not take null as well: null would hide the default.
fn refuse_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        refuse_null(property);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        refuse_null(values);
    }
}
