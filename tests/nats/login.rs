//! Who weir is, and whom it trusts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::{Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use weir_tests::{
    nats::{Server, Talk},
    scratch::Scratch,
};

use crate::{Router, SUBJECT, check};

/// Writes a secret for its owner alone.
fn keep(file: &Path, secret: &str) -> Result<()> {
    fs::write(file, secret)?;
    Ok(fs::set_permissions(file, Permissions::from_mode(0o600))?)
}

pub fn a_secret_is_read_anew_and_never_told() -> Result<()> {
    const SECRET: &str = "s3cret-of-weir";
    const WRONG: &str = "s3cret-of-yesterday";
    let scratch = Scratch::new()?;
    let file = scratch.file("secret");
    for (nth, (authorization, login, settings)) in [
        (format!("token: \"{SECRET}\""), json!({"auth_token": SECRET}), "token_file".to_owned()),
        (
            format!("user: weir, password: \"{SECRET}\""),
            json!({"user": "weir", "pass": SECRET}),
            "user: weir, password_file".to_owned(),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = scratch.file(&nth.to_string());
        fs::create_dir(&folder)?;
        let server = Server::start(&folder, &format!("authorization {{ {authorization} }}"))?;
        let mut talk = Talk::begin(server.address(), &login)?;
        talk.stream("CREATE", SUBJECT, &json!({}))?;
        let _ = fs::remove_file(&file);
        let router = Router::new(&folder, &server, &format!("{settings}: {}", file.display()))?;
        router.offer(1..=3);
        router.wait_for_error("cannot read")?;
        keep(&file, &format!("{WRONG}\n"))?;
        let refused = router.wait_for_error("authorization violation")?;
        fs::write(&file, SECRET)?;
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        let exposed = router.wait_for_error("every user of this machine may open it")?;
        keep(&file, &format!("{SECRET}\n"))?;
        router.wait_for(3)?;
        check(&talk.messages()?, 1..=3)?;
        ensure!(!format!("{refused}{exposed}{:?}", router.metrics()).contains("s3cret"), "{refused}{exposed}");
    }
    Ok(())
}

pub fn a_missing_permission_is_told() -> Result<()> {
    let scratch = Scratch::new()?;
    let password = scratch.file("password");
    keep(&password, "weir")?;
    let users = |subject: &str| {
        format!(
            "authorization {{ users: [{{user: admin, password: admin}}, {{user: weir, password: weir, \
             permissions: {{publish: \"{subject}\", subscribe: \"_INBOX.>\"}}}}] }}"
        )
    };
    let mut server = Server::start(scratch.path(), &users("other"))?;
    let admin = json!({"user": "admin", "pass": "admin"});
    Talk::begin(server.address(), &admin)?.stream("CREATE", SUBJECT, &json!({}))?;
    let settings = format!("user: weir, password_file: {}", password.display());
    let router = Router::new(scratch.path(), &server, &settings)?;
    router.offer(1..=3);
    router.wait_for_error("Permissions Violation for Publish to \"weir.reports\"")?;
    server.kill()?;
    server.begin(&users(SUBJECT))?;
    server.wait()?;
    router.wait_for(3)?;
    check(&Talk::begin(server.address(), &admin)?.messages()?, 1..=3)
}

pub fn a_connection_is_encrypted_for_both() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    fs::write(scratch.file("ca.pem"), parameters.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(parameters, key);
    for (name, subject) in [("server", "127.0.0.1"), ("router", "router.example")] {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![subject.to_owned()])?.signed_by(&key, &issuer)?;
        fs::write(scratch.file(&format!("{name}.pem")), certificate.pem())?;
        keep(&scratch.file(&format!("{name}.key")), &key.serialize_pem())?;
    }
    let mut server = Server::start(scratch.path(), "")?;
    server.talk()?.stream("CREATE", SUBJECT, &json!({}))?;
    server.kill()?;
    let folder = scratch.path().display();
    server.begin(&format!(
        "tls {{cert_file: \"{folder}/server.pem\", key_file: \"{folder}/server.key\", ca_file: \"{folder}/ca.pem\", verify: true}}"
    ))?;
    server.wait()?;
    let address = server.address();
    let sink = |folder: &str, tls: &str| -> Result<Router> {
        let folder = scratch.file(folder);
        fs::create_dir_all(&folder)?;
        let router = Router::with(&folder, &format!("{{type: nats, url: \"tls://{address}\", timeout: 1s{tls}}}"))?;
        router.offer(1..=3);
        Ok(router)
    };
    // A server that nobody has signed whom the system trusts, and a router that does not say who it is.
    sink("stranger", "")?.wait_for_error("UnknownIssuer")?;
    let nobody = sink("nobody", &format!(", tls: {{ca_file: {folder}/ca.pem}}"))?;
    nobody.wait_for_error("ertificate")?;
    let known = format!(
        ", tls: {{ca_file: {folder}/ca.pem, certificate_file: {folder}/router.pem, key_file: {folder}/router.key}}"
    );
    sink("known", &known)?.wait_for(3)?;
    drop(nobody);
    server.kill()?;
    server.begin("")?;
    server.wait()?;
    check(&server.talk()?.messages()?, 1..=3)
}
