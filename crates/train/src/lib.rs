//! Training runs that can be trusted: what is trained is described once, every step can be repeated, nothing is lost.

