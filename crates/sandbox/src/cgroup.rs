//! Cores, memory and processes of a node, by control groups.
