//! Downloads one file: resumed after an interruption, never larger than announced, and accepted only with the right checksum.
//!
//! What has arrived is in `<file>.part`; the server's version of the file (its ETag or date) is in `<file>.version`. An
//! interrupted transfer resumes where it stopped. It starts again if the file has changed meanwhile, or if the server does not
//! serve ranges.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ureq::Agent;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED};
use ureq::http::{HeaderMap, HeaderName};

use super::catalog::OfficialFile;
use crate::error::DataError;
use crate::read::source::{cannot_write, md5_of};

/// Bytes that must arrive between two interruptions to count as progress.
const PROGRESS: u64 = 1 << 20;

/// When a download is retried, and when it is given up.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts without progress before the download is given up.
    pub attempts: u32,
    /// Pause before the next attempt.
    pub pause: Duration,
    /// Time without an answer from the server after which an attempt has failed.
    pub timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 5, pause: Duration::from_secs(5), timeout: Duration::from_secs(60) }
    }
}

/// Progress of a download.
#[derive(Clone, Copy, Debug)]
pub enum DownloadEvent<'a> {
    /// The download of a file starts.
    Start {
        /// URL of the file.
        url: &'a str,
        /// Bytes that arrived earlier.
        have: u64,
    },
    /// Bytes have arrived.
    Bytes {
        /// Bytes that have arrived.
        have: u64,
        /// Size of the file, if the server announces it.
        total: Option<u64>,
    },
    /// The transfer was interrupted and resumes after a pause.
    Retry {
        /// What happened.
        what: &'a str,
    },
    /// The file is complete; its checksum is compared next.
    Complete {
        /// Name of the file.
        name: &'a str,
        /// Whether there is an official checksum.
        checked: bool,
    },
    /// All files are complete and are now unpacked and read.
    Unpacking,
}

/// Why an attempt failed.
enum AttemptError {
    /// Another attempt is useless.
    Final(DataError),
    /// Another attempt may succeed.
    Interrupted(String),
}

