//! Short lists that have failed once.
