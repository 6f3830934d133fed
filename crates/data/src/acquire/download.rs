//! One file from the net: in pieces if need be, never larger than announced, and whole only if its checksum is right.
//!
//! What has arrived is in `<file>.part`, and beside it in `<file>.version` the server's mark of the version that it belongs to. A
//! transfer that breaks is taken up where it stopped; a file that has changed meanwhile, or a server that does not serve pieces,
//! starts anew.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ureq::Agent;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED};
use ureq::http::{HeaderMap, HeaderName};

use crate::acquire::catalog::Official;
use crate::error::DataError;
use crate::read::source::{cannot_write, md5_of};

/// Bytes after which a transfer that breaks again and again has nevertheless made progress.
const PROGRESS: u64 = 1 << 20;

/// How long to wait, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Times that a transfer may break without progress.
    pub tries: u32,
    /// Pause before it is taken up again.
    pub pause: Duration,
    /// Time without a sign of the server after which it counts as broken.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 5, pause: Duration::from_secs(5), silence: Duration::from_secs(60) }
    }
}

/// What there is to tell meanwhile.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A file's transfer begins.
    Start {
        /// The file's address.
        url: &'a str,
        /// Bytes that are here from earlier.
        have: u64,
    },
    /// Bytes have arrived.
    Bytes {
        /// How many are here.
        have: u64,
        /// How many there will be, if the server says.
        of: Option<u64>,
    },
    /// The transfer broke; it is taken up again after a pause.
    Again {
        /// What happened.
        what: &'a str,
    },
    /// Everything is here; its checksum comes next.
    Whole {
        /// The file's name.
        name: &'a str,
        /// Whether there is an official checksum to compare with.
        checked: bool,
    },
    /// All files are here, and are unpacked and read.
    Unpacking,
}

/// Why a try ended.
enum Stop {
    /// Trying again is of no use.
    Final(DataError),
    /// It may go better next time.
    Broken(String),
}

