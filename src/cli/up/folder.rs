//! The folder for logs and the admin token: the data folder, or a temporary one that is removed at the end.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Random bytes of a token.
const TOKEN_BYTES: usize = 24;

/// How many names are tried for a temporary folder: processes that were killed leave theirs behind, and their pids are
/// reused.
const NAMES: u32 = 100;

/// Folder for logs and the admin token.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    /// Uses the data folder if there is one, else creates a temporary folder.
    pub(super) fn open(data_dir: Option<&Path>) -> io::Result<Self> {
        let explain = |path: &Path, why: io::Error| {
            io::Error::new(why.kind(), format!("cannot create the folder {}: {why}", path.display()))
        };
        let path = match data_dir {
            Some(data) => make(data, true).map(|()| data.to_owned()).map_err(|why| explain(data, why))?,
            None => {
                let parent = std::env::temp_dir();
                make_new(&parent, std::process::id()).map_err(|why| explain(&parent, why))?
            }
        };
        let log = path.join("log");
        DirBuilder::new().recursive(true).create(&log).map_err(|why| explain(&log, why))?;
        Ok(Self { path, temporary: data_dir.is_none() })
    }

    /// Returns the path of a master's log.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.path.join("log").join(format!("{name}.log"))
    }

    /// Writes a new admin token to a file, and returns its path.
    pub(super) fn token(&self) -> io::Result<PathBuf> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let token = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let path = self.path.join("token");
        match std::fs::remove_file(&path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        writeln!(file, "{token}")?;
        Ok(path)
    }

    /// Removes the folder if it is a temporary one.
    pub(super) fn close(self) {
        if self.temporary {
            // Errors are ignored: a folder that is left behind harms no later run.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Creates a folder that only this user can access, because of the token and the logs.
fn make(path: &Path, recursive: bool) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(recursive).create(path)
}

/// Creates a folder with a pid in its name. A folder that exists already belongs to an earlier process with this pid,
/// or to another user, and is left alone.
fn make_new(parent: &Path, pid: u32) -> io::Result<PathBuf> {
    let mut taken = None;
    for nth in 0..NAMES {
        let suffix = if nth == 0 { String::new() } else { format!("-{nth}") };
        let path = parent.join(format!("moonkeeper-up-{pid}{suffix}"));
        match make(&path, false) {
            Ok(()) => return Ok(path),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => taken = Some(why),
            Err(why) => return Err(why),
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::master::admin_api::read_token;

    #[test]
    fn a_token_is_new_each_time_and_for_us_alone() {
        let data = std::env::temp_dir().join(format!("moonkeeper-folder-{}", std::process::id()));
        let folder = Folder::open(Some(&data)).unwrap();
        let path = folder.token().unwrap();
        let first = read_token(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        folder.token().unwrap();
        assert_ne!(read_token(&path).unwrap(), first);
        assert!(folder.log("m-0").parent().unwrap().is_dir());
        folder.close();
        assert!(path.exists());
        std::fs::remove_dir_all(data).unwrap();
    }

    #[test]
    fn a_left_over_folder_of_an_earlier_process_with_this_id_is_left_alone() {
        let parent = std::env::temp_dir().join(format!("moonkeeper-left-over-{}", std::process::id()));
        std::fs::create_dir(&parent).unwrap();
        let earlier = parent.join("moonkeeper-up-7");
        std::fs::create_dir(&earlier).unwrap();
        std::fs::write(earlier.join("token"), "of the earlier one").unwrap();
        let made = make_new(&parent, 7).unwrap();
        assert_eq!(made, parent.join("moonkeeper-up-7-1"));
        assert_eq!(std::fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(make_new(&parent, 7).unwrap(), parent.join("moonkeeper-up-7-2"));
        assert_eq!(std::fs::read(earlier.join("token")).unwrap(), b"of the earlier one");
        // A link that another user may have put there is left alone as well.
        std::os::unix::fs::symlink(&earlier, parent.join("moonkeeper-up-8")).unwrap();
        assert_eq!(make_new(&parent, 8).unwrap(), parent.join("moonkeeper-up-8-1"));
        (1..NAMES).for_each(|_| _ = make_new(&parent, 9).unwrap());
        make_new(&parent, 9).unwrap();
        assert_eq!(make_new(&parent, 9).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(parent).unwrap();
    }
}
