//! The folder with logs and the admin token: in the data folder, or one of its own that goes when everything stops.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of chance in a token.
const TOKEN_BYTES: usize = 24;

/// How many names are tried for a folder of its own: processes that were killed leave theirs behind, and their ids come
/// again.
const NAMES: u32 = 100;

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    /// In the data folder if there is one.
    pub(super) fn open(data_dir: Option<&Path>) -> io::Result<Self> {
        let explain = |path: &Path, why: io::Error| {
            io::Error::new(why.kind(), format!("cannot make the folder {}: {why}", path.display()))
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

    /// Where the log of a master goes.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.path.join("log").join(format!("{name}.log"))
    }

    /// A file with an admin token, made anew.
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

    /// Removes what was made for this run only.
    pub(super) fn close(self) {
        if self.temporary {
            // What is left behind is in the way of nobody.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes a folder that other users can neither read the token in nor write the logs.
fn make(path: &Path, recursive: bool) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(recursive).create(path)
}

/// Makes a folder with the id of a process in its name. A folder that is there already belongs to an earlier process with
/// this id, or to another user: it is left alone.
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
        // Nor is one that another user may have put there as a link.
        std::os::unix::fs::symlink(&earlier, parent.join("moonkeeper-up-8")).unwrap();
        assert_eq!(make_new(&parent, 8).unwrap(), parent.join("moonkeeper-up-8-1"));
        (1..NAMES).for_each(|_| _ = make_new(&parent, 9).unwrap());
        make_new(&parent, 9).unwrap();
        assert_eq!(make_new(&parent, 9).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(parent).unwrap();
    }
}
