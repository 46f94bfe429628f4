//! Names of files inside of a folder, as other people's files give them.

use std::path::{Component, Path, PathBuf};

use thiserror::Error;

/// A name that leads out of its folder.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name:?} must be the name of a file inside {folder}, without `..` and not absolute")]
pub struct PathError {
    pub name: String,
    /// The folder, printed.
    pub folder: String,
}

/// The file `name` of `folder`. A link in the folder may lead out of it, as in the caches of hubs; a name may not.
///
/// # Errors
/// See [`PathError`].
pub fn within(folder: &Path, name: &str) -> Result<PathBuf, PathError> {
    let path = Path::new(name);
    let is_inside = path.components().all(|part| match part {
        Component::Normal(_) | Component::CurDir => true,
        Component::Prefix(_) | Component::RootDir | Component::ParentDir => false,
    });
    if is_inside && path.file_name().is_some() && !name.contains('\0') {
        Ok(folder.join(path))
    } else {
        Err(PathError { name: name.into(), folder: folder.display().to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        let folder = Path::new("model");
        assert_eq!(within(folder, "a.safetensors"), Ok(PathBuf::from("model/a.safetensors")));
        assert_eq!(within(folder, "parts/a.safetensors"), Ok(PathBuf::from("model/parts/a.safetensors")));
        for name in ["../a", "/etc/passwd", "parts/../../a", "..", "", ".", "a\0b"] {
            assert!(within(folder, name).is_err(), "{name:?}");
        }
        assert_eq!(
            within(folder, "../a").expect_err("refused").to_string(),
            "\"../a\" must be the name of a file inside model, without `..` and not absolute"
        );
    }
}
