//! Which image the masters run. The tag is chosen once, when the masters are first made, and kept: a new operator
//! restarts no master.

use k8s_openapi::api::apps::v1::StatefulSet;

use crate::api::Image;
use crate::api::names::CONTAINER;

/// The image of the masters: the tag that the user names, else the one that the masters have, else `own_version`.
#[must_use]
pub fn resolve(image: &Image, existing: Option<&StatefulSet>, own_version: &str) -> String {
    let tag = if image.tag.is_empty() {
        existing.and_then(master_image).and_then(tag_of).unwrap_or(own_version)
    } else {
        &image.tag
    };
    let separator = if tag.starts_with("sha256:") { '@' } else { ':' };
    format!("{}{separator}{tag}", image.repository)
}

/// The image that the template of a StatefulSet names for the master.
fn master_image(set: &StatefulSet) -> Option<&str> {
    let pod = set.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.iter().find(|container| container.name == CONTAINER)?.image.as_deref()
}

fn tag_of(image: &str) -> Option<&str> {
    if let Some((_, digest)) = image.split_once('@') {
        return Some(digest);
    }
    // A colon before a slash is that of a port.
    image.rsplit_once(':').map(|(_, tag)| tag).filter(|tag| !tag.contains('/'))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSetSpec;
    use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};

    use super::*;

    fn set(image: &str) -> StatefulSet {
        let container =
            Container { name: CONTAINER.to_owned(), image: Some(image.to_owned()), ..Container::default() };
        let pod = PodSpec { containers: vec![container], ..PodSpec::default() };
        StatefulSet {
            spec: Some(StatefulSetSpec {
                template: PodTemplateSpec { spec: Some(pod), ..PodTemplateSpec::default() },
                ..StatefulSetSpec::default()
            }),
            ..StatefulSet::default()
        }
    }

    #[test]
    fn a_tag_is_chosen_once_and_kept() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let image = |repository: &str, tag: &str| Image {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            ..Image::default()
        };
        let free = image("h:5000/m", "");
        assert_eq!(resolve(&free, None, "0.2.0"), "h:5000/m:0.2.0");
        assert_eq!(resolve(&free, Some(&set("h:5000/m:0.1.0")), "0.2.0"), "h:5000/m:0.1.0");
        assert_eq!(resolve(&free, Some(&set("other/m:0.1.0")), "0.2.0"), "h:5000/m:0.1.0");
        assert_eq!(resolve(&free, Some(&set(&format!("m@{digest}"))), "0.2.0"), format!("h:5000/m@{digest}"));
        assert_eq!(resolve(&free, Some(&set("h:5000/m")), "0.2.0"), "h:5000/m:0.2.0");
        assert_eq!(resolve(&image("m", "1"), Some(&set("m:0.1.0")), "0.2.0"), "m:1");
        assert_eq!(resolve(&image("m", &digest), None, "0.2.0"), format!("m@{digest}"));
    }
}
