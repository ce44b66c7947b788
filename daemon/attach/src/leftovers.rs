//! Cleans up the classic tc hooks when weir starts.

use tracing::{debug, info, warn};

use super::hook::{FoundFilters, leftovers};

/// Removes filters that an earlier weir left at the tc hooks, for example because it was killed.
pub fn clean_hooks() {
    let FoundFilters { filters, unread } = match leftovers() {
        Ok(found) => found,
        // As a service, weir lacks this permission. There `weir detach` has already run after the earlier weir.
        Err(error) => return debug!("cannot look for filters of an earlier weir: {error}"),
    };
    if let Some((interface, error)) = unread {
        debug!(%interface, "cannot list the filters of its tc hook: {error}");
    }
    for leftover in filters {
        let (interface, direction) = (&leftover.interface, leftover.way.name());
        match (leftover.is_used, leftover.remove_if_left()) {
            (true, _) => {
                info!(%interface, direction, pid = leftover.owner, "another weir measures this interface, too");
            }
            (false, Ok(())) => info!(%interface, direction, "removed the filter of an earlier weir"),
            (false, Err(error)) => {
                warn!(%interface, direction, "cannot remove the filter of an earlier weir: {error}");
            }
        }
    }
}
