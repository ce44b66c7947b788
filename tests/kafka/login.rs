//! How weir identifies itself to a broker, and which brokers it trusts.

use std::{
    fs::{self, Permissions},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use weir_tests::{
    clock,
    kafka::{Broker, TIMEOUT},
    nats::free_address,
    router::{Router, certify, keep},
    scratch::Scratch,
};

use crate::{TOPIC, check, router};

/// Takes encrypted connections for a broker, from clients with a certificate. Killed on drop.
struct Encrypting(Child);

impl Drop for Encrypting {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tansu 0.6.0 refuses `--key` beside `--cert`, so socat has the certificate.
pub fn a_connection_is_encrypted_for_both() -> Result<()> {
    let scratch = Scratch::new()?;
    certify(scratch.path())?;
    let folder = scratch.path().display().to_string();
    let seen = free_address()?;
    let mut broker = Broker::new(scratch.path(), free_address()?, None);
    broker.start_behind(seen, &[])?;
    let listen = format!(
        "OPENSSL-LISTEN:{},bind=127.0.0.1,reuseaddr,fork,cert={folder}/server.pem,key={folder}/server.key,\
         cafile={folder}/ca.pem,verify=1",
        seen.port()
    );
    let mut socat = Command::new("socat");
    socat.args([listen, format!("TCP:{}", broker.address())]).stderr(Stdio::null());
    let _encrypting = Encrypting(socat.spawn().context("socat")?);
    clock::wait_for("socat to listen", TIMEOUT, || Ok(TcpStream::connect(seen).is_ok().then_some(())))?;
    for (name, value) in [
        ("bootstrap.servers", seen.to_string()),
        ("security.protocol", "ssl".to_owned()),
        ("ssl.ca.location", format!("{folder}/ca.pem")),
        ("ssl.certificate.location", format!("{folder}/router.pem")),
        ("ssl.key.location", format!("{folder}/router.key")),
    ] {
        broker.client(name, &value);
    }
    broker.create(TOPIC, 1)?;
    let sink = |name: &str, tls: &str| -> Result<Router> {
        let spool = scratch.file(name);
        fs::create_dir(&spool)?;
        let router = Router::with(&spool, &format!("{{type: kafka, brokers: [\"{seen}\"], timeout: 1s{tls}}}"))?;
        router.offer(1..=3);
        Ok(router)
    };
    // These must fail: no encryption, a broker whose certificate no trusted authority has signed, and a router without
    // a certificate.
    sink("plain", "")?.wait_for_error("cannot connect to 127.0.0.1:")?;
    sink("stranger", ", tls: {}")?.wait_for_error("UnknownIssuer")?;
    sink("nobody", &format!(", tls: {{ca_file: {folder}/ca.pem}}"))?.wait_for_error("cannot connect to 127.0.0.1:")?;
    let known = format!(
        ", tls: {{ca_file: {folder}/ca.pem, certificate_file: {folder}/router.pem, key_file: {folder}/router.key}}"
    );
    sink("known", &known)?.wait_for(3)?;
    check(&broker.records(TOPIC)?, 1..=3)
}

/// This broker keeps its users in its memory, and with `--authentication` takes nothing from others: so it never has a
/// user. What a wrong password leads to can be seen all the same.
pub fn a_password_is_read_anew_and_never_told() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut broker = Broker::new(scratch.path(), free_address()?, None);
    broker.start_behind(broker.address(), &["--authentication"])?;
    let nobody = router(&scratch.file("nobody"), &broker, "timeout: 1s")?;
    nobody.offer(1..=1);
    nobody.wait_for_error("cannot connect to 127.0.0.1:")?;
    let file = scratch.file("password");
    for mechanism in ["scram-sha-256", "scram-sha-512"] {
        let _ = fs::remove_file(&file);
        let sasl =
            format!("timeout: 2s, sasl: {{mechanism: {mechanism}, user: weir, password_file: {}}}", file.display());
        let router = router(&scratch.file(mechanism), &broker, &sasl)?;
        router.offer(1..=1);
        router.wait_for_error("cannot read")?;
        keep(&file, "two\nlines")?;
        router.wait_for_error("should have the password in one line")?;
        keep(&file, "s3cret\n")?;
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        let exposed = router.wait_for_error("every user of this machine may open it")?;
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        let refused = router.wait_for_error("Sasl handshake failed")?;
        ensure!(!format!("{refused}{exposed}{:?}", router.metrics()).contains("s3cret"), "{refused}{exposed}");
    }
    Ok(())
}
