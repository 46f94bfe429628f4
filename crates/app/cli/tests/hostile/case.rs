//! One case of the table: what is put into a folder, the command, and its verdict.

use std::path::Path;

use rustix::process::Signal;

use crate::hostile::fixtures::Fixture;

/// A command on hostile input.
pub struct Case {
    /// The input, in words.
    pub name: String,
    /// The content of its folder.
    pub files: Vec<(String, Content)>,
    /// Arguments; `{}` is the folder.
    pub arguments: Vec<String>,
    /// A last argument that is not UTF-8.
    pub bytes: Option<&'static [u8]>,
    /// The device that its standard output is.
    pub device: Option<&'static str>,
    /// The exit code.
    pub code: i32,
    /// Parts of the output, on either stream; `{}` is the folder.
    pub says: Vec<String>,
    /// Seconds of all cores that it may take.
    pub seconds: u64,
    /// MiB that it may have.
    pub memory_mib: u64,
    /// Names in the folder that the command may make or change.
    pub outputs: Vec<String>,
    /// Names in the folder, each with the name that its content has afterwards.
    pub renamed: Vec<(String, String)>,
    /// Variables of its environment.
    pub variables: Vec<(String, String)>,
    /// The signal that it receives as soon as it handles that signal.
    pub signal: Option<Signal>,
}

/// Something that has a name in the folder of a case.
pub enum Content {
    /// A file.
    Bytes(Vec<u8>),
    /// A file that was last changed when 1970 began.
    Old(&'static str),
    /// A file of N zero bytes, which take no room.
    Sparse(u64),
    /// A folder.
    Folder,
    /// A symbolic link.
    Link(String),
    /// Another name of this file of the folder.
    HardLink(&'static str),
    /// A pipe without a writer.
    Pipe,
    /// A copy of a fixture.
    Copy(Fixture),
    /// A copy of a fixture, in which a file was changed.
    Changed(Fixture, &'static str, Box<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>),
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Bytes(text.as_bytes().to_vec())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Bytes(text.into_bytes())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::Bytes(bytes)
    }
}

/// A case that runs `arguments`, separated by spaces.
pub fn case(name: impl Into<String>, arguments: &str) -> Case {
    Case {
        name: name.into(),
        files: vec![],
        arguments: arguments.split(' ').filter(|argument| !argument.is_empty()).map(str::to_string).collect(),
        bytes: None,
        device: None,
        code: 0,
        says: vec![],
        seconds: 10,
        memory_mib: 1024,
        outputs: vec![],
        renamed: vec![],
        variables: vec![],
        signal: None,
    }
}

impl Case {
    /// The same with a file.
    pub fn with(mut self, name: &str, content: impl Into<Content>) -> Case {
        self.files.push((name.into(), content.into()));
        self
    }

    /// The same with an argument that may have spaces.
    pub fn and(mut self, argument: impl Into<String>) -> Case {
        self.arguments.push(argument.into());
        self
    }

    /// The same with a last argument of these bytes.
    pub fn and_bytes(mut self, bytes: &'static [u8]) -> Case {
        self.bytes = Some(bytes);
        self
    }

    /// The same with its standard output into this device.
    pub fn into_device(mut self, device: &'static str) -> Case {
        self.device = Some(device);
        self
    }

    /// The command refuses its input, and says so.
    pub fn refused(mut self, says: &str) -> Case {
        self.code = 2;
        self.says(says)
    }

    /// The work fails, and the command says so.
    pub fn fails(mut self, says: &str) -> Case {
        self.code = 1;
        self.says(says)
    }

    /// The command does its work, and says so.
    pub fn done(mut self, says: &str) -> Case {
        self.code = 0;
        self.says(says)
    }

    /// The command says this, too.
    pub fn says(mut self, says: &str) -> Case {
        self.says.push(says.into());
        self
    }

    /// The command makes or changes what has this name.
    pub fn writes(mut self, name: &str) -> Case {
        self.outputs.push(name.into());
        self
    }

    /// The command renames what has the name `from` and changes nothing below it. It may make another `from`.
    pub fn renames(mut self, from: &str, to: &str) -> Case {
        self.renamed.push((from.into(), to.into()));
        self.writes(from)
    }

    /// The command has variables, `NAME=VALUE` separated by spaces; `{}` in a value is the folder.
    pub fn variables(mut self, variables: &str) -> Case {
        let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.to_string(), value.to_string()));
        self.variables.extend(variables.split(' ').map(|text| pair(text).expect("NAME=VALUE")));
        self
    }

    /// The command receives SIGTERM as soon as it handles it, and ends by it.
    pub fn terminated(mut self) -> Case {
        self.signal = Some(Signal::TERM);
        self.code = 143;
        self
    }
}

impl Content {
    /// Puts it at `path`.
    pub fn put(&self, path: &Path) {
        // A file of a fixture may be replaced.
        let _ = std::fs::remove_file(path);
        match self {
            Content::Bytes(bytes) => std::fs::write(path, bytes).expect("a file"),
            Content::Old(text) => {
                std::fs::write(path, text).expect("a file");
                let file = std::fs::File::options().write(true).open(path).expect("a file");
                file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a time");
            }
            Content::Sparse(bytes) => {
                std::fs::File::create(path).and_then(|file| file.set_len(*bytes)).expect("a file");
            }
            Content::Folder => std::fs::create_dir(path).expect("a folder"),
            Content::Link(to) => std::os::unix::fs::symlink(to, path).expect("a link"),
            Content::HardLink(to) => {
                std::fs::hard_link(path.with_file_name(to), path).expect("a hard link");
            }
            Content::Pipe => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
            }
            Content::Copy(fixture) => copy(&fixture.path(), path),
            Content::Changed(fixture, name, change) => {
                copy(&fixture.path(), path);
                let file = if name.is_empty() { path.to_path_buf() } else { path.join(name) };
                let bytes = std::fs::read(&file).expect("a file of the fixture");
                std::fs::write(&file, change(bytes)).expect("a file");
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir(to).expect("a folder");
        for entry in std::fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).expect("a file");
    }
}

/// `text` with all of `from` replaced.
pub fn replaced(from: &'static str, to: impl Into<String>) -> Box<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync> {
    let to = to.into();
    Box::new(move |bytes| {
        let text = String::from_utf8(bytes).expect("text");
        assert!(text.contains(from), "the fixture has no {from}");
        text.replace(from, &to).into_bytes()
    })
}
