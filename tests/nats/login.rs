//! Authentication: how weir identifies itself to a NATS server, and which servers it trusts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use serde_json::{Value, json};
use weir_tests::{
    nats::{Server, Talk},
    router::{Router, certify, keep},
    scratch::Scratch,
};

use crate::{SUBJECT, check, router};

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
        let router = router(&folder, &server, &format!("{settings}: {}", file.display()))?;
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

/// A JWT as NATS has it (<https://docs.nats.io/running-a-nats-service/nats_admin/security/jwt>): `by` signs the
/// identity of `about`.
fn token(by: &KeyPair, about: &KeyPair, nats: &Value) -> Result<String> {
    let claims = json!({"jti": "test", "iat": 1, "iss": by.public_key(), "sub": about.public_key(), "name": "test", "nats": nats});
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let signed = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(by.sign(signed.as_bytes())?)))
}

pub fn credentials_sign_what_the_server_asks() -> Result<()> {
    let (operator, account, system) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let (user, stranger) = (KeyPair::new_user(), KeyPair::new_user());
    let operators = token(&operator, &operator, &json!({"type": "operator", "version": 2}))?;
    let mut limits = json!({"wildcards": true});
    for limit in ["subs", "data", "payload", "imports", "exports", "conn", "leaf"] {
        limits[limit] = json!(-1);
    }
    let systems = token(&operator, &system, &json!({"type": "account", "version": 2, "limits": limits}))?;
    for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
        limits[limit] = json!(-1);
    }
    let accounts = token(&operator, &account, &json!({"type": "account", "version": 2, "limits": limits}))?;
    let users = token(&account, &user, &json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}))?;

    let scratch = Scratch::new()?;
    let server = Server::start(
        scratch.path(),
        &format!(
            "operator: \"{operators}\"\nresolver: MEMORY\nsystem_account: {system}\n\
             resolver_preload: {{ {system}: \"{systems}\", {account}: \"{accounts}\" }}",
            system = system.public_key(),
            account = account.public_key()
        ),
    )?;
    let mut talk = Talk::answering(server.address(), |info| {
        let signature = user.sign(info["nonce"].as_str().context("a nonce")?.as_bytes())?;
        Ok(json!({"jwt": users, "sig": URL_SAFE_NO_PAD.encode(signature)}))
    })?;
    talk.stream("CREATE", SUBJECT, &json!({}))?;
    let file = scratch.file("weir.creds");
    let credentials = |seed: &str| {
        format!(
            "-----BEGIN NATS USER JWT-----\n{users}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    };
    let router = router(scratch.path(), &server, &format!("credentials_file: {}", file.display()))?;
    router.offer(1..=3);
    keep(&file, "something else")?;
    router.wait_for_error("as `nsc generate creds` writes them")?;
    keep(&file, &credentials(&stranger.seed()?))?;
    router.wait_for_error("authorization violation")?;
    keep(&file, &credentials(&user.seed()?))?;
    router.wait_for(3)?;
    check(&talk.messages()?, 1..=3)
}

pub fn a_missing_permission_is_reported() -> Result<()> {
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
    let router = router(scratch.path(), &server, &settings)?;
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
    certify(scratch.path())?;
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
    // These must fail: a server whose certificate no trusted authority has signed, and a router without credentials.
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
