//! `weir replay`: the kernel's datapath and the userspace datapath agree, their reports are true, and no capture stops
//! them.
//!
//! Tests that use the kernel need root, some need captures of real networks, and some compare with another program.
//! Without these they are ignored.

use std::process::ExitCode;

use weir_tests::{
    captures,
    trial::{needed, optional, root, run, trial},
};

mod adversary;
mod clocks;
mod command;
mod confidence;
mod corpus;
mod damage;
mod equality;
mod examples;
mod fleet;
mod frames;
mod full_disk;
mod history;
mod horizons;
mod keys;
mod library;
mod midnight;
mod prefixes;
mod printed;
mod rates;
mod sampling;
mod top;
mod views;

fn main() -> ExitCode {
    let root = root();
    let corpus = optional(captures::all());
    let installed = |name| command::program(name).ok_or_else(|| format!("{name} is not installed"));
    let program = |name| needed(installed(name));
    let tshark = program("tshark");
    let trials = vec![
        trial("equality::zipf_1_0", equality::zipf_1_0, &[&root]),
        trial("equality::zipf_1_3", equality::zipf_1_3, &[&root]),
        trial("equality::odd_packets", equality::odd_packets, &[&root]),
        trial("corpus::each_makes_a_report", corpus::each_makes_a_report, &[&corpus]),
        trial("corpus::all_in_one_command", corpus::all_in_one_command, &[&corpus]),
        trial("corpus::the_kernel_makes_the_same", corpus::the_kernel_makes_the_same_reports, &[&root, &corpus]),
        trial("corpus::tshark_counts_the_same", corpus::tshark_counts_the_same, &[&corpus, &tshark]),
        trial("damage::no_damage_stops_a_replay", damage::no_damage_stops_a_replay, &[]),
        trial("damage::of_real_captures", damage::no_damage_of_real_captures_stops_a_replay, &[&corpus]),
        trial("sampling::two_hundred_draws", sampling::two_hundred_draws, &[]),
        trial("sampling::lists_hold_as_a_whole", sampling::lists_hold_as_a_whole, &[]),
        trial("sampling::lists_hold_through_the_kernel", sampling::lists_hold_through_the_kernel, &[&root]),
        trial("sampling::nothing_taken", sampling::a_window_that_is_left_out_says_so, &[]),
        trial("sampling::nothing_left_out", sampling::a_window_that_left_nothing_out_is_certain, &[]),
        trial("sampling::large_packets", sampling::lists_of_large_packets_hold, &[]),
        trial("sampling::together", sampling::windows_together_hold, &[]),
        trial("sampling::nothing_taken_in_the_kernel", sampling::the_kernel_says_so_too, &[&root]),
        trial("confidence::unique_counts", confidence::unique_counts_are_as_exact_and_as_sure_as_they_say, &[]),
        trial("history::a_replay_fills_one", history::a_replay_fills_one_that_is_read_without_a_daemon, &[]),
        trial("full_disk::the_newest_windows_are_kept", full_disk::the_newest_windows_are_kept, &[&root]),
        trial("history::no_view_asked", history::it_answers_questions_that_no_view_asked, &[]),
        trial("history::of_a_router", history::a_folder_of_a_router_is_not_touched, &[]),
        trial("horizons::counts", horizons::counts_over_horizons_are_those_of_their_windows, &[]),
        trial("horizons::new_hosts", horizons::new_hosts_are_those_that_had_not_sent, &[]),
        trial("adversary::the_lists", adversary::the_lists, &[]),
        trial("adversary::the_filter_of_seen_flows", adversary::the_filter_of_seen_flows, &[]),
        trial("adversary::the_flow_cache", || adversary::the_flow_cache(false), &[]),
        trial("adversary::the_flow_cache_of_the_kernel", || adversary::the_flow_cache(true), &[&root]),
        trial("adversary::one_slot", || adversary::flows_of_one_slot_under_every_key(false), &[]),
        trial("adversary::one_slot_in_the_kernel", || adversary::flows_of_one_slot_under_every_key(true), &[&root]),
        trial("keys::no_list_shows_a_key_twice", keys::no_list_shows_a_key_twice, &[]),
        trial("keys::every_listed_row_can_be_asked_for", keys::every_listed_row_can_be_asked_for, &[]),
        trial("views::every_row_is_true", views::every_row_is_true, &[]),
        trial("views::sharing", views::views_that_share_a_sketch_answer_as_alone, &[]),
        trial("views::totals_hold_with_sampling", views::totals_hold_with_sampling, &[]),
        trial("views::distinct_counts_hold", views::distinct_counts_hold, &[]),
        trial("views::distinct_counts_are_as_exact_as_asked", views::distinct_counts_are_as_exact_as_asked, &[]),
        trial("views::few_keys_are_counted_exactly", views::few_keys_are_counted_exactly, &[]),
        trial("views::new_flows_by_key", views::new_flows_by_key_are_those_that_did_not_come_before, &[]),
        trial("views::entropies_hold", views::entropies_hold, &[]),
        trial("views::any_key_can_be_asked_for", views::any_key_can_be_asked_for, &[]),
        trial(
            "prefixes::a_crowd_comes_first",
            || prefixes::a_crowd_comes_before_the_network_of_a_listed_host(false),
            &[],
        ),
        trial(
            "prefixes::a_crowd_comes_first_in_the_kernel",
            || prefixes::a_crowd_comes_before_the_network_of_a_listed_host(true),
            &[&root],
        ),
        trial("prefixes::without_the_lists_of_addresses", prefixes::without_the_lists_of_addresses, &[]),
        trial("prefixes::bounds_hold_when_sampled", prefixes::bounds_hold_when_sampled, &[]),
        trial("examples::views", examples::every_example_is_answered_truly, &[]),
        trial("examples::packet_sizes", examples::packet_sizes_are_exact, &[]),
        trial("rates::every_second", || rates::every_second_is_true(false), &[]),
        trial("rates::every_second_in_the_kernel", || rates::every_second_is_true(true), &[&root]),
        trial("rates::lag", rates::a_tap_that_lags_moves_no_packet_to_another_second, &[]),
        trial("rates::merged", rates::captures_of_one_time_are_merged, &[]),
        trial("rates::without_a_second", rates::a_packet_without_a_second_is_in_no_rate, &[]),
        trial("rates::parts", rates::parts_of_seconds_are_none, &[]),
        trial("midnight::silence", midnight::flows_seen_before_a_long_silence_are_forgotten, &[]),
        trial("printed::one_screen", printed::a_terminal_gets_one_screen, &[]),
        trial("printed::colours", printed::colours_are_for_terminals_that_want_them, &[]),
        trial("printed::pager", printed::long_output_goes_to_the_pager, &[]),
        trial("printed::progress", printed::the_progress_is_in_no_table, &[]),
        trial("command::packed", command::packed_captures_and_standard_input_are_read, &[]),
        trial("midnight::key", midnight::the_key_changes_with_the_first_window_of_the_day, &[]),
        trial("midnight::fleet", fleet::the_key_of_a_fleet_turns_at_midnight_on_all_routers, &[]),
        trial("midnight::steady_flows", || midnight::a_steady_flow_is_not_new_at_midnight(false), &[]),
        trial(
            "midnight::steady_flows_in_the_kernel",
            || midnight::a_steady_flow_is_not_new_at_midnight(true),
            &[&root],
        ),
        trial("midnight::silent_flows", midnight::flows_seen_before_midnight_are_known_until_they_are_forgotten, &[]),
        trial("clocks::alternating", clocks::alternating_times_make_few_reports, &[]),
        trial("clocks::one_in_the_future", clocks::one_time_in_the_future_disturbs_no_window, &[]),
        trial("clocks::strays", clocks::strays_disturb_no_window, &[]),
        trial("clocks::most_packets", clocks::most_packets_are_no_strays, &[]),
        trial("clocks::one_of_two_captures", clocks::a_stray_in_one_of_two_captures, &[]),
        trial("clocks::a_moment", clocks::a_moment_has_no_rate, &[]),
        trial("clocks::late_after_a_pause", clocks::a_late_packet_is_in_its_own_window_after_a_pause, &[]),
        trial("clocks::the_latest_of_all", clocks::the_latest_time_of_all_is_a_window, &[]),
        trial("clocks::without_packets", clocks::a_capture_without_packets_says_so, &[]),
        trial("top::a_key", top::a_key_leaves_the_terminal_as_it_was, &[]),
        trial("top::a_signal", top::a_signal_leaves_the_terminal_as_it_was, &[]),
        trial("command::several_files", command::several_files_are_one_measurement, &[]),
        trial("command::windows", command::windows_are_as_long_as_told, &[]),
        trial("command::a_missing_file", command::a_missing_file_is_a_mistake_before_anything_is_read, &[]),
        trial("command::a_broken_capture", command::a_broken_capture_is_reported_as_far_as_it_goes, &[]),
        trial("command::no_capture", command::a_file_that_is_no_capture_is_named, &[]),
        trial("command::version", command::the_version_names_the_features_and_the_object, &[]),
        trial("command::a_closed_output", command::a_closed_output_is_no_error, &[]),
        trial("command::tables", command::tables_are_for_people, &[]),
        trial("command::the_progress", command::the_progress_is_for_terminals, &[&program("script")]),
        trial(
            "command::without_privilege",
            command::without_privilege_only_the_kernel_is_refused,
            &[&root, &program("setpriv")],
        ),
    ];
    run(trials)
}
