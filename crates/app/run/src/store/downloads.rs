//! Text of a run that is not on this machine: objects of stores and of web servers, brought into a folder once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use checkpoint::Hash;
use config::figures::bytes;
use config::{DataSpec, Requests, SourceSpec, Trusted};
use files::InputKind;
use serde::{Deserialize, Serialize};
use stores::{Address, Object, Remote, StoreError};

use crate::failure::Failure;
use crate::messages::patience::announced_while;
use crate::messages::stderr::tell;
use crate::places::own_places;
use crate::store::settings::{RetryTime, settings};

/// The folder in that of `data.cache`, or else in that where the command was started.
const FOLDER: &str = "downloads";
/// The list of what was downloaded.
const LIST: &str = "objects.json";
/// The folder of what was downloaded.
const FILES: &str = "files";

/// An object that was downloaded: by these signs a changed one is noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    bytes: u64,
    tag: Option<String>,
    modified_ms: i64,
}

impl Kept {
    fn of(object: &Object) -> Kept {
        Kept { bytes: object.bytes, tag: object.tag.clone(), modified_ms: object.modified_ms }
    }
}

/// `data` with files of this machine in place of addresses; those that are missing or have changed are downloaded.
///
/// # Errors
/// Addresses that name nothing, failures of requests, and a folder that cannot be written.
pub fn downloaded(data: &DataSpec) -> Result<DataSpec, Failure> {
    if let Some(cache) = &data.cache {
        own_places::check_free("data.cache", cache)?;
    }
    let mut data = data.clone();
    let requests = data.requests.clone();
    let folder = data.cache.as_ref().map_or_else(|| FOLDER.into(), |cache| cache.join(FOLDER));
    // Text that a run keeps in memory has a limit; text that becomes tokens has none.
    let limit_bytes = InputKind::Text.limit_bytes().filter(|_| data.cache.is_none());
    for SourceSpec { path, .. } in data.texts_mut() {
        if let Cow::Owned(local) = local(path, requests.as_ref(), &folder, limit_bytes)? {
            *path = local;
        }
    }
    Ok(data)
}

/// Returns the same as [`downloaded`], for one path of the command line.
///
/// # Errors
/// The errors of [`downloaded`].
pub fn downloaded_path(path: &Path) -> Result<PathBuf, Failure> {
    let requests = Trusted::of_command_line(Requests);
    Ok(local(path, Some(&requests), Path::new(FOLDER), None)?.into_owned())
}

fn local<'a>(
    path: &'a Path,
    requests: Option<&Trusted<Requests>>,
    folder: &Path,
    limit_bytes: Option<u64>,
) -> Result<Cow<'a, Path>, Failure> {
    let address = match Address::parse(&path.to_string_lossy()) {
        None => return Ok(Cow::Borrowed(path)),
        Some(Ok(address)) => address,
        Some(Err(error)) => return Err(Failure::Input(format!("data.path: {error}"))),
    };
    let Some(requests) = requests else { return Err(not_sent(&address)) };
    // Each address has a folder of its own, whose name has nothing of a user's in it.
    let place = folder.join(Hash::of(address.to_string().as_bytes()).to_string());
    let unwritable = |error: io::Error| Failure::Input(format!("{} cannot be written: {error}", place.display()));
    fs::create_dir_all(&place).map_err(unwritable)?;
    // Processes of a host download once.
    let turn = files::open_to_change(&place.join(".lock")).map_err(unwritable)?;
    let _ = turn.lock();
    let selection = Selection::of(&address, requests).map_err(|error| failure(&error))?;
    if let Some(object) = selection.objects.iter().find(|object| limit_bytes.is_some_and(|limit| object.bytes > limit))
    {
        let (name, size) = (selection.named(object), bytes(object.bytes));
        return Err(Failure::Input(format!(
            "{name} has {size}, and a text that a run keeps in memory must have at most {}; use data.cache",
            bytes(limit_bytes.unwrap_or_default())
        )));
    }
    selection.bring(&place)?;
    Ok(Cow::Owned(selection.path(&place.join(FILES))))
}

/// That the user has not named an address.
fn not_sent(address: &Address) -> Failure {
    Failure::Input(format!(
        "no request is sent to {address}, which [data] of a run file names that nothing shows to be yours; to read it, use \
         --data {address}, or set the key of [data] that names it by --set"
    ))
}

/// The objects that an address stands for, as the same path of this machine would.
struct Selection {
    remote: Remote,
    objects: Vec<Object>,
    form: Form,
}

/// The form of an address.
enum Form {
    /// One object, of this name.
    File(String),
    /// All with a known ending below a prefix.
    Folder,
    /// Those below a prefix that match.
    Pattern(String),
}

