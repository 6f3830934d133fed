//! TensorBoard event files: scalars and histograms, encoded without TensorFlow.
//!
//! A file is a sequence of records (`record`). Each holds a protobuf message `Event`, as in TensorBoard's
//! `tensorboard/compat/proto/event.proto`, with a `Summary` as in `summary.proto` beside it. A file's name must contain
//! `tfevents`; the files of a folder are one run, read in the order of their names. What a training epoch writes is in
//! `epoch`.

mod epoch;
mod record;
#[cfg(test)]
mod tests;

use equipoise_support::Message;

/// `SessionLog.START` of `event.proto`.
const SESSION_START: u64 = 1;

/// `DT_DOUBLE` of `types.proto`.
const DT_DOUBLE: u64 = 2;

/// Field numbers of `Event` in `event.proto`.
mod field {
    pub(super) const FILE_VERSION: u32 = 3;
    pub(super) const SUMMARY: u32 = 5;
    pub(super) const SESSION_LOG: u32 = 7;
}

/// Encodes events and holds their bytes until they are written to a file.
#[derive(Clone, Debug)]
pub struct EventWriter {
    bytes: Vec<u8>,
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistogramBin {
    /// Lower end.
    pub left: f64,
    /// Upper end.
    pub right: f64,
    /// Number of values in the bin.
    pub count: f64,
}

impl EventWriter {
    /// Starts a file whose first step is `step`, at a time in seconds since 1970.
    ///
    /// TensorBoard then drops this step and all later ones of the run's older files. One of its two readers ignores
    /// this mark and instead drops the values of a tag where its steps decrease, so steps must increase within a file.
    #[must_use]
    pub fn new(time: f64, step: u64) -> Self {
        let mut writer = Self { bytes: Vec::new() };
        // readers look for a session start only in files of version 2
        writer.event(time, 0, field::FILE_VERSION, b"brain.Event:2");
        writer.event(time, step, field::SESSION_LOG, &Message::default().integer(1, SESSION_START).finish());
        writer
    }

    /// Adds a value of one curve, in single precision. NaN and infinities are kept.
    pub fn scalar(&mut self, time: f64, step: u64, tag: &str, value: f64) {
        self.scalars(time, step, [(tag, value)]);
    }

    /// Adds the values of several curves at one step as a single record, each with its tag.
    pub fn scalars(&mut self, time: f64, step: u64, values: impl IntoIterator<Item = (impl AsRef<str>, f64)>) {
        let add = |summary: Message, (tag, value): (_, f64)| {
            // the older, shorter encoding, which TensorBoard converts as it reads
            let value = Message::text(1, &tag).float(2, value as f32);
            summary.message(1, &value)
        };
        let summary = values.into_iter().fold(Message::default(), add);
        self.event(time, step, field::SUMMARY, &summary.finish());
    }

    /// Adds a histogram. Bins are in ascending order and have finite ends; there may be none.
    pub fn histogram(&mut self, time: f64, step: u64, tag: &str, bins: &[HistogramBin]) {
        // the newer encoding, an n x 3 tensor: the older one has no left ends and is read in single precision
        let dimension = |size| Message::default().integer(1, size);
        let shape = Message::default().message(2, &dimension(bins.len() as u64)).message(2, &dimension(3));
        let numbers = bins.iter().flat_map(|bin| [bin.left, bin.right, bin.count]);
        let content: Vec<u8> = numbers.flat_map(f64::to_le_bytes).collect();
        let tensor = Message::default().integer(1, DT_DOUBLE).message(2, &shape).bytes(4, &content);
        let plugin = Message::text(1, "histograms");
        let metadata = Message::default().message(1, &plugin);
        let value = Message::text(1, tag).message(8, &tensor).message(9, &metadata);
        self.event(time, step, field::SUMMARY, &Message::default().message(1, &value).finish());
    }

    /// Returns the bytes added since the last call, to be appended to the file.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds a record with an `Event` that holds `body` in a field.
    fn event(&mut self, time: f64, step: u64, field: u32, body: &[u8]) {
        // steps are signed in the file
        let step = step.min(i64::MAX as u64);
        let event = Message::default().double(1, time).integer(2, step).bytes(field, body);
        record::append(&mut self.bytes, &event.finish());
    }
}
