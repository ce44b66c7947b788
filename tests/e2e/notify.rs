//! weir as a service of `Type=notify`: it tells systemd its true state, at the right time.

use std::{fs, io, os::unix::net::UnixDatagram, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_tests::{
    account::Loss,
    daemon::Daemon,
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{TIMEOUT, config, has_program, native, stop, weir_with};

tests![
    ready_once_attached_and_stopping_at_the_end,
    never_ready_where_it_cannot_attach,
    a_systemd_that_does_not_read_stops_no_report,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// A socket as systemd has it, and weir with its address in its environment.
struct Service {
    socket: UnixDatagram,
    program: PathBuf,
    _scratch: Scratch,
}

impl Service {
    fn new() -> Result<Self> {
        let scratch = Scratch::new()?;
        let address = scratch.file("notify");
        let socket = UnixDatagram::bind(&address)?;
        let program = weir_with(&[("NOTIFY_SOCKET", &address)], &scratch)?;
        Ok(Self { socket, program, _scratch: scratch })
    }

    /// The next message within `timeout`, if there is one. Messages that hand over descriptors are skipped.
    fn told(&self, timeout: Duration) -> Result<Option<String>> {
        let mut message = [0; 4096];
        self.socket.set_read_timeout(Some(timeout))?;
        loop {
            let told = match self.socket.recv(&mut message) {
                Ok(length) => String::from_utf8_lossy(&message[..length]).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if !told.starts_with("FDSTORE") {
                return Ok(Some(told));
            }
        }
    }
}

fn ready_once_attached_and_stopping_at_the_end() -> Result<()> {
    let service = Service::new()?;
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{}]\n", native(INTERFACE));
    let mut daemon =
        Daemon::start_program(&service.program, Some(&pair.observer), |reports| config(&settings, reports))?;
    let ready =
        service.told(TIMEOUT)?.with_context(|| format!("it never was ready:\n{}", daemon.log().unwrap_or_default()))?;
    ensure!(has_program(&pair.observer, INTERFACE)?, "it was ready before it was attached");
    ensure!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    let status = format!("STATUS=measuring {INTERFACE} (xdp-native)");
    ensure!(ready.lines().any(|line| line == status), "{ready}");
    let reports = stop(&mut daemon, Loss::None)?;
    ensure!(!reports.is_empty(), "it reported nothing");
    // A window may have ended in between, which sends another status.
    loop {
        let told = service.told(TIMEOUT)?.context("it did not say that it stops")?;
        if told.lines().any(|line| line == "STOPPING=1") {
            return Ok(());
        }
        ensure!(told.starts_with("STATUS="), "{told}");
    }
}

fn never_ready_where_it_cannot_attach() -> Result<()> {
    let service = Service::new()?;
    let pair = Lab::quiet_pair()?;
    // The driver of this interface has no native XDP.
    let settings = format!("interfaces: [{INTERFACE}, {{name: lo, mode: native}}]\n");
    let mut daemon =
        Daemon::start_program(&service.program, Some(&pair.observer), |reports| config(&settings, reports))?;
    daemon.wait(TIMEOUT)?;
    let told = service.told(Duration::from_millis(100))?;
    ensure!(told.is_none(), "weir sent {told:?}");
    Ok(())
}

fn a_systemd_that_does_not_read_stops_no_report() -> Result<()> {
    let service = Service::new()?;
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{}]\nreport: {{interval: 1s}}\n", native(INTERFACE));
    let mut daemon =
        Daemon::start_program(&service.program, Some(&pair.observer), |reports| config(&settings, reports))?;
    // weir sends a message for each window, and the queue has room for only a few.
    let most = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen")?.trim().parse::<usize>()?;
    daemon.wait_for_reports(most.min(15), TIMEOUT)?;
    stop(&mut daemon, Loss::None).map(drop)
}
