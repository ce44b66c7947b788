//! Reads the settings of a command: the configuration, the interfaces on its command line, the place of its state.

use std::{
    collections::HashSet,
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use weir::{cli::ConfigArgs, state};
use weir_attach::netlink::Devices;
use weir_config::{Config, Direction, Interface, Mode, OwnFiles, Source, limits::INTERFACES_MAX, names::Prefix};

use super::failure::Failure;

/// The default path of the configuration.
pub(super) const CONFIG: &str = "/etc/weir/weir.yaml";

/// The variable in which systemd names a service's persistent directories (`StateDirectory=`).
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// The value of `STATE_DIRECTORY` in weir's own service.
pub(super) const STATE_DIRECTORY_DEFAULT: &str = "/var/lib/weir";

/// Where weir keeps its state across restarts; the first directory, if systemd gives it several.
pub(super) fn state_directory() -> Option<PathBuf> {
    let directories = env::var_os(STATE_DIRECTORY)?;
    env::split_paths(&directories).find(|directory| !directory.as_os_str().is_empty())
}

/// The interfaces on the command line, without duplicates.
pub(super) fn named(names: Vec<String>) -> Result<Vec<Interface>, Failure> {
    let mut known = HashSet::new();
    let interfaces: Vec<_> = names
        .into_iter()
        .filter(|name| known.insert(name.clone()))
        .map(|name| Interface { name, mode: Mode::Auto, direction: Direction::Ingress, feeds: None })
        .collect();
    if interfaces.len() > INTERFACES_MAX {
        let error = anyhow::anyhow!("{} interfaces: weir measures at most {INTERFACES_MAX}", interfaces.len());
        return Err(Failure::usage(error));
    }
    Ok(interfaces)
}

/// The networks behind this machine, as it was when this process first read its configuration. Later the process may
/// have dropped the right to look, and they would be missing from one reload on.
static FOUND_NETWORKS: OnceLock<Vec<Prefix>> = OnceLock::new();

fn found_networks() -> Vec<Prefix> {
    let found = Devices::open().and_then(|mut devices| devices.inner_networks());
    found.unwrap_or_else(|error| {
        tracing::warn!(%error, "the kernel does not list the networks of its interfaces: hosts are private addresses");
        Vec::new()
    })
}

/// The configuration for `weir run`. No sink may write to one of weir's own files.
pub(super) fn read_to_run(args: &ConfigArgs, state_directory: Option<&Path>) -> Result<(Config, Source), Failure> {
    let (mut config, source) = read_source(args)?;
    config.found_networks.clone_from(FOUND_NETWORKS.get_or_init(found_networks));
    let path = args.config.as_deref().unwrap_or(Path::new(CONFIG));
    let own = OwnFiles { config: path, state_directory, state: &state::FILES };
    let checked = config.refuse_own_files(&source, own);
    checked.map_err(Failure::usage)?;
    Ok((config, source))
}

pub(super) fn read_config(args: &ConfigArgs) -> Result<Config, Failure> {
    read_source(args).map(|(config, _)| config)
}

/// The configuration with its text, which is empty if there is no file.
fn read_source(ConfigArgs { config }: &ConfigArgs) -> Result<(Config, Source), Failure> {
    let read = match config {
        Some(path) => Config::read_with_source(path),
        None if Path::new(CONFIG).exists() => Config::read_with_source(Path::new(CONFIG)),
        None => return Ok((Config::default(), Source::new(CONFIG, ""))),
    };
    read.map_err(Failure::usage)
}
