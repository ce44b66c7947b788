//! Measuring does not change how a router forwards.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{account::Loss, netns::Lab};

use crate::watch::{self, TIMEOUT, list, measure, modes, native, number, seen_on};

alone![forwarded_traffic_is_measured_and_passes];

pub const TCP_PORT: u16 = 7000;
pub const UDP_PORT: u16 = 7001;
/// The size of one upload, in bytes.
pub const UPLOAD: usize = 4 << 20;
/// Datagrams in each direction.
pub const DATAGRAMS: usize = 300;

fn forwarded_traffic_is_measured_and_passes() -> Result<()> {
    let lab = Lab::new()?;
    let interfaces = Lab::router_interfaces();
    let received = || -> Result<Vec<u64>> {
        interfaces.iter().map(|interface| Ok(lab.router.counters(interface)?.received.packets)).collect()
    };
    let before_attaching = received()?;
    let settings = format!("interfaces: [{}]\nreport: {{interval: 1s}}\n", interfaces.map(native).join(", "));
    let mut daemon = measure(&lab.router, &settings)?;
    let attached = received()?;
    for address in Lab::SERVER {
        upload(&lab, address.parse()?)?;
        exchange(&lab, address.parse()?)?;
    }
    let before_stopping = received()?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    let stopped = received()?;
    upload(&lab, Lab::SERVER[0].parse()?).context("after weir has ended")?;

    for (nth, interface) in interfaces.into_iter().enumerate() {
        let seen = seen_on(interface, &reports)?.packets;
        let (least, most) = (before_stopping[nth] - attached[nth], stopped[nth] - before_attaching[nth]);
        ensure!((least..=most).contains(&seen), "{interface}: seen {seen}, arrived {least} to {most}");
        let modes = modes(interface, &reports);
        ensure!(modes.iter().all(|mode| *mode == "xdp-native"), "{interface}: {modes:?}");
    }
    for (client, server) in Lab::CLIENT.into_iter().zip(Lab::SERVER) {
        let uploaded = sum_flow(&reports, "bytes", client, server, TCP_PORT, "tcp")?;
        ensure!(uploaded > UPLOAD as u64, "{uploaded} bytes on the wire carried {UPLOAD} from {client}");
        let asked = sum_flow(&reports, "packets", client, server, UDP_PORT, "udp")?;
        ensure!(asked == DATAGRAMS as u64, "{asked} of {DATAGRAMS} datagrams from {client}");
    }
    Ok(())
}

/// The sum of a flow in the top lists of all windows.
pub fn sum_flow(reports: &[Value], measure: &str, src: &str, dst: &str, port: u16, proto: &str) -> Result<u64> {
    let mut sum = 0;
    for report in reports {
        for flow in list(&report["top"]["flows"])? {
            if flow["src_ip"] == src && flow["dst_ip"] == dst && flow["dst_port"] == port && flow["proto"] == proto {
                sum += number(&flow[measure]["value"])?;
            }
        }
    }
    Ok(sum)
}

/// The client uploads, and the server checks how much arrived.
pub fn upload(lab: &Lab, server: IpAddr) -> Result<()> {
    let address = SocketAddr::new(server, TCP_PORT);
    let listener = lab.server.enter(|| TcpListener::bind(address))??;
    let receiving = thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let received = std::io::copy(&mut stream, &mut std::io::sink())?;
        Ok(stream.write_all(&received.to_be_bytes())?)
    });
    let received = lab.client.enter(|| -> Result<u64> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(&vec![7; UPLOAD])?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut received = [0; 8];
        stream.read_exact(&mut received)?;
        // Waits until the server closes its side: then this side has sent everything.
        ensure!(stream.read(&mut [0])? == 0, "the server goes on");
        Ok(u64::from_be_bytes(received))
    })?;
    let received = received.with_context(|| format!("an upload to {address}"))?;
    receiving.join().expect("receiving does not panic")?;
    ensure!(received == UPLOAD as u64, "{received} of {UPLOAD} bytes arrived at {address}");
    Ok(())
}

/// Sends questions over UDP one after the other, and waits for each answer.
pub fn exchange(lab: &Lab, server: IpAddr) -> Result<()> {
    let address = SocketAddr::new(server, UDP_PORT);
    let socket = lab.server.enter(|| UdpSocket::bind(address))??;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let answering = thread::spawn(move || -> Result<()> {
        let mut datagram = [0; 200];
        for _ in 0..DATAGRAMS {
            let (length, from) = socket.recv_from(&mut datagram)?;
            socket.send_to(&datagram[..length], from)?;
        }
        Ok(())
    });
    lab.client.enter(|| -> Result<()> {
        let any: IpAddr = if server.is_ipv6() { "::".parse()? } else { "0.0.0.0".parse()? };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.connect(address)?;
        for nth in 0..DATAGRAMS {
            let question = [nth as u8; 200];
            let mut answer = [0; 200];
            socket.send(&question)?;
            let length = socket.recv(&mut answer).with_context(|| format!("datagram {nth} to {address}"))?;
            ensure!(answer[..length] == question, "datagram {nth} to {address} came back changed");
        }
        Ok(())
    })??;
    answering.join().expect("answering does not panic")
}
