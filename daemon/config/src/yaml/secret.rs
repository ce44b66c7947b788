//! Files with secrets. weir refuses a file that every user of the machine can open, because it is not secret.

use std::{
    fs::{self, Metadata},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use http::HeaderName;

/// The permissions of users other than the owner and the group. The group may read, because it may be the service's
/// own.
const OTHERS: u32 = 0o007;
/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// A file with a secret that every user can open.
#[derive(Debug, thiserror::Error)]
#[error("{file} holds a secret, but every user of this machine may open it (mode {mode:04o}): run `chmod o= {file}`")]
pub struct Exposed {
    file: String,
    mode: u32,
}

impl Exposed {
    /// Checks the metadata of an open file.
    ///
    /// # Errors
    ///
    /// Every user can open it.
    pub fn check(path: &Path, metadata: &Metadata) -> Result<(), Self> {
        let mode = metadata.permissions().mode() & PERMISSIONS;
        if mode & OTHERS == 0 { Ok(()) } else { Err(Self { file: path.display().to_string(), mode }) }
    }

    /// Checks a file, which need not exist yet.
    pub fn check_path(path: &Path) -> Result<(), Self> {
        fs::metadata(path).map_or(Ok(()), |metadata| Self::check(path, &metadata))
    }
}

/// Returns true for a file that systemd creates when it starts a service (`LoadCredential=`), if the service is not
/// running.
pub fn is_credential_of_service(file: &Path) -> bool {
    file.starts_with("/run/credentials") && file.parent().is_some_and(|folder| !folder.exists())
}

/// Returns true if a header contains a credential, judged by its name, such as `Authorization`, `X-Api-Key` or
/// `Cookie`.
pub(in crate::yaml) fn is_credential(header: &HeaderName) -> bool {
    const PARTS: [&str; 6] = ["auth", "cookie", "key", "password", "secret", "token"];
    PARTS.iter().any(|part| header.as_str().contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_of_others_expose_a_file_and_those_of_the_group_do_not() {
        let path = std::env::temp_dir().join(format!("weir-secret-{}", std::process::id()));
        fs::write(&path, "secret").unwrap();
        let check = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Exposed::check_path(&path).map_err(|error| error.to_string())
        };
        let kept = [0o600, 0o640, 0o660, 0o400, 0o440].map(check);
        let exposed = [0o644, 0o604, 0o602, 0o601, 0o777].map(check);
        fs::remove_file(&path).unwrap();
        assert!(kept.iter().all(Result::is_ok), "{kept:?}");
        assert!(exposed.iter().all(Result::is_err), "{exposed:?}");
        let file = path.display();
        let expected = format!(
            "{file} holds a secret, but every user of this machine may open it (mode 0644): run `chmod o= {file}`"
        );
        assert_eq!(exposed[0], Err(expected));
        assert!(Exposed::check_path(&path).is_ok(), "the file does not exist");
    }

    #[test]
    fn headers_with_credentials_are_recognised_by_their_names() {
        let is = |name: &'static str| is_credential(&HeaderName::from_static(name));
        for name in ["authorization", "proxy-authorization", "x-api-key", "cookie", "x-auth-token", "x-vault-secret"] {
            assert!(is(name), "{name}");
        }
        for name in ["x-scope-orgid", "x-tenant", "accept", "user-agent"] {
            assert!(!is(name), "{name}");
        }
    }
}