/// Downloads `file` from `url` into a folder and returns its path. It may have at most `limit` bytes.
///
/// # Errors
/// If the server refuses the file, the transfer fails too often, the file is not the official one, or the disk fails. What has
/// arrived stays for the next call, unless it is wrong.
pub fn download(
    file: &OfficialFile<'_>,
    url: &str,
    into: &Path,
    limit: u64,
    retry: RetryPolicy,
    report: &mut dyn FnMut(DownloadEvent<'_>),
) -> Result<PathBuf, DataError> {
    let with_suffix = |suffix: &str| into.join(format!("{}{suffix}", file.name()));
    let complete = with_suffix("");
    // downloaded earlier
    if complete.is_file() && file.md5.map_or(Ok(true), |md5| Ok(md5_of(&complete)? == md5))? {
        return Ok(complete);
    }
    let mut transfer = Transfer {
        agent: agent(url, retry.timeout),
        url,
        part: with_suffix(".part"),
        version: with_suffix(".version"),
        bytes: file.bytes,
        limit,
        total: None,
    };
    report(DownloadEvent::Start { url, have: transfer.have() });
    let (mut failures, mut reached) = (0, transfer.have());
    while let Err(error) = transfer.attempt(report) {
        let what = match error {
            AttemptError::Final(error) => return Err(error),
            AttemptError::Interrupted(what) => what,
        };
        let have = transfer.have();
        if have >= reached + PROGRESS {
            (failures, reached) = (0, have);
        }
        failures += 1;
        if failures >= retry.attempts {
            return Err(DataError::TransferFailed {
                url: url.to_owned(),
                what,
                have,
                total: transfer.total.or(file.bytes),
            });
        }
        report(DownloadEvent::Retry { what: &what });
        thread::sleep(retry.pause);
    }
    report(DownloadEvent::Complete { name: file.name(), checked: file.md5.is_some() });
    if let Some(official) = file.md5 {
        let got = md5_of(&transfer.part)?;
        if got != official {
            transfer.discard();
            return Err(DataError::Checksum { url: url.to_owned(), got, official: official.to_owned() });
        }
    }
    fs::rename(&transfer.part, &complete).map_err(cannot_write(&complete))?;
    let _ = fs::remove_file(&transfer.version);
    Ok(complete)
}

fn agent(url: &str, timeout: Duration) -> Agent {
    let config = Agent::config_builder()
        .user_agent(concat!("equipoise/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .http_status_as_error(false)
        // no redirect from https to http
        .https_only(url.starts_with("https:"))
        .timeout_resolve(Some(timeout))
        .timeout_connect(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .timeout_per_read(Some(timeout));
    // no proxy for servers on this machine
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|start| url.starts_with(start));
    (if local { config.proxy(None) } else { config }).build().new_agent()
}

/// A download in progress.
struct Transfer<'a> {
    agent: Agent,
    url: &'a str,
    part: PathBuf,
    version: PathBuf,
    /// Official size.
    bytes: Option<u64>,
    limit: u64,
    /// Size that the server announced last.
    total: Option<u64>,
}

impl Transfer<'_> {
    /// Bytes that have arrived.
    fn have(&self) -> u64 {
        self.part.metadata().map_or(0, |meta| meta.len())
    }

    /// Removes what has arrived, because it is useless.
    fn discard(&self) {
        let _ = fs::remove_file(&self.part);
        let _ = fs::remove_file(&self.version);
    }

    /// One request, up to the end of the file unless it is interrupted.
    fn attempt(&mut self, report: &mut dyn FnMut(DownloadEvent<'_>)) -> Result<(), AttemptError> {
        let have = self.have();
        // a part of an unknown version cannot be resumed
        let version = fs::read_to_string(&self.version).ok().filter(|text| have > 0 && usable(text));
        let mut request = self.agent.get(self.url);
        if let Some(version) = &version {
            request = request.header("Range", format!("bytes={have}-")).header("If-Range", version);
        }
        let response = request.call().map_err(|error| match error {
            // a bad certificate stays bad
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                AttemptError::Final(DataError::Connection { url: self.url.to_owned(), what: error.to_string() })
            }
            error => self.failed(error),
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let Some(start) = self.start(status, &headers, have, version.as_deref())? else { return Ok(()) };
        self.check_size()?;
        let file = self.open_part(start, &headers)?;
        self.receive(&mut response.into_body().into_reader(), file, start, report)
    }

    /// Where the body of an answer starts in the file; `None` if the file is complete. `version` is that of the `have` bytes
    /// after which a range was requested.
    fn start(
        &mut self,
        status: u16,
        headers: &HeaderMap,
        have: u64,
        version: Option<&str>,
    ) -> Result<Option<u64>, AttemptError> {
        let interrupted = |what: &str| Err(AttemptError::Interrupted(what.to_owned()));
        let range = text(headers, CONTENT_RANGE).unwrap_or_default();
        let announced = range.rsplit('/').next().and_then(|total| total.parse().ok());
        match (status, version) {
            (200, _) => {
                self.total = text(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
                Ok(Some(0))
            }
            (206, Some(version)) => {
                self.total = announced;
                let same = version_of(headers).is_none_or(|now| now == version);
                if !same || !range.starts_with(&format!("bytes {have}-")) {
                    self.discard();
                    return interrupted("the server sent another range than the one requested");
                }
                Ok(Some(have))
            }
            (416, Some(_)) if announced == Some(have) => {
                self.total = announced;
                Ok(None)
            }
            (416, Some(_)) => {
                self.discard();
                interrupted("the file on the server has become shorter")
            }
            (408 | 429 | 500..=599, _) => interrupted(&format!("the server answers {status}")),
            _ => Err(AttemptError::Final(DataError::Status { url: self.url.to_owned(), status })),
        }
    }

    /// Compares the announced size with the official one and the limit.
    fn check_size(&self) -> Result<(), AttemptError> {
        if let (Some(got), Some(want)) = (self.total, self.bytes)
            && got != want
        {
            return Err(AttemptError::Final(DataError::AnnouncedSize { url: self.url.to_owned(), got, want }));
        }
        if self.total.is_some_and(|total| total > self.limit) {
            return Err(self.too_many(self.limit));
        }
        Ok(())
    }

    fn too_many(&self, limit: u64) -> AttemptError {
        AttemptError::Final(DataError::TooManyBytes { url: self.url.to_owned(), limit })
    }

    /// Opens the part file: new with its version, or at its end.
    fn open_part(&self, start: u64, headers: &HeaderMap) -> Result<File, AttemptError> {
        let write = |error| AttemptError::Final(cannot_write(&self.part)(error));
        if start > 0 {
            return File::options().append(true).open(&self.part).map_err(write);
        }
        let file = File::create(&self.part).map_err(write)?;
        let version = version_of(headers).unwrap_or_default();
        fs::write(&self.version, version).map_err(|e| AttemptError::Final(cannot_write(&self.version)(e)))?;
        Ok(file)
    }

    /// Appends a body to the part file, which has `have` bytes.
    fn receive(
        &self,
        body: &mut dyn Read,
        mut file: File,
        mut have: u64,
        report: &mut dyn FnMut(DownloadEvent<'_>),
    ) -> Result<(), AttemptError> {
        let limit = self.total.or(self.bytes).unwrap_or(self.limit);
        let mut buffer = vec![0; 1 << 16];
        loop {
            report(DownloadEvent::Bytes { have, total: self.total });
            let got = body.read(&mut buffer).map_err(|error| self.failed(error.into()))?;
            if got == 0 {
                break;
            }
            file.write_all(&buffer[..got]).map_err(|error| AttemptError::Final(cannot_write(&self.part)(error)))?;
            have += got as u64;
            if have > limit {
                self.discard();
                return Err(self.too_many(limit));
            }
        }
        match self.total.or(self.bytes) {
            Some(total) if have < total => {
                Err(AttemptError::Interrupted("the server closed the connection".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Whether another attempt can help after this error.
    fn failed(&self, error: ureq::Error) -> AttemptError {
        use ureq::Error::{BadUri, Http, InvalidProxyUrl, Io, RequireHttpsOnly, Rustls, Tls, TooManyRedirects};
        let (url, what) = (self.url.to_owned(), error.to_string());
        match error {
            BadUri(_) | Http(_) | InvalidProxyUrl => AttemptError::Final(DataError::Address { url, what }),
            RequireHttpsOnly(_) | Rustls(_) | Tls(_) | TooManyRedirects => {
                AttemptError::Final(DataError::Connection { url, what })
            }
            Io(error) => AttemptError::Interrupted(error.to_string()),
            _ => AttemptError::Interrupted(what),
        }
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a version can be sent back to a server.
fn usable(version: &str) -> bool {
    !version.is_empty() && version.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// The server's version of a file, if ranges can be requested by it.
fn version_of(headers: &HeaderMap) -> Option<String> {
    let strong = text(headers, ETAG).filter(|tag| tag.starts_with('"'));
    strong.or_else(|| text(headers, LAST_MODIFIED)).filter(|version| usable(version)).map(str::to_owned)
}
