//! Captures of packets that a test chooses one by one.

use std::{
    fs::File,
    io::{self, BufWriter},
    net::IpAddr,
    path::Path,
    time::Duration,
};

use weir_tests::pcap::{SNAPLEN_MAX, Writer};

/// The headers of a frame: Ethernet, then IPv4 or IPv6, then UDP.
const ETHERNET: usize = 14;
const UDP: usize = 8;

/// A UDP flow between two addresses of the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Udp {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The ports of source and destination.
    pub ports: (u16, u16),
}

impl Udp {
    /// A frame of `bytes`, or as many more as the headers take.
    pub fn frame(&self, bytes: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = bytes.max(ETHERNET + 20 + UDP) - ETHERNET;
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((length as u16).to_be_bytes());
                frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
                frame.extend(source.octets().into_iter().chain(destination.octets()));
                self.udp(&mut frame, length - 20);
            }
            (source, destination) => {
                let [source, destination] = [source, destination].map(|ip| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                });
                let length = bytes.max(ETHERNET + 40 + UDP) - ETHERNET - 40;
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((length as u16).to_be_bytes());
                frame.extend([17, 64]);
                frame.extend(source.octets().into_iter().chain(destination.octets()));
                self.udp(&mut frame, length);
            }
        }
        frame
    }

    /// Appends the UDP header and its payload, `length` bytes together.
    fn udp(&self, frame: &mut Vec<u8>, length: usize) {
        let (source, destination) = self.ports;
        for field in [source, destination, length as u16, 0] {
            frame.extend(field.to_be_bytes());
        }
        frame.resize(frame.len() + length - UDP, 0);
    }
}

/// Writes frames with their times since the epoch.
///
/// # Errors
///
/// The file cannot be written, or the format does not allow a time or the size of a frame.
pub fn write(path: &Path, frames: impl IntoIterator<Item = (Duration, Vec<u8>)>) -> io::Result<()> {
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), SNAPLEN_MAX)?;
    for (time, frame) in frames {
        writer.write(time, &frame)?;
    }
    writer.finish().map(drop)
}
