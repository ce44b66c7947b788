//! The commands of `bpf(2)` that weir uses.
//!
//! Their numbers are fixed: `enum bpf_cmd` in `linux/bpf.h`. The crates that define them also load programs, and a
//! program that only reads reports has no use for that.

/// A command of `bpf(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgramLoad = 5,
    ProgramTestRun = 10,
    ProgramByIdentifier = 13,
    ObjectInfo = 15,
    ProgramQuery = 16,
    BtfLoad = 18,
    MapLookupBatch = 24,
    MapUpdateBatch = 26,
    LinkCreate = 28,
    LinkUpdate = 29,
    LinkByIdentifier = 30,
    LinkDetach = 34,
}

/// Commands that use and query existing maps, programs and links.
pub(super) const USE: &[Command] = &[
    Command::MapLookup,
    Command::MapUpdate,
    Command::MapDelete,
    Command::MapNextKey,
    Command::MapLookupBatch,
    Command::MapUpdateBatch,
    Command::ProgramTestRun,
    Command::ProgramQuery,
    Command::ProgramByIdentifier,
    Command::ObjectInfo,
    Command::LinkCreate,
    Command::LinkUpdate,
    Command::LinkDetach,
    Command::LinkByIdentifier,
];

/// Commands that create new objects, if a capability for that is kept.
pub(super) const MAKE: &[Command] = &[Command::MapCreate, Command::ProgramLoad, Command::BtfLoad];

#[cfg(test)]
mod tests {
    use aya_obj::generated::bpf_cmd;

    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_kernel() {
        let numbers = |commands: &[Command]| commands.iter().map(|command| *command as u32).collect::<Vec<_>>();
        let of_use = [
            bpf_cmd::BPF_MAP_LOOKUP_ELEM,
            bpf_cmd::BPF_MAP_UPDATE_ELEM,
            bpf_cmd::BPF_MAP_DELETE_ELEM,
            bpf_cmd::BPF_MAP_GET_NEXT_KEY,
            bpf_cmd::BPF_MAP_LOOKUP_BATCH,
            bpf_cmd::BPF_MAP_UPDATE_BATCH,
            bpf_cmd::BPF_PROG_TEST_RUN,
            bpf_cmd::BPF_PROG_QUERY,
            bpf_cmd::BPF_PROG_GET_FD_BY_ID,
            bpf_cmd::BPF_OBJ_GET_INFO_BY_FD,
            bpf_cmd::BPF_LINK_CREATE,
            bpf_cmd::BPF_LINK_UPDATE,
            bpf_cmd::BPF_LINK_DETACH,
            bpf_cmd::BPF_LINK_GET_FD_BY_ID,
        ];
        assert_eq!(numbers(USE), of_use.map(|command| command as u32));
        let of_make = [bpf_cmd::BPF_MAP_CREATE, bpf_cmd::BPF_PROG_LOAD, bpf_cmd::BPF_BTF_LOAD];
        assert_eq!(numbers(MAKE), of_make.map(|command| command as u32));
    }
}
