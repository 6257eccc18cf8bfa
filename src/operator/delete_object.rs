//! Deletes one object of Kubernetes, and never another one of the same name.

use std::fmt::Debug;

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::apply::{WriteError, Writer, failed};
use super::metrics::Write;

/// Deletes an object, if it still is the one with this uid.
pub(super) async fn delete<K>(
    writer: &Writer,
    api: &Api<K>,
    name: &str,
    uid: &str,
    how: &DeleteParams,
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    writer.permit()?;
    let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
    let kind = K::kind(&());
    match api.delete(name, &how.clone().preconditions(preconditions)).await {
        Ok(_) => {
            writer.metrics.wrote(Write::Delete);
            tracing::info!(%kind, name, "deleted");
            Ok(())
        }
        // It is gone, or another one: the next pass sees which.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(source) => Err(failed(&kind, name, source)),
    }
}
