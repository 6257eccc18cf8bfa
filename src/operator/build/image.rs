//! The image of the masters. It is chosen once, when the masters are first created, and kept in the status: neither a
//! new operator nor the loss of the StatefulSet changes the image of a master.

use k8s_openapi::api::apps::v1::StatefulSet;

use crate::api::Image;
use crate::api::names::CONTAINER;

/// Image of an operator that does not know its own.
pub const DEFAULT: &str = concat!("ghcr.io/moonkeeper/moonkeeper:", env!("CARGO_PKG_VERSION"));

/// Chooses the image of the masters. The image in use is kept as long as it matches the spec. If the spec changes only
/// the repository, the tag in use is kept. Everything else comes from `own`, the operator's image.
#[must_use]
pub fn resolve(asked: &Image, in_use: Option<&str>, own: &str) -> String {
    let own = Reference::read(own);
    let fits = |asked: &str, is: &str| asked.is_empty() || asked == is;
    let in_use = in_use.map(|image| (image, Reference::read(image)));
    if let Some((image, kept)) = &in_use
        && fits(&asked.repository, kept.repository)
        && kept.tag.is_some_and(|tag| fits(&asked.tag, tag))
    {
        return (*image).to_owned();
    }
    let given = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
    let repository = given(&asked.repository).unwrap_or_else(|| own.repository.to_owned());
    let kept = in_use.and_then(|(_, kept)| kept.tag);
    let tag = given(&asked.tag).or_else(|| kept.or(own.tag).map(str::to_owned));
    let tag = tag.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let separator = if tag.starts_with("sha256:") { '@' } else { ':' };
    format!("{repository}{separator}{tag}")
}

/// Returns the master's image in the template of a StatefulSet.
#[must_use]
pub fn of_template(set: &StatefulSet) -> Option<&str> {
    let pod = set.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.iter().find(|container| container.name == CONTAINER)?.image.as_deref()
}

/// The parts of an image's name.
struct Reference<'i> {
    repository: &'i str,
    /// The digest if there is one, else the tag.
    tag: Option<&'i str>,
}

impl<'i> Reference<'i> {
    fn read(image: &'i str) -> Self {
        let (named, digest) = match image.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (image, None),
        };
        // A colon before a slash is that of a port.
        match named.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            Some((repository, tag)) => Self { repository, tag: digest.or(Some(tag)) },
            None => Self { repository: named, tag: digest },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_chosen_once_and_kept() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let image = |repository: &str, tag: &str| Image {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            ..Image::default()
        };
        let own = "h:5000/m:0.2.0";
        let open = image("", "");
        assert_eq!(resolve(&open, None, own), own);
        // Another operator, from another place: nothing changes.
        assert_eq!(resolve(&open, Some("h:5000/m:0.1.0"), "elsewhere/m:0.2.0"), "h:5000/m:0.1.0");
        assert_eq!(resolve(&image("h:5000/m", ""), Some("h:5000/m:0.1.0"), own), "h:5000/m:0.1.0");
        // Another repository is no reason for another version, nor the other way round.
        assert_eq!(resolve(&image("n", ""), Some("m:0.1.0"), own), "n:0.1.0");
        assert_eq!(resolve(&image("n", ""), Some(&format!("m@{digest}")), own), format!("n@{digest}"));
        assert_eq!(resolve(&image("", "0.3"), Some("h:5000/m:0.1.0"), own), "h:5000/m:0.3");
        assert_eq!(resolve(&image("", "0.1.0"), Some("k:0.1.0"), own), "k:0.1.0");
        // What is named counts.
        assert_eq!(resolve(&image("m", "1"), Some("m:0.1.0"), own), "m:1");
        assert_eq!(resolve(&image("m", &digest), None, own), format!("m@{digest}"));
        assert_eq!(resolve(&open, None, &format!("h:5000/m:0.2.0@{digest}")), format!("h:5000/m@{digest}"));
        assert_eq!(resolve(&open, None, "h:5000/m"), format!("h:5000/m:{}", env!("CARGO_PKG_VERSION")));
    }
}
