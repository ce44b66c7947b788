//! A program of the eBPF object, linked as for the kernel: with the functions that it calls, and its maps.

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result, anyhow, bail};
use aya_obj::{
    Object, ProgramSection,
    generated::{bpf_insn, bpf_map_type},
};
use weir_common::control::placeholder;

use super::{context::Hook, memory::Memory};

/// A map and its values.
#[derive(Clone)]
pub struct Map {
    pub name: String,
    pub kind: Kind,
    /// The address of its first value.
    pub values: u64,
    pub value_bytes: u64,
    pub len: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Array,
    /// It has no element.
    Hash,
    /// Each element stands for a ring.
    Rings,
}

/// A program that is ready to run.
#[derive(Clone)]
pub struct Linked {
    pub code: Vec<bpf_insn>,
    pub hook: Hook,
    /// The descriptor of a map is its position here.
    pub maps: Vec<Map>,
}

/// Links a program of an object. `constants` are the values that the loader sets, by name; `entries` the number of
/// entries of maps that have another number than the object says.
pub fn link(
    object: &[u8],
    program: &str,
    constants: &[(&str, &[u8])],
    entries: &[(&str, u32)],
    memory: &mut Memory,
) -> Result<Linked> {
    let mut object = Object::parse(object).context("the object cannot be read")?;
    object.patch_map_data(constants.iter().map(|(name, value)| (*name, (*value, true))).collect::<HashMap<_, _>>())?;
    let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let known: Vec<_> = object.maps.iter().map(|(name, map)| (name.clone(), map.clone())).collect();
    let numbered = known.iter().enumerate().map(|(nth, (name, map))| (name.as_str(), nth as i32, map));
    object.relocate_maps(numbered, &text).map_err(|error| anyhow!("{error}"))?;
    object.relocate_calls(&text).map_err(|error| anyhow!("{error}"))?;
    let maps = known.into_iter().map(|(name, map)| {
        let entries =
            entries.iter().find(|(other, _)| *other == name).map_or(map.max_entries(), |(_, entries)| *entries);
        let kind = match bpf_map_type::try_from(map.map_type()) {
            Ok(bpf_map_type::BPF_MAP_TYPE_ARRAY | bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY) => Kind::Array,
            Ok(bpf_map_type::BPF_MAP_TYPE_HASH) => Kind::Hash,
            Ok(bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS) => Kind::Rings,
            _ => bail!("{name} is a map of an unknown type"),
        };
        let value_bytes = map.value_size() as usize;
        let mut values = map.data().to_vec();
        values.resize(value_bytes * if kind == Kind::Hash { 0 } else { entries as usize }, 0);
        Ok(Map { name, kind, values: memory.add(values), value_bytes: value_bytes as u64, len: entries.into() })
    });
    let maps = maps.collect::<Result<_>>()?;
    let found = object.programs.get(program).with_context(|| format!("the object has no program {program}"))?;
    let hook = match found.section {
        ProgramSection::Xdp { .. } => Hook::Xdp,
        ProgramSection::SchedClassifier => Hook::Tc,
        _ => bail!("{program} measures no packets"),
    };
    let mut code = object.functions[&found.function_key()].instructions.clone();
    // As on a kernel where a packet tells whether it has fragments: these have none.
    let flags = code.iter_mut().filter(|instruction| instruction.imm == placeholder::FLAGS);
    for instruction in flags {
        instruction.imm = 0;
    }
    Ok(Linked { code, hook, maps })
}
