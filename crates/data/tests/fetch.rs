//! Fetching from a small server in the test, which behaves well or badly.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{cifar10_files, gzip, idx_images, idx_labels, tar_gz};
use equipoise_data::DataError;
use equipoise_data::acquire::catalog::{KnownDataset, OfficialFile};
use equipoise_data::acquire::download::{DownloadEvent, RetryPolicy};
use equipoise_data::acquire::fetch::{Fetch, Fetched};
use equipoise_testing::TempFolder;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    path: String,
    range: Option<String>,
    if_range: Option<String>,
}

/// Answers every request by a function of its number, from 0; one request per connection.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn new(answer: impl Fn(usize, &Request) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/files/", listener.local_addr().expect("an address"));
        let (seen, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (requests, stopped) = (seen.clone(), stop.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let mut stream = stream.expect("a connection");
                let Some(request) = receive(&mut stream) else { continue };
                let number = requests.lock().expect("no panic").len();
                requests.lock().expect("no panic").push(request.clone());
                // the client may have closed the connection
                let _ = stream.write_all(&answer(number, &request));
            }
        });
        Self { url, seen, stop, thread: Some(thread) }
    }

    fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("no panic").clone()
    }

    /// The requested ranges.
    fn ranges(&self) -> Vec<String> {
        self.seen().into_iter().map(|request| request.range.unwrap_or_default()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let address = self.url.trim_start_matches("http://").trim_end_matches("/files/");
        let _ = TcpStream::connect(address);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

fn receive(stream: &mut TcpStream) -> Option<Request> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("UTF-8");
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let path = head.split(' ').nth(1).expect("a path").to_owned();
    Some(Request { path, range: field("Range"), if_range: field("If-Range") })
}

fn response(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {status}\r\nConnection: close\r\n{fields}\r\n").as_bytes(), body].concat()
}

/// The complete file, whatever was requested.
fn complete(body: &[u8], tag: &str) -> Vec<u8> {
    response("200 OK", &format!("Content-Length: {}\r\nETag: \"{tag}\"\r\n", body.len()), body)
}

/// The answer of a correct server that supports ranges.
fn with_ranges(request: &Request, body: &[u8], tag: &str) -> Vec<u8> {
    let start =
        request.range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match start {
        Some(start) if request.if_range == Some(format!("\"{tag}\"")) => range_from(start, body, tag),
        _ => complete(body, tag),
    }
}

fn range_from(start: usize, body: &[u8], tag: &str) -> Vec<u8> {
    let all = body.len();
    if start >= all {
        return response("416 Range Not Satisfiable", &format!("Content-Range: bytes */{all}\r\n"), b"");
    }
    let range = format!("Content-Range: bytes {start}-{}/{all}\r\nETag: \"{tag}\"\r\n", all - 1);
    let length = format!("Content-Length: {}\r\n", all - start);
    response("206 Partial Content", &(range + &length), &body[start..])
}

/// An answer that is interrupted after this many bytes of its body.
fn interrupted(mut answer: Vec<u8>, bytes: usize) -> Vec<u8> {
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    answer.truncate(body + bytes);
    answer
}

/// A small CIFAR-10 with its checksum.
struct SmallCifar {
    archive: Vec<u8>,
    md5: String,
    root: TempFolder,
}

const NAME: &str = "cifar-10-binary.tar.gz";

impl SmallCifar {
    fn new() -> Self {
        let archive = tar_gz("cifar-10-batches-bin", &cifar10_files());
        Self { md5: format!("{:x}", md5::compute(&archive)), archive, root: TempFolder::new("fetch") }
    }

    /// Fetches the dataset from a server, without pauses.
    fn fetch(&self, server: &Server) -> Result<Fetched, DataError> {
        self.fetch_sized(server, None)
    }

    fn fetch_sized(&self, server: &Server, bytes: Option<u64>) -> Result<Fetched, DataError> {
        let file = OfficialFile { url: "https://example.org/cifar-10-binary.tar.gz", bytes, md5: Some(&self.md5) };
        request(&[file], self.root.path(), Some(&server.url)).run(&mut |_| {})
    }

    /// A file of the download folder.
    fn downloaded(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.root.path().join(".fetching-cifar10").join(name)).ok()
    }

    fn check(&self, fetched: Result<Fetched, DataError>) {
        let fetched = fetched.expect("good");
        assert_eq!(fetched.dataset.train.labels, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(fetched.path, self.root.path().join("cifar10"));
        let again = equipoise_data::load("cifar10", self.root.path(), &Default::default()).expect("in place");
        assert_eq!(again, fetched.dataset);
        assert_eq!(self.root.path().read_dir().expect("reads").count(), 1, "something was left behind");
    }

    fn check_not_in_place(&self) {
        assert!(!self.root.path().join("cifar10").exists());
    }
}

fn request<'a>(files: &'a [OfficialFile<'a>], root: &'a Path, from: Option<&'a str>) -> Fetch<'a> {
    let retry = RetryPolicy { attempts: 3, pause: Duration::ZERO, timeout: Duration::from_secs(20) };
    Fetch { files, from, retry, ..Fetch::new(KnownDataset::by_name("cifar10").expect("known"), root) }
}

#[test]
fn a_dataset_is_fetched_checked_and_put_in_place() {
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |_, request| with_ranges(request, &archive, "a"));
    set.check(set.fetch_sized(&server, Some(set.archive.len() as u64)));
    let request = Request { path: format!("/files/{NAME}"), range: None, if_range: None };
    assert_eq!(server.seen(), [request]);
    // it is not fetched again
    assert!(matches!(set.fetch(&server), Err(DataError::AlreadyInPlace { .. })));
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn kept_files_are_not_fetched_again() {
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |_, _| complete(&archive, "a"));
    let file = [OfficialFile { url: "https://example.org/cifar-10-binary.tar.gz", bytes: None, md5: Some(&set.md5) }];
    let keep = Fetch { keep: true, ..request(&file, set.root.path(), Some(&server.url)) };
    let mut events = Vec::new();
    let fetched = keep.run(&mut |event| events.push(format!("{event:?}"))).expect("good");
    let names = ["Start", "Bytes", "Complete", "Unpacking"];
    assert!(names.iter().all(|name| events.iter().any(|event| event.starts_with(name))), "{events:?}");
    assert_eq!(fetched.kept, Some(set.root.path().join(".fetching-cifar10")));
    assert_eq!(set.downloaded(NAME).as_ref(), Some(&set.archive));
    fs::remove_dir_all(fetched.path).expect("removes");
    set.check(set.fetch(&server));
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn an_interrupted_transfer_resumes() {
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |number, request| match number {
        0 => interrupted(complete(&archive, "a"), 100),
        1 => interrupted(with_ranges(request, &archive, "a"), 50),
        _ => with_ranges(request, &archive, "a"),
    });
    set.check(set.fetch(&server));
    assert_eq!(server.ranges(), ["", "bytes=100-", "bytes=150-"]);
    assert_eq!(server.seen()[2].if_range.as_deref(), Some("\"a\""));
}

#[test]
fn a_server_without_ranges_starts_again() {
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |number, _| match number {
        0 => interrupted(complete(&archive, "a"), 100),
        _ => complete(&archive, "a"),
    });
    set.check(set.fetch(&server));
    assert_eq!(server.ranges(), ["", "bytes=100-"]);
    // without a version no range is requested
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |number, _| {
        let length = format!("Content-Length: {}\r\nETag: W/\"weak\"\r\n", archive.len());
        let answer = response("200 OK", &length, &archive);
        if number == 0 { interrupted(answer, 100) } else { answer }
    });
    set.check(set.fetch(&server));
    assert_eq!(server.ranges(), ["", ""]);
}

