//! Where a process has its token from.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rendezvous::{Token, TokenError};

/// A home folder that ends with the test.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let folder = std::env::temp_dir().join(format!("pleach-token-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Home(folder)
    }

    fn token(&self, variables: &[(&str, &str)]) -> Result<Token, TokenError> {
        let home = self.0.to_string_lossy().into_owned();
        Token::of_process(&|name: &str| {
            let given = variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_string());
            given.or_else(|| (name == "HOME").then(|| home.clone()))
        })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[test]
fn the_environment_comes_first_then_a_file_then_the_home_folder() {
    let home = Home::new("order");
    let digits = "0123456789abcdef".repeat(4);
    let file = home.0.join("secret");
    fs::write(&file, "ff".repeat(32) + "\n").expect("a file");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("private");
    let path = file.to_string_lossy().into_owned();
    let both = home.token(&[("PLEACH_TOKEN", &digits), ("PLEACH_TOKEN_FILE", &path)]).expect("a token");
    assert_eq!(both.to_hex(), digits);
    let file_token = home.token(&[("PLEACH_TOKEN_FILE", &path)]).expect("a token");
    assert_eq!(file_token.to_hex(), "ff".repeat(32));
    assert!(!home.0.join(".pleach").exists());
}

#[test]
fn the_first_process_makes_the_file_of_the_home_folder_and_all_have_its_token() {
    let home = Home::new("made");
    let tokens: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| home.token(&[]).expect("a token").to_hex())).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert_eq!(mode(&home.0.join(".pleach/token")), 0o600);
    let left: Vec<_> = fs::read_dir(home.0.join(".pleach")).expect("a folder").collect();
    assert_eq!(left.len(), 1, "no draft is left");
}

#[test]
fn tokens_that_others_can_read_or_that_are_none_are_refused() {
    let home = Home::new("refused");
    let file = home.0.join("secret");
    let path = file.to_string_lossy().into_owned();
    let refused = |variables: &[(&str, &str)]| home.token(variables).expect_err("refused").to_string();
    fs::write(&file, "ff".repeat(32)).expect("a file");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("public");
    let from_file = [("PLEACH_TOKEN_FILE", path.as_str())];
    assert!(
        refused(&from_file)
            .starts_with(&format!("the token of runs: {path} holds a secret and has mode 644; use `chmod 600 {path}`")),
        "{}",
        refused(&from_file)
    );
    fs::write(&file, "ff").expect("a file");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("private");
    assert!(refused(&from_file).starts_with(&format!("the token of runs: {path} must hold 64 hexadecimal digits; ")));
    assert!(refused(&[("PLEACH_TOKEN", "abc")]).starts_with("PLEACH_TOKEN must be 64 hexadecimal digits"));
    assert!(refused(&[("HOME", "")]).starts_with("PLEACH_TOKEN, PLEACH_TOKEN_FILE and HOME are missing"));
}

#[test]
fn a_token_is_not_printed() {
    let token = Token::random().expect("random");
    assert_eq!(format!("{token:?}"), "Token(Secret)");
    assert_ne!(token.to_hex(), Token::random().expect("random").to_hex());
}
