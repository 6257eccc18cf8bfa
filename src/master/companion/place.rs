//! The Unix socket of a companion: its path, and the check that only processes of the same user use it.
//!
//! A restarted master has to find the companion that its predecessor started. So the path follows from what both have
//! in common: user, network namespace and RPC address.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// Mode of the folder of the sockets.
const FOLDER_MODE: u32 = 0o700;
/// Mode of a socket: only its owner may connect.
const SOCKET_MODE: u32 = 0o600;
/// Mode bits that grant access to other users.
const OTHERS: u32 = 0o077;

/// Returns the path of the socket for the companion that the master at `address` starts itself, in a private folder of
/// this user.
pub(super) fn own_socket(address: SocketAddr) -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    let parent = std::path::absolute(runtime.unwrap_or_else(std::env::temp_dir))?;
    let folder = parent.join(format!("moonkeeper-{}", geteuid().as_raw()));
    make_private(&folder)?;
    // The same address is another port in another network namespace.
    let network = std::fs::read_link("/proc/self/ns/net")?;
    let identity = format!("{} {address}", network.display());
    let name = format!("companion-{:016x}.sock", xxhash_rust::xxh3::xxh3_64(identity.as_bytes()));
    Ok(folder.join(name))
}

/// Creates a folder that only this user can access, or checks that an existing one is so.
fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(at(folder, &why)),
        _ => {}
    }
    // A link is not followed: its owner could point it elsewhere later.
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & OTHERS != 0 {
        let text = format!("{} is not a folder of this user alone", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Connects to the companion at this path, which must run as the same user.
pub(super) async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket).await?;
    if !is_same_user(&stream)? {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the companion runs as another user"));
    }
    Ok(stream)
}

/// Returns whether the other end belongs to this user. Root is refused as well: it has no business here.
pub(super) fn is_same_user(stream: &UnixStream) -> io::Result<bool> {
    Ok(stream.peer_cred()?.uid() == geteuid().as_raw())
}

/// The socket that a companion listens on. Its file is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Device and inode, so that the file of another companion is not removed.
    file: (u64, u64),
    pub(super) listener: UnixListener,
}

impl Place {
    /// Listens on this path, unless another companion does so already.
    pub(super) async fn take(path: &Path) -> io::Result<Self> {
        match UnixStream::connect(path).await {
            Ok(_) => {
                let text = format!("another companion listens on {}", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            // The file was left behind by a companion that was killed.
            Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(|why| at(path, &why))?;
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(|why| at(path, &why))?;
        // Until the mode is set, only the check of each connection's user protects the socket; it is made in any case.
        std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(|why| at(path, &why))?;
        let found = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), file: (found.dev(), found.ino()), listener })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_own = |found: &std::fs::Metadata| (found.dev(), found.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| is_own(&found)) {
            // A file that is left behind is replaced by the next companion.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn at(path: &Path, why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("moonkeeper-place-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE)).unwrap();
        folder
    }

    #[test]
    fn a_folder_that_others_can_use_or_that_is_a_link_is_refused() {
        let folder = folder("private");
        let inner = folder.join("inner");
        make_private(&inner).unwrap();
        make_private(&inner).unwrap();
        std::fs::set_permissions(&inner, Permissions::from_mode(0o750)).unwrap();
        assert_eq!(make_private(&inner).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        std::fs::set_permissions(&inner, Permissions::from_mode(FOLDER_MODE)).unwrap();
        std::os::unix::fs::symlink(&inner, folder.join("link")).unwrap();
        assert!(make_private(&folder.join("link")).is_err());
        assert!(make_private(&folder.join("no/parent")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn each_address_has_its_own_socket() {
        let socket = |address: &str| own_socket(address.parse().unwrap()).unwrap();
        assert_eq!(socket("127.0.0.1:1"), socket("127.0.0.1:1"));
        assert_ne!(socket("127.0.0.1:1"), socket("127.0.0.1:2"));
        assert_ne!(socket("127.0.0.1:1"), socket("[::]:1"));
    }

    #[tokio::test]
    async fn a_socket_is_for_this_user_and_what_a_killed_companion_left_is_replaced() {
        let folder = folder("socket");
        let path = folder.join("s");
        // Left behind: its file stays when it is closed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let place = Place::take(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, SOCKET_MODE);
        assert!(connect(&path).await.is_ok());
        let (stream, _) = place.listener.accept().await.unwrap();
        assert!(is_same_user(&stream).unwrap());
        assert_eq!(Place::take(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(place);
        assert!(!path.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
