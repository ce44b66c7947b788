//! `weir key`: makes secrets, and names the keys that follow from them.

use weir::{
    cli::{KeyCommand, KeyIdArgs, KeyNewArgs},
    key,
};
use weir_config::HashKey;
use weir_system::{clock, exit::Exit};

use super::{failure::Failure, output::print, settings::read_config};

pub(super) fn key(command: KeyCommand) -> Result<Exit, Failure> {
    match command {
        KeyCommand::New(KeyNewArgs { file: None }) => print(key::new_secret()?),
        KeyCommand::New(KeyNewArgs { file: Some(path) }) => {
            key::create(&path).map(|()| Exit::Done).map_err(Failure::from)
        }
        KeyCommand::Id(KeyIdArgs { file, config }) => {
            let hash_key =
                file.map_or_else(|| Ok(read_config(&config)?.hash_key), |path| Ok::<_, Failure>(HashKey::File(path)))?;
            print(key::fingerprints(&hash_key, clock::now().wall)?)
        }
    }
}
