//! Memory of the machine and of this process, where the system reports it.

/// Peak memory of this process in MiB.
#[must_use]
pub fn peak_mb() -> Option<u64> {
    Some(kilobytes("/proc/self/status", "VmHWM:")?.div_ceil(1024))
}

/// Bytes of memory that are available.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    Some(kilobytes("/proc/meminfo", "MemAvailable:")? * 1024)
}

/// A value of a file of Linux's `/proc`.
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let table = std::fs::read_to_string(file).ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
