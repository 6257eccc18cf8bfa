//! The companion of a master: a sidecar container, because the kernel kills all processes of a container with its first
//! one, and all of a container that is out of memory. It starts before the master and ends after it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvVar, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::names::COMPANION;

/// Folder that master and companion share.
const FOLDER: &str = "/run/moonkeeper";
/// Unix socket in that folder.
pub(super) const SOCKET: &str = "/run/moonkeeper/companion.sock";

/// Allocator settings of a small process: no background thread and one arena.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "background_thread:false,narenas:1");

/// Resources of the companion. It has 8 MB resident, 7 of them pages of the program, and some more when its master has
/// died.
const REQUESTS: [(&str, &str); 2] = [("cpu", "10m"), ("memory", "16Mi")];
const LIMITS: [(&str, &str); 1] = [("memory", "32Mi")];

/// Builds the companion's container for this container of a master: the same image and the same user.
pub(super) fn container(master: &Container) -> Container {
    let amounts = |amounts: &[(&str, &str)]| {
        let amounts =
            amounts.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        Some(amounts.collect::<BTreeMap<_, _>>())
    };
    Container {
        name: COMPANION.to_owned(),
        image: master.image.clone(),
        image_pull_policy: master.image_pull_policy.clone(),
        args: Some(vec!["companion".to_owned(), "--sidecar".to_owned(), format!("--socket={SOCKET}")]),
        env: Some(vec![EnvVar {
            name: ALLOCATOR.0.to_owned(),
            value: Some(ALLOCATOR.1.to_owned()),
            ..EnvVar::default()
        }]),
        resources: Some(ResourceRequirements {
            requests: amounts(&REQUESTS),
            limits: amounts(&LIMITS),
            ..ResourceRequirements::default()
        }),
        // This makes an init container a sidecar.
        restart_policy: Some("Always".to_owned()),
        security_context: master.security_context.clone(),
        termination_message_policy: master.termination_message_policy.clone(),
        volume_mounts: Some(vec![mount()]),
        ..Container::default()
    }
}

/// Builds the mount of the shared folder, for both containers.
pub(super) fn mount() -> VolumeMount {
    VolumeMount { name: COMPANION.to_owned(), mount_path: FOLDER.to_owned(), ..VolumeMount::default() }
}

/// Builds the volume of the shared folder, which holds nothing but a socket.
pub(super) fn volume() -> Volume {
    Volume {
        name: COMPANION.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: Some(Quantity("1Mi".to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}
