//! The folder with logs and the admin token: in the data folder, or one of its own that goes when everything stops.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of chance in a token.
const TOKEN_BYTES: usize = 24;

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    /// In the data folder if there is one.
    pub(super) fn open(data_dir: Option<&Path>) -> io::Result<Self> {
        let (path, temporary) = match data_dir {
            Some(data) => (data.to_owned(), false),
            None => (std::env::temp_dir().join(format!("moonkeeper-up-{}", std::process::id())), true),
        };
        // Nobody else shall read the token or write the logs. What is there under a name that is not ours is not used.
        let made = DirBuilder::new().mode(0o700).recursive(!temporary).create(&path);
        let made = made.and_then(|()| DirBuilder::new().recursive(true).create(path.join("log")));
        made.map_err(|why| {
            io::Error::new(why.kind(), format!("cannot make the folder {}: {why}", path.display()))
        })?;
        Ok(Self { path, temporary })
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
}