/// Downloads `file` from `url` into a folder, of which it must have no more than `most` bytes; says where it is.
///
/// # Errors
/// If the server refuses it, the transfer keeps breaking, the file is not the official one, or the disk fails us. What has arrived
/// stays for the next time, except where it is wrong.
pub fn download(
    file: &Official<'_>,
    url: &str,
    into: &Path,
    most: u64,
    patience: Patience,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<PathBuf, DataError> {
    let beside = |ending: &str| into.join(format!("{}{ending}", file.name()));
    let whole = beside("");
    // from an earlier time
    if whole.is_file() && file.md5.map_or(Ok(true), |md5| Ok(md5_of(&whole)? == md5))? {
        return Ok(whole);
    }
    let mut transfer = Transfer {
        agent: agent(url, patience.silence),
        url,
        part: beside(".part"),
        version: beside(".version"),
        bytes: file.bytes,
        most,
        total: None,
    };
    report(Event::Start { url, have: transfer.have() });
    let (mut failures, mut reached) = (0, transfer.have());
    while let Err(stop) = transfer.once(report) {
        let what = match stop {
            Stop::Final(error) => return Err(error),
            Stop::Broken(what) => what,
        };
        let have = transfer.have();
        if have >= reached + PROGRESS {
            (failures, reached) = (0, have);
        }
        failures += 1;
        if failures >= patience.tries {
            return Err(DataError::Broken { url: url.to_owned(), what, have, of: transfer.total.or(file.bytes) });
        }
        report(Event::Again { what: &what });
        thread::sleep(patience.pause);
    }
    report(Event::Whole { name: file.name(), checked: file.md5.is_some() });
    if let Some(official) = file.md5 {
        let got = md5_of(&transfer.part)?;
        if got != official {
            transfer.forget();
            return Err(DataError::Checksum { url: url.to_owned(), got, official: official.to_owned() });
        }
    }
    fs::rename(&transfer.part, &whole).map_err(cannot_write(&whole))?;
    let _ = fs::remove_file(&transfer.version);
    Ok(whole)
}

fn agent(url: &str, silence: Duration) -> Agent {
    let config = Agent::config_builder()
        .user_agent(concat!("equipoise/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .http_status_as_error(false)
        // who starts with https is not led elsewhere
        .https_only(url.starts_with("https:"))
        .timeout_resolve(Some(silence))
        .timeout_connect(Some(silence))
        .timeout_recv_response(Some(silence))
        .timeout_per_read(Some(silence));
    // the environment's proxy is not for this machine's own servers
    let own = ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|start| url.starts_with(start));
    (if own { config.proxy(None) } else { config }).build().new_agent()
}

struct Transfer<'a> {
    agent: Agent,
    url: &'a str,
    part: PathBuf,
    version: PathBuf,
    /// The official size.
    bytes: Option<u64>,
    most: u64,
    /// The size that the server announced last.
    total: Option<u64>,
}

impl Transfer<'_> {
    /// Bytes that are here.
    fn have(&self) -> u64 {
        self.part.metadata().map_or(0, |meta| meta.len())
    }

    /// Removes what is here: it is of no use.
    fn forget(&self) {
        let _ = fs::remove_file(&self.part);
        let _ = fs::remove_file(&self.version);
    }

    /// One request, to the end of the file if it goes well.
    fn once(&mut self, report: &mut dyn FnMut(Event<'_>)) -> Result<(), Stop> {
        let mut have = self.have();
        // a piece of an unknown version cannot be continued
        let version = fs::read_to_string(&self.version).ok().filter(|text| have > 0 && usable(text));
        let mut request = self.agent.get(self.url);
        if let Some(version) = &version {
            request = request.header("Range", format!("bytes={have}-")).header("If-Range", version);
        }
        let response = request.call().map_err(|error| match error {
            // a certificate that is not good now will not be in a moment
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                Stop::Final(DataError::Connection { url: self.url.to_owned(), what: error.to_string() })
            }
            error => self.failed(error),
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let range = text(&headers, CONTENT_RANGE).unwrap_or_default();
        let announced = range.rsplit('/').next().and_then(|total| total.parse().ok());
        match (status, &version) {
            (200, _) => {
                self.total = text(&headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
                have = 0;
            }
            (206, Some(version)) => {
                self.total = announced;
                let same = version_of(&headers).is_none_or(|now| now == *version);
                if !same || !range.starts_with(&format!("bytes {have}-")) {
                    self.forget();
                    return Err(Stop::Broken("the server sent another piece than the one asked for".to_owned()));
                }
            }
            (416, Some(_)) if announced == Some(have) => {
                self.total = announced;
                return Ok(());
            }
            (416, Some(_)) => {
                self.forget();
                return Err(Stop::Broken("the file has become shorter on the server".to_owned()));
            }
            (408 | 429 | 500..=599, _) => return Err(Stop::Broken(format!("the server answers {status}"))),
            _ => return Err(Stop::Final(DataError::Status { url: self.url.to_owned(), status })),
        }
        let too_much = |most| Stop::Final(DataError::TooMuch { url: self.url.to_owned(), most });
        if let (Some(got), Some(want)) = (self.total, self.bytes)
            && got != want
        {
            return Err(Stop::Final(DataError::Announced { url: self.url.to_owned(), got, want }));
        }
        if self.total.is_some_and(|total| total > self.most) {
            return Err(too_much(self.most));
        }
        let limit = self.total.or(self.bytes).unwrap_or(self.most);
        let part = &self.part;
        let write = |error| Stop::Final(cannot_write(part)(error));
        let mut file = if have == 0 {
            let file = File::create(part).map_err(write)?;
            let version = version_of(&headers).unwrap_or_default();
            fs::write(&self.version, version).map_err(|e| Stop::Final(cannot_write(&self.version)(e)))?;
            file
        } else {
            File::options().append(true).open(part).map_err(write)?
        };
        let (mut body, mut buffer) = (response.into_body().into_reader(), vec![0; 1 << 16]);
        loop {
            report(Event::Bytes { have, of: self.total });
            let got = body.read(&mut buffer).map_err(|error| self.failed(error.into()))?;
            if got == 0 {
                break;
            }
            file.write_all(&buffer[..got]).map_err(write)?;
            have += got as u64;
            if have > limit {
                self.forget();
                return Err(too_much(limit));
            }
        }
        match self.total.or(self.bytes) {
            Some(total) if have < total => Err(Stop::Broken("the server closed the connection".to_owned())),
            _ => Ok(()),
        }
    }

    /// What an error of the transfer means for the next try.
    fn failed(&self, error: ureq::Error) -> Stop {
        use ureq::Error::{BadUri, Http, InvalidProxyUrl, Io, RequireHttpsOnly, Rustls, Tls, TooManyRedirects};
        let (url, what) = (self.url.to_owned(), error.to_string());
        match error {
            BadUri(_) | Http(_) | InvalidProxyUrl => Stop::Final(DataError::Address { url, what }),
            RequireHttpsOnly(_) | Rustls(_) | Tls(_) | TooManyRedirects => {
                Stop::Final(DataError::Connection { url, what })
            }
            Io(error) => Stop::Broken(error.to_string()),
            _ => Stop::Broken(what),
        }
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a mark can be sent to a server.
fn usable(version: &str) -> bool {
    !version.is_empty() && version.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// The server's mark of a file's version, if it has one that pieces can be asked by.
fn version_of(headers: &HeaderMap) -> Option<String> {
    let strong = text(headers, ETAG).filter(|tag| tag.starts_with('"'));
    strong.or_else(|| text(headers, LAST_MODIFIED)).filter(|version| usable(version)).map(str::to_owned)
}
