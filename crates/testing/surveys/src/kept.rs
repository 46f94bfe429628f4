//! Values by key, kept in a file as they come, a line of JSON each: a command that was stopped continues where it was.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sync::lock;

/// The file, or none, and what it holds.
#[derive(Debug)]
pub struct Kept<K, V> {
    file: Option<Mutex<File>>,
    values: Mutex<BTreeMap<K, V>>,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Kept<K, V> {
        Kept { file: None, values: Mutex::default() }
    }
}

impl<K: Ord + Clone + Serialize + DeserializeOwned, V: Clone + Serialize + DeserializeOwned> Kept<K, V> {
    /// Opens or creates the file. Values that were kept under another `title` are not used. A line that was cut off is
    /// left out.
    ///
    /// # Errors
    /// A file that cannot be read or written, in words.
    pub fn open(path: &Path, title: &str) -> Result<Kept<K, V>, String> {
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        let text = if path.exists() { std::fs::read_to_string(path).map_err(said)? } else { String::new() };
        let lines = text.strip_prefix(title).and_then(|rest| rest.strip_prefix('\n'));
        let mut file = OpenOptions::new();
        let mut file = match lines {
            Some(_) => file.append(true),
            None => file.create(true).write(true).truncate(true),
        }
        .open(path)
        .map_err(said)?;
        if lines.is_none() {
            writeln!(file, "{title}").map_err(said)?;
        }
        let values = lines.unwrap_or_default().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Kept { file: Some(Mutex::new(file)), values: Mutex::new(values) })
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<V> {
        lock(&self.values).get(key).cloned()
    }

    /// Keeps a value. One that cannot be written is not known to the next run, which tries it again.
    pub fn keep(&self, key: K, value: V) {
        if let (Some(file), Ok(line)) = (&self.file, serde_json::to_string(&(&key, &value)))
            && let Err(error) = lock(file).write_all(format!("{line}\n").as_bytes())
        {
            eprintln!("a result is not kept: {error}");
        }
        lock(&self.values).insert(key, value);
    }

    /// Everything.
    pub fn all(&self) -> BTreeMap<K, V> {
        lock(&self.values).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_unless_they_are_cut_off_or_of_another_title() {
        let path = std::env::temp_dir().join(format!("pleach-kept-values-{}", std::process::id()));
        let open = |title| Kept::<String, (bool, f64)>::open(&path, title).expect("a file");
        open("one").keep("a".into(), (true, 1e-7));
        open("one").keep("b".into(), (false, 0.5));
        let text = std::fs::read_to_string(&path).expect("a file");
        std::fs::write(&path, text + "[\"c\",[tr").expect("written");
        let all: Vec<(String, (bool, f64))> = open("one").all().into_iter().collect();
        assert_eq!(all, [("a".into(), (true, 1e-7)), ("b".into(), (false, 0.5))]);
        assert_eq!(open("two").get(&"a".into()), None);
        std::fs::remove_file(&path).expect("removed");
    }
}
