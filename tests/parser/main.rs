//! weir's parser, flow cache and window edge through the object that the kernel really runs, one packet at a time.
//!
//! `weir_common` tests the same parser in userspace; here it is compiled for the kernel and has passed the verifier.
//! Tests that need the kernel need root; without it they are ignored.

use std::process::ExitCode;

use weir_datapath::Features;
use weir_tests::{
    captures,
    trial::{needed, optional, root, run, trial},
};

mod cache;
mod cost;
mod differential;
mod frame;
mod gaps;
mod merged;
mod peer;
mod places;
mod table;

/// Why this kernel cannot measure captured packets.
fn captured_through_the_kernel() -> Result<(), String> {
    let needed = "`weir replay --kernel` needs Linux 5.18".to_owned();
    if Features::of_this_kernel().fragments { Ok(()) } else { Err(needed) }
}

fn main() -> ExitCode {
    let root = root();
    let corpus = optional(captures::all());
    let kernel = |name, test| trial(name, test, &[&root]);
    let captured = needed(captured_through_the_kernel());
    let trials = vec![
        kernel("table::every_kind_of_packet", table::every_kind_of_packet_makes_its_record_or_its_counter),
        kernel("table::on_the_oldest_kernels", table::the_same_on_the_oldest_kernels),
        kernel("table::without_flags", table::the_same_without_flags_of_packets),
        kernel("table::every_kind_of_tunnel", table::every_kind_of_tunnel_shows_what_is_inside),
        kernel("table::generic_mode_leaves_out_copies", table::generic_mode_leaves_out_what_the_router_sends),
        kernel("table::the_verifier_has_little_to_do", table::the_verifier_has_little_to_do),
        kernel("differential::generated_frames", differential::generated_frames),
        kernel("differential::frames_cut_at_every_offset", differential::frames_cut_at_every_offset),
        kernel("differential::frames_with_flipped_bits", differential::frames_with_flipped_bits),
        kernel("differential::every_length_and_type", differential::every_length_and_type),
        kernel("differential::stacks_and_chains", differential::stacks_of_tags_and_chains_of_headers),
        kernel("differential::tags_of_all_kinds", differential::tags_of_all_kinds),
        kernel("table::tunnels_at_other_ports", table::tunnels_at_other_ports),
        kernel("differential::stacks_of_labels", differential::stacks_of_labels),
        kernel("differential::nested_tunnels", differential::nested_tunnels),
        kernel("differential::every_link_type", differential::every_link_type),
        trial("differential::captured_packets", differential::captured_packets, &[&root, &corpus]),
        trial("peer::etherparse_finds_the_same_flows", peer::etherparse_finds_the_same_flows, &[]),
        trial("cost::of_each_kind", cost::no_kind_of_packet_takes_more_instructions, &[]),
        trial("cost::the_interpreter_agrees", cost::interpreted_programs_agree_with_userspace, &[]),
        kernel("cache::a_flow_is_one_record", cache::a_flow_is_one_record),
        kernel("cache::a_collision_evicts", cache::a_collision_evicts),
        kernel("cache::the_edge_separates_the_windows", cache::the_edge_separates_the_windows),
        kernel("cache::an_empty_window_takes_several_calls", cache::an_empty_window_is_closed_in_several_calls),
        kernel("cache::a_full_ring_is_counted", cache::a_full_ring_is_counted_to_the_packet),
        kernel("cache::each_packet_a_record_while_busy", cache::while_flush_is_in_the_cache_each_packet_is_a_record),
        kernel("cache::a_half_counted_packet_is_left_alone", cache::a_packet_that_is_half_counted_is_left_alone),
        kernel("cache::an_offline_cpu_is_closed_from_elsewhere", cache::an_offline_cpu_is_closed_from_elsewhere),
        kernel("cache::three_hundred_windows_stay_exact", cache::three_hundred_windows_stay_exact),
        kernel("cache::counts_by_tos_and_by_vlan_are_exact", cache::counts_by_tos_and_by_vlan_are_exact),
        kernel("cache::connections_are_counted_exactly", cache::connections_are_counted_exactly),
        trial(
            "cache::kernel_and_userspace_make_the_same",
            cache::kernel_and_userspace_make_the_same_records,
            &[&root, &captured],
        ),
        kernel("places::the_worst_set_of_interfaces", places::the_worst_set_of_interfaces_finds_its_slots),
        kernel("places::each_interface_counts_every_size", places::each_interface_counts_every_size),
        kernel("places::an_interface_without_a_slot", places::an_interface_without_a_slot_is_counted),
        kernel("cache::sampling_is_unbiased", cache::sampling_is_unbiased),
        kernel("merged::each_packet_has_all_headers", merged::each_packet_has_all_headers),
        kernel("merged::uncertain_sizes_have_bounds", merged::uncertain_sizes_have_bounds),
        kernel(
            "gaps::kernel_and_userspace_draw_with_the_same_distribution",
            gaps::kernel_and_userspace_draw_with_the_same_distribution,
        ),
    ];
    run(trials)
}
