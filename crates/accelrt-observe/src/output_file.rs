//! Files that are written at the end, or when something goes wrong: whether they can be.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Fails when a file certainly cannot be written: it is a folder, or its folder is none. Touches
/// nothing, so that permissions and full disks are found later.
pub fn check(path: &Path) -> Result<()> {
    if let Ok(found) = fs::metadata(path) {
        return if found.is_dir() { refuse(ErrorKind::IsADirectory) } else { Ok(()) };
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let found = fs::metadata(folder.unwrap_or(Path::new(".")))?;
    if found.is_dir() { Ok(()) } else { refuse(ErrorKind::NotADirectory) }
}

fn refuse(kind: ErrorKind) -> Result<()> {
    Err(Error::from(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_needs_a_folder_and_is_none_itself() {
        let of = |path: &str| check(Path::new(path)).map_err(|error| error.kind());
        assert_eq!(of("Cargo.toml"), Ok(()), "there already");
        assert_eq!((of("no-such-file.json"), of("src/no-such-file.json")), (Ok(()), Ok(())));
        assert_eq!(of("/dev/null"), Ok(()));
        assert_eq!(of("src"), Err(ErrorKind::IsADirectory));
        assert_eq!(of("no-such-folder/file"), Err(ErrorKind::NotFound));
        assert_eq!(of("Cargo.toml/file"), Err(ErrorKind::NotADirectory));
    }
}