#[test]
fn the_same_call_resumes_after_giving_up() {
    let set = SmallCifar::new();
    let (archive, length) = (set.archive.clone(), set.archive.len());
    let server = Server::new(move |number, request| match number {
        0..3 => interrupted(with_ranges(request, &archive, "a"), 70),
        _ => with_ranges(request, &archive, "a"),
    });
    let error = set.fetch(&server).expect_err("three times broken");
    assert!(matches!(error, DataError::TransferFailed { have: 210, .. }), "{error:?}");
    let said = format!("; 210 of {length} bytes have arrived; run the same command to resume");
    assert!(error.to_string().ends_with(&said), "{error}");
    set.check_not_in_place();
    assert_eq!(set.downloaded(&format!("{NAME}.part")).as_deref(), Some(&set.archive[..210]));
    set.check(set.fetch(&server));
    assert_eq!(server.ranges(), ["", "bytes=70-", "bytes=140-", "bytes=210-"]);
}

#[test]
fn refusals_and_temporary_errors() {
    let set = SmallCifar::new();
    let server = Server::new(|_, _| response("404 Not Found", "Content-Length: 0\r\n", b""));
    let error = set.fetch(&server).expect_err("not there");
    assert!(matches!(error, DataError::Status { status: 404, .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("{}{NAME}: the server answers 404", server.url));
    assert_eq!(server.seen().len(), 1, "a refusal is final");
    let archive = set.archive.clone();
    let server = Server::new(move |number, request| match number {
        0 => response("500 Internal Server Error", "Content-Length: 0\r\n", b""),
        1 => response("503 Service Unavailable", "Content-Length: 0\r\n", b""),
        _ => with_ranges(request, &archive, "a"),
    });
    set.check(set.fetch(&server));
    let set = SmallCifar::new();
    let server = Server::new(|_, _| response("500 Internal Server Error", "Content-Length: 0\r\n", b""));
    let error = set.fetch(&server).expect_err("never better");
    assert!(matches!(error, DataError::TransferFailed { have: 0, total: None, .. }), "{error:?}");
    let said = ": the server answers 500; nothing has arrived yet; run the same command to try again";
    assert!(error.to_string().ends_with(said), "{error}");
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn a_changed_file_starts_again() {
    for honest in [true, false] {
        let set = SmallCifar::new();
        let archive = set.archive.clone();
        let server = Server::new(move |number, request| match number {
            0 => interrupted(complete(&vec![7; archive.len() + 10], "old"), 100),
            // a server that ignores If-Range
            1 if !honest => range_from(100, &archive, "new"),
            _ => with_ranges(request, &archive, "new"),
        });
        set.check(set.fetch(&server));
        let ranges: &[&str] = if honest { &["", "bytes=100-"] } else { &["", "bytes=100-", ""] };
        assert_eq!(server.ranges(), ranges);
    }
}

#[test]
fn a_part_file_that_is_already_complete() {
    for (extra, requests) in [(0, 1), (5, 2)] {
        let set = SmallCifar::new();
        let gathering = set.root.path().join(".fetching-cifar10");
        fs::create_dir_all(&gathering).expect("a folder");
        let part = [set.archive.clone(), vec![0; extra]].concat();
        fs::write(gathering.join(format!("{NAME}.part")), part).expect("writes");
        fs::write(gathering.join(format!("{NAME}.version")), "\"a\"").expect("writes");
        let archive = set.archive.clone();
        let server = Server::new(move |_, request| with_ranges(request, &archive, "a"));
        set.check(set.fetch(&server));
        assert_eq!(server.seen().len(), requests);
    }
}

#[test]
fn servers_that_lie_about_the_length() {
    // more than it sends: the transfer is interrupted
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let long = format!("Content-Length: {}\r\nETag: \"a\"\r\n", archive.len() + 10);
    let server = Server::new(move |_, _| response("200 OK", &long, &archive));
    let error = set.fetch(&server).expect_err("ten bytes are missing");
    assert!(matches!(error, DataError::TransferFailed { .. }), "{error:?}");
    // another size than the official one: refused at once
    let set = SmallCifar::new();
    let size = set.archive.len() as u64;
    let error = set.fetch_sized(&server, Some(size)).expect_err("another file");
    assert!(
        matches!(error, DataError::AnnouncedSize { got, want, .. } if got == size + 10 && want == size),
        "{error:?}"
    );
    // less than the file has: the checksum differs
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |_, _| response("200 OK", "Content-Length: 100\r\nETag: \"a\"\r\n", &archive));
    let error = set.fetch(&server).expect_err("a hundred bytes");
    assert!(matches!(error, DataError::Checksum { .. }), "{error:?}");
}

/// A chunked body, whose length is not announced.
fn chunked(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let body = [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat();
    response(status, &format!("Transfer-Encoding: chunked\r\n{fields}"), &body)
}

#[test]
fn more_than_announced_is_refused() {
    // more than the official size
    let set = SmallCifar::new();
    let body = [set.archive.clone(), vec![0; 5]].concat();
    let server = Server::new(move |_, _| chunked("200 OK", "ETag: \"a\"\r\n", &body));
    let most = set.archive.len() as u64;
    let error = set.fetch_sized(&server, Some(most)).expect_err("five bytes more");
    assert!(matches!(error, DataError::TooManyBytes { limit: l, .. } if l == most), "{error:?}");
    assert_eq!(set.downloaded(&format!("{NAME}.part")), None);
    // more than the total of a range
    let archive = set.archive.clone();
    let server = Server::new(move |number, _| match number {
        0 => interrupted(complete(&archive, "a"), 100),
        _ => {
            let range = format!("Content-Range: bytes 100-{}/{}\r\n", archive.len() - 1, archive.len());
            chunked("206 Partial Content", &range, &archive)
        }
    });
    let error = set.fetch(&server).expect_err("a hundred bytes more");
    assert!(matches!(error, DataError::TooManyBytes { .. }), "{error:?}");
    // more than this dataset can have
    let server = Server::new(|_, _| response("200 OK", "Content-Length: 1000000000000\r\n", b""));
    let error = set.fetch(&server).expect_err("a terabyte");
    assert!(matches!(error, DataError::TooManyBytes { .. }), "{error:?}");
    set.check_not_in_place();
    // an unannounced length is fine if the file is right
    let body = set.archive.clone();
    let server = Server::new(move |_, _| chunked("200 OK", "", &body));
    set.check(set.fetch(&server));
}

#[test]
fn a_wrong_file_is_removed() {
    let set = SmallCifar::new();
    let server = Server::new(|_, _| complete(b"something else", "a"));
    let error = set.fetch(&server).expect_err("another file");
    let sum = md5::compute(b"something else");
    let sums = format!("its MD5 sum is {sum:x}, but the official one is {}", set.md5);
    assert!(matches!(error, DataError::Checksum { .. }) && error.to_string().contains(&sums), "{error}");
    set.check_not_in_place();
    assert_eq!((set.downloaded(NAME), set.downloaded(&format!("{NAME}.part"))), (None, None));
    // a wrong file from an earlier call is replaced
    fs::write(set.root.path().join(".fetching-cifar10").join(NAME), b"old").expect("writes");
    let archive = set.archive.clone();
    set.check(set.fetch(&Server::new(move |_, _| complete(&archive, "a"))));
}

#[test]
fn datasets_of_several_files() {
    let root = TempFolder::new("fetch");
    let files = [
        ("train-images-idx3-ubyte.gz", gzip(&idx_images(3, 4, 5, 60))),
        ("train-labels-idx1-ubyte.gz", gzip(&idx_labels(&[0, 2, 1]))),
        ("t10k-images-idx3-ubyte.gz", gzip(&idx_images(1, 4, 5, 20))),
        ("t10k-labels-idx1-ubyte.gz", gzip(&idx_labels(&[2]))),
    ];
    let sums = files.clone().map(|(_, bytes)| format!("{:x}", md5::compute(bytes)));
    let urls = files.clone().map(|(name, _)| format!("https://example.org/{name}"));
    // the last one has no checksum
    let official = [0, 1, 2, 3].map(|i| OfficialFile { url: &urls[i], bytes: None, md5: (i < 3).then_some(&sums[i]) });
    let server = Server::new(move |number, request| {
        let (_, bytes) = files.iter().find(|(name, _)| request.path == format!("/files/{name}")).expect("official");
        if number == 2 { response("410 Gone", "Content-Length: 0\r\n", b"") } else { complete(bytes, "a") }
    });
    let mnist = KnownDataset::by_name("mnist").expect("known");
    let fetch = Fetch { known: mnist, ..request(&official, root.path(), Some(&server.url)) };
    let error = fetch.run(&mut |_| {}).expect_err("the third one fails");
    assert!(matches!(error, DataError::Status { status: 410, .. }), "{error:?}");
    let mut unchecked = Vec::new();
    let fetched = fetch.run(&mut |event| {
        if let DownloadEvent::Complete { name, checked: false } = event {
            unchecked.push(name.to_owned());
        }
    });
    let set = fetched.expect("good").dataset;
    assert_eq!((set.train.labels, set.test.labels), (vec![0, 2, 1], vec![2]));
    assert_eq!(unchecked, ["t10k-labels-idx1-ubyte.gz"]);
    let asked: Vec<_> = server.seen().into_iter().map(|request| request.path).collect();
    let names = ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-images-idx3", "t10k-labels-idx1"];
    assert_eq!(asked, names.map(|name| format!("/files/{name}-ubyte.gz")));
    assert_eq!(root.path().read_dir().expect("reads").count(), 1, "something was left behind");
}

#[test]
fn one_process_at_a_time() {
    let set = SmallCifar::new();
    let gathering = set.root.path().join(".fetching-cifar10");
    fs::create_dir_all(&gathering).expect("a folder");
    let lock = gathering.join("lock");
    fs::write(&lock, "4711\n").expect("writes");
    let archive = set.archive.clone();
    let server = Server::new(move |_, request| with_ranges(request, &archive, "a"));
    let held = fs::File::open(&lock).expect("opens");
    held.lock().expect("locks");
    let error = set.fetch(&server).expect_err("somebody is at it");
    assert!(matches!(&error, DataError::Busy { owner: Some(owner), .. } if owner.pid == 4711), "{error:?}");
    assert!(error.to_string().ends_with("another process is working there (process 4711)"), "{error}");
    assert!(server.seen().is_empty());
    // the lock file of a process that has ended does not matter
    drop(held);
    set.check(set.fetch(&server));
}

#[test]
fn redirects_are_followed() {
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |number, request| match (number, request.path.starts_with("/files/")) {
        (_, true) => response("302 Found", &format!("Location: /moved/{NAME}\r\nContent-Length: 0\r\n"), b""),
        (1, false) => interrupted(complete(&archive, "a"), 100),
        _ => with_ranges(request, &archive, "a"),
    });
    set.check(set.fetch(&server));
    assert_eq!(server.seen().len(), 4);
    assert_eq!(server.ranges()[3], "bytes=100-");
    let server = Server::new(|_, request| {
        response("302 Found", &format!("Location: {}x\r\nContent-Length: 0\r\n", request.path), b"")
    });
    let error = SmallCifar::new().fetch(&server).expect_err("in circles");
    assert!(matches!(error, DataError::Connection { .. }), "{error:?}");
}

/// A server that accepts and never answers, and one that does not exist.
#[test]
fn silence_is_an_interruption() {
    let root = TempFolder::new("fetch");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let file = [OfficialFile { url: "https://example.org/x.tar.gz", bytes: Some(5), md5: None }];
    let retry = RetryPolicy { attempts: 2, pause: Duration::ZERO, timeout: Duration::from_millis(50) };
    let fetch = Fetch { retry, ..request(&file, root.path(), Some(&url)) };
    let error = fetch.run(&mut |_| {}).expect_err("silent");
    assert!(
        matches!(&error, DataError::TransferFailed { what, total: Some(5), .. } if what.contains("timeout")),
        "{error:?}"
    );
    drop(silent);
    let error = fetch.run(&mut |_| {}).expect_err("gone");
    assert!(matches!(error, DataError::TransferFailed { .. }), "{error:?}");
}

#[test]
fn urls_of_mirrors() {
    let set = SmallCifar::new();
    let archive = set.archive.clone();
    let server = Server::new(move |_, request| match request.path.starts_with("/files/cifar") {
        true => complete(&archive, "a"),
        false => response("404 Not Found", "Content-Length: 0\r\n", b""),
    });
    let file = [OfficialFile { url: "https://example.org/cifar-10-binary.tar.gz", bytes: None, md5: Some(&set.md5) }];
    for from in [server.url.clone(), server.url.trim_end_matches('/').to_owned(), format!("{}{NAME}", server.url)] {
        let fetched = request(&file, set.root.path(), Some(&from)).run(&mut |_| {}).expect("good");
        fs::remove_dir_all(fetched.path).expect("removes");
    }
    for from in
        ["", "mirror", "ftp://mirror/", "http://", "https:///x", "http://mirror/?a=b", "http://a b/", "http://[/"]
    {
        let error = request(&file, set.root.path(), Some(from)).run(&mut |_| {}).expect_err("no address");
        assert!(matches!(error, DataError::Address { .. }), "{from}: {error:?}");
    }
}

#[test]
fn what_cannot_be_fetched_or_written() {
    let here = TempFolder::new("fetch");
    let imagenet = KnownDataset::by_name("imagenet").expect("known");
    let error = Fetch::new(imagenet, here.path()).run(&mut |_| {}).expect_err("a login is needed");
    assert!(matches!(error, DataError::NotPublished { name: "imagenet" }), "{error:?}");
    assert_eq!(here.path().read_dir().expect("reads").count(), 0);
    // a data folder that is a file
    let root = here.path().join("file");
    fs::write(&root, b"").expect("writes");
    let file = [OfficialFile { url: "https://example.org/x.tar.gz", bytes: None, md5: None }];
    let error = request(&file, &root, Some("http://127.0.0.1:1/")).run(&mut |_| {}).expect_err("no folder");
    assert!(matches!(error, DataError::Write { .. }), "{error:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let set = SmallCifar::new();
    let gathering = set.root.path().join(".fetching-cifar10");
    fs::create_dir_all(&gathering).expect("a folder");
    std::os::unix::fs::symlink("/dev/full", gathering.join(format!("{NAME}.part"))).expect("links");
    let archive = set.archive.clone();
    let server = Server::new(move |_, _| complete(&archive, "a"));
    let error = set.fetch(&server).expect_err("no room");
    assert!(matches!(&error, DataError::Write { source, .. } if source.raw_os_error() == Some(28)), "{error:?}");
    assert_eq!(server.seen().len(), 1, "trying again makes no room");
}

/// The catalog of known datasets is well-formed.
#[test]
fn official_files() {
    for known in equipoise_data::acquire::catalog::KNOWN_DATASETS {
        for file in known.files {
            assert!(file.url.starts_with("http") && !file.name().is_empty(), "{file:?}");
            let hexadecimal = |md5: &str| md5.len() == 32 && md5.bytes().all(|b| b"0123456789abcdef".contains(&b));
            assert!(file.md5.is_none_or(hexadecimal), "{file:?}");
        }
        let mut names: Vec<_> = known.files.iter().map(OfficialFile::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), known.files.len());
    }
}
