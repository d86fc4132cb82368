//! Short lists of operations, written by hand or found by a random run that failed.
