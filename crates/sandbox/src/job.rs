//! One job inside a node.
