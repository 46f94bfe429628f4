//! Chromium without a window.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The inside of a window.
#[derive(Clone, Copy)]
pub struct Window {
    pub width: u32,
    pub height: u32,
}

/// The preference of the system.
#[derive(Clone, Copy, Debug)]
pub enum Theme {
    Light,
    Dark,
}

/// A program that runs.
pub struct Browser {
    program: String,
}

/// A folder that ends with its use.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-chromium-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Browser {
    /// The program that `PLEACH_CHROMIUM` names, or `chromium`.
    pub fn find() -> Browser {
        Browser { program: std::env::var("PLEACH_CHROMIUM").unwrap_or("chromium".into()) }
    }

    fn run(&self, folder: &Folder, url: &str, window: Window, theme: Theme, arguments: &[String]) -> String {
        let theme = match theme {
            Theme::Dark => 0,
            Theme::Light => 1,
        };
        let output = Command::new(&self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--allow-file-access-from-files",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-web-security",
            ])
            .arg(format!("--user-data-dir={}", folder.0.join("profile").display()))
            .arg(format!("--blink-settings=preferredColorScheme={theme}"))
            .arg(format!("--window-size={},{}", window.width, window.height))
            .args(arguments)
            .arg(url)
            .output()
            .expect("Chromium starts");
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {stderr}", output.status);
        stdout.into_owned()
    }

    /// The place of a page in a window. The least width of a window of Chromium is 500 pixels, so that a narrower page
    /// has a frame.
    fn place(folder: &Folder, html: &str, window: Window) -> String {
        let page = folder.file("page.html", html.as_bytes());
        if window.width >= 500 {
            return url(&page);
        }
        let Window { width, height } = window;
        // The frame writes its result into the document around it.
        let frame = format!(
            "<!doctype html><html style='color-scheme: light dark'><body style='margin:0'>\
             <iframe id=frame src=page.html style='border:0;width:{width}px;height:{height}px'></iframe><script>\
             document.getElementById('frame').onload = (event) => Object.assign(document.documentElement.dataset, \
             event.target.contentDocument.documentElement.dataset);</script></body></html>"
        );
        url(&folder.file("frame.html", frame.as_bytes()))
    }

    /// The document after its scripts have run.
    pub fn document(&self, html: &str, window: Window, theme: Theme) -> String {
        let folder = Folder::new();
        let url = Browser::place(&folder, html, window);
        let arguments = ["--dump-dom", "--virtual-time-budget=4000"].map(String::from);
        self.run(&folder, &url, window, theme, &arguments)
    }

    /// An attribute of the root after the scripts of a page have run.
    pub fn attribute(&self, html: &str, window: Window, theme: Theme, name: &str) -> String {
        let document = self.document(html, window, theme);
        let root = document.split("<body").next().unwrap_or_default();
        let value = root.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split('"').next());
        let value = value.unwrap_or_else(|| panic!("the root has no {name}: {root}"));
        value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    }

    /// A PNG of a page, at half its size.
    pub fn picture(&self, html: &str, window: Window, theme: Theme) -> Vec<u8> {
        let folder = Folder::new();
        let url = Browser::place(&folder, html, window);
        let file = folder.0.join("picture.png");
        let arguments = [format!("--screenshot={}", file.display()), "--force-device-scale-factor=0.5".into()];
        self.run(&folder, &url, window, theme, &arguments);
        std::fs::read(&file).expect("a picture")
    }

    /// The share of tiles of 16 by 16 pixels that look different in two pictures: by 2 % of white in the mean; 1 where
    /// sizes differ.
    pub fn difference(&self, one: &[u8], other: &[u8]) -> f64 {
        let folder = Folder::new();
        folder.file("one.png", one);
        folder.file("other.png", other);
        let html = include_str!("difference.html");
        let window = Window { width: 800, height: 600 };
        let url = url(&folder.file("page.html", html.as_bytes()));
        let arguments = ["--dump-dom", "--virtual-time-budget=10000"].map(String::from);
        let document = self.run(&folder, &url, window, Theme::Light, &arguments);
        let value = document.split_once("data-difference=\"").and_then(|(_, rest)| rest.split('"').next());
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no difference: {document}"))
    }
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}
