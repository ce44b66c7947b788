//! How weir identifies itself to a broker, and which brokers it trusts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use anyhow::{Result, ensure};
use weir_tests::{
    kafka::Broker,
    nats::free_address,
    router::{Router, certify, keep},
    scratch::Scratch,
};

use crate::{TOPIC, check, router};

pub fn a_connection_is_encrypted() -> Result<()> {
    let scratch = Scratch::new()?;
    certify(scratch.path())?;
    let folder = scratch.path().display().to_string();
    let address = free_address()?;
    let mut broker = Broker::new(scratch.path(), address, None)
        .with("security.protocol", "ssl")
        .with("ssl.ca.location", &format!("{folder}/ca.pem"));
    let (certificate, key) = (format!("{folder}/server.pem"), format!("{folder}/server.key"));
    broker.start_behind(address, "tls", &["--cert", &certificate, "--key", &key])?;
    broker.create(TOPIC, 1)?;
    let sink = |name: &str, tls: &str| -> Result<Router> {
        let spool = scratch.file(name);
        fs::create_dir(&spool)?;
        let router = router(&spool, &broker, &format!("timeout: 1s{tls}"))?;
        router.offer(1..=3);
        Ok(router)
    };
    // These must fail: no encryption, and a broker whose certificate no trusted authority has signed.
    sink("plain", "")?.wait_for_error("cannot connect to 127.0.0.1:")?;
    sink("stranger", ", tls: {}")?.wait_for_error("UnknownIssuer")?;
    let known = format!(
        ", tls: {{ca_file: {folder}/ca.pem, certificate_file: {folder}/router.pem, key_file: {folder}/router.key}}"
    );
    sink("known", &known)?.wait_for(3)?;
    check(&broker.records(TOPIC)?, 1..=3)
}

/// This broker keeps its users in its memory, and with `--authentication` takes nothing from clients that are none: so it
/// never has a user. What a wrong password leads to can be seen all the same.
pub fn a_password_is_read_anew_and_never_told() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut broker = Broker::new(scratch.path(), free_address()?, None);
    broker.start_behind(broker.address(), "tcp", &["--authentication"])?;
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
