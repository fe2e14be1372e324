//! Actions whose name is the last segment of a path.

/// Azure's actions on a compute instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputeAction {
    Start,
    Stop,
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAction {
    Cordon,
    Uncordon,
    Drain,
    /// Removes the host together with everything that runs on it.
    GiveUp,
}
