//! Ways by which packets pass the machine without the kernel's stack: flowtables, and cards that belong to a program
//! such as VPP.

use std::{fs, io, path::Path};

use weir_attach::netlink::{self, Flowtable};
use weir_system::{bounded, text::escaped};

use super::{Answer, Finding};

/// All flowtables of this network namespace; `None` if this process may not list them. A kernel that cannot list them
/// has none.
pub fn flowtables() -> Option<Vec<Flowtable>> {
    match netlink::flowtables() {
        Ok(all) => Some(all),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(Vec::new()),
    }
}

/// Findings about the flowtables that this interface is in.
pub fn of_interface(name: &str, flowtables: Option<&[Flowtable]>) -> Vec<Finding> {
    let Some(all) = flowtables else {
        return vec![Finding::new("flowtables", Answer::Unknown, "listing them needs CAP_NET_ADMIN")];
    };
    all.iter().filter(|one| one.devices.iter().any(|device| device == name)).map(finding).collect()
}

fn finding(flowtable: &Flowtable) -> Finding {
    let name = escaped(&flowtable.name);
    if flowtable.in_hardware {
        let detail = format!(
            "{name} has `flags offload`: no program sees the packets that a card forwards itself. If the card counts \
             them, reports say how many (`unseen`). Without that flag weir sees all: docs/OFFLOAD.md"
        );
        return Finding::new("flowtable", Answer::No, detail);
    }
    let detail =
        format!("{name} forwards flows past the rules and most of the stack: weir sees the packets all the same");
    Finding::new("flowtable", Answer::Note, detail)
}

/// Drivers that give a card to a program.
const USERSPACE: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// The first two digits of the PCI class of network cards.
const NETWORK: &str = "0x02";

/// The finding about network cards that belong to a program, such as VPP or another one with DPDK, or to a guest.
pub fn of_machine() -> Option<Finding> {
    judge(&given_away(Path::new("/sys/bus/pci/devices")))
}

fn judge(cards: &[String]) -> Option<Finding> {
    let detail = format!(
        "{} belong{} to a program or a guest, not to the kernel: no program of the kernel sees packets there, and nothing in \
         reports counts them (docs/OFFLOAD.md)",
        cards.join(", "),
        if cards.len() == 1 { "s" } else { "" }
    );
    (!cards.is_empty()).then(|| Finding::new("cards given away", Answer::No, detail))
}

/// The network cards with such a driver, as `ADDRESS (DRIVER)`, sorted.
fn given_away(devices: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(devices) else { return Vec::new() };
    let mut all = Vec::new();
    for card in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let is_network = bounded::read_to_string(card.join("class")).is_ok_and(|class| class.starts_with(NETWORK));
        let driver = fs::read_link(card.join("driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        if let Some(driver) = driver.filter(|driver| is_network && USERSPACE.contains(&driver.as_str())) {
            let address = card.file_name().unwrap_or_default().to_string_lossy().into_owned();
            all.push(format!("{address} ({driver})"));
        }
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn flowtable(in_hardware: bool) -> Flowtable {
        Flowtable { name: "inet fw ft".to_owned(), devices: vec!["wan0".to_owned(), "lan0".to_owned()], in_hardware }
    }

    #[test]
    fn only_hardware_hides_packets() {
        for (in_hardware, answer, says) in
            [(false, Answer::Note, "weir sees the packets"), (true, Answer::No, "`flags offload`: no program sees")]
        {
            let all = [flowtable(in_hardware)];
            let told = of_interface("lan0", Some(&all));
            assert_eq!(told.len(), 1);
            assert!(told[0].answer == answer && told[0].detail.contains(says), "{told:?}");
            assert!(!told[0].needed, "weir can run beside it");
            assert_eq!(of_interface("lan1", Some(&all)), [], "it is in none");
        }
        assert_eq!(of_interface("lan0", None)[0].answer, Answer::Unknown);
    }

    #[test]
    fn cards_of_programs_are_named() {
        let root = std::env::temp_dir().join(format!("weir-cards-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let cards = [
            ("0000:03:00.1", "0x020000", Some("vfio-pci")),
            ("0000:03:00.0", "0x020000", Some("uio_pci_generic")),
            ("0000:04:00.0", "0x020000", Some("ixgbe")),
            ("0000:05:00.0", "0x030000", Some("vfio-pci")),
            ("0000:06:00.0", "0x020000", None),
        ];
        for (address, class, driver) in cards {
            let card = root.join(address);
            fs::create_dir_all(&card).unwrap();
            fs::write(card.join("class"), format!("{class}\n")).unwrap();
            if let Some(driver) = driver {
                symlink(Path::new("../../../../bus/pci/drivers").join(driver), card.join("driver")).unwrap();
            }
        }
        let found = given_away(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, ["0000:03:00.0 (uio_pci_generic)", "0000:03:00.1 (vfio-pci)"]);
        let told = judge(&found).unwrap();
        assert!(told.detail.starts_with("0000:03:00.0 (uio_pci_generic), 0000:03:00.1 (vfio-pci) belong to"), "{told}");
        assert_eq!((judge(&[]), given_away(&root)), (None, Vec::new()));
    }
}