impl Selection {
    fn of(address: &Address, _: &Trusted<Requests>) -> Result<Selection, StoreError> {
        let settings = settings(RetryTime::Fixed);
        let path = match address {
            Address::S3 { prefix, .. } => prefix,
            Address::Http { path, .. } => path,
        };
        let parts: Vec<&str> = path.split('/').collect();
        let literal = parts.iter().take_while(|part| !part.contains(['*', '?'])).count();
        if literal < parts.len() {
            let (literal, pattern) = (parts[..literal].join("/"), parts[literal..].join("/"));
            let remote = Remote::open(&below(address, literal), &settings)?;
            let mut objects = remote.list("")?;
            objects.retain(|object| data::selects(&pattern, &object.name));
            return Selection { remote, objects, form: Form::Pattern(pattern) }.checked(address);
        }
        let remote = Remote::open(address, &settings)?;
        let found = if path.is_empty() { None } else { described(&remote)? };
        if let Some(object) = found {
            let name = parts.last().map(ToString::to_string).unwrap_or_default();
            return Ok(Selection { remote, objects: vec![object], form: Form::File(name) });
        }
        let mut objects = match address {
            Address::S3 { .. } => remote.list("")?,
            Address::Http { .. } => vec![],
        };
        objects.retain(|object| data::is_text_of_folder(&object.name));
        Selection { remote, objects, form: Form::Folder }.checked(address)
    }

    fn checked(self, address: &Address) -> Result<Selection, StoreError> {
        match self.objects.is_empty() {
            true => Err(StoreError::NotFound { address: address.to_string() }),
            false => Ok(self),
        }
    }

    /// The address of an object, for messages.
    fn named(&self, object: &Object) -> String {
        let address = self.remote.address();
        if object.name.is_empty() { address.to_string() } else { address.join(&object.name).to_string() }
    }

    /// The path that the address stands for, below `files`.
    fn path(&self, files: &Path) -> PathBuf {
        match &self.form {
            Form::File(name) | Form::Pattern(name) => files.join(name),
            Form::Folder => files.to_path_buf(),
        }
    }

    /// Downloads what is missing or has changed, and removes what is not there any more.
    fn bring(&self, place: &Path) -> Result<(), Failure> {
        let list = place.join(LIST);
        let unwritable =
            |error: &dyn std::fmt::Display| Failure::Input(format!("{} cannot be written: {error}", place.display()));
        // Without the list everything is downloaded again.
        let before = files::read_text(&list, InputKind::Records).ok();
        let mut kept: BTreeMap<String, Kept> =
            before.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let mut names = vec![];
        for object in &self.objects {
            let name = match &self.form {
                Form::File(name) => name.clone(),
                Form::Folder | Form::Pattern(_) => object.name.clone(),
            };
            let path = files::within(&place.join(FILES), &name).map_err(|error| Failure::Input(error.to_string()))?;
            names.push(name.clone());
            let is_there = fs::metadata(&path).is_ok_and(|found| found.len() == object.bytes);
            match kept.get(&name) {
                Some(known) if *known == Kept::of(object) && is_there => continue,
                Some(known) if *known != Kept::of(object) => {
                    tell(&format!(
                        "{} has changed since it was downloaded; it is downloaded again\n",
                        self.named(object)
                    ));
                }
                Some(_) | None => {}
            }
            kept.remove(&name);
            self.download(object, &path, &place.join(".object.partial"))?;
            kept.insert(name, Kept::of(object));
            let text = serde_json::to_string(&kept).map_err(|error| unwritable(&error))?;
            files::replace(&list, &text).map_err(|error| unwritable(&error))?;
        }
        for gone in kept.keys().filter(|name| !names.contains(name)) {
            if let Ok(path) = files::within(&place.join(FILES), gone) {
                // One that cannot be removed is not there, or is read as text; the hash of the text tells.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn download(&self, object: &Object, path: &Path, partial: &Path) -> Result<(), Failure> {
        let unwritable = |error: io::Error| Failure::Input(format!("{} cannot be written: {error}", path.display()));
        let what = format!("downloading {}, {}", self.named(object), bytes(object.bytes));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(unwritable)?;
        }
        let mut file = files::recreate(partial).map_err(unwritable)?;
        announced_while(&what, || self.remote.download(object, &mut file)).map_err(|error| failure(&error))?;
        fs::rename(partial, path).map_err(unwritable)
    }
}

/// The object at the address of `remote`, if there is one.
fn described(remote: &Remote) -> Result<Option<Object>, StoreError> {
    match remote.describe("") {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `address` with another path.
fn below(address: &Address, path: String) -> Address {
    match address {
        Address::S3 { bucket, .. } => Address::S3 { bucket: bucket.clone(), prefix: path },
        Address::Http { origin, .. } => Address::Http { origin: origin.clone(), path },
    }
}

fn failure(error: &StoreError) -> Failure {
    match error {
        StoreError::Failed { .. } => Failure::Work(error.to_string()),
        StoreError::Settings { .. }
        | StoreError::NotFound { .. }
        | StoreError::NoBucket { .. }
        | StoreError::Denied { .. }
        | StoreError::NoCredentials { .. }
        | StoreError::Changed { .. }
        | StoreError::TooLarge { .. }
        | StoreError::Unsupported { .. }
        | StoreError::File(_) => Failure::Input(error.to_string()),
    }
}
