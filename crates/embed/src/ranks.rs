//! Processes that compute the features of a dataset together.

use serde_json::{Value, json};

use crate::backbone::Pooling;
use crate::error::EmbedError;
use crate::file::PartialFile;

/// The processes that share out the images. All make the same calls in the same order.
pub trait Ranks {
    /// Which of the processes this is. Rank 0 writes the file.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn size(&self) -> usize;

    /// The machine that this process runs on, for messages; empty if it is not known.
    fn node(&self) -> String;

    /// The messages of all processes, by rank.
    ///
    /// # Errors
    /// What the transport says if a process cannot be reached.
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, String>;
}

/// The features of a batch.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) width: usize,
    pub(crate) pooling: Option<Pooling>,
    /// Positions of images that cannot be read, with the reasons.
    pub(crate) failed: Vec<(usize, String)>,
    pub(crate) features: Vec<f32>,
}

/// All ways of pooling, in the order of their numbers in a message.
const POOLINGS: [Pooling; 3] = [Pooling::Rows, Pooling::Average, Pooling::FirstToken];

impl Part {
    /// The part as a message: a line of JSON, then the values.
    fn to_bytes(&self) -> Vec<u8> {
        let pooling = self.pooling.and_then(|own| POOLINGS.iter().position(|pooling| *pooling == own));
        let line = json!({"width": self.width, "pooling": pooling, "failed": self.failed});
        let mut bytes = format!("{line}\n").into_bytes();
        bytes.extend(self.features.iter().flat_map(|x| x.to_le_bytes()));
        bytes
    }

    /// The part in a message; `None` if it is something else.
    fn from_bytes(line: &Value, values: &[u8]) -> Option<Self> {
        let pooling = line["pooling"].as_u64().and_then(|number| POOLINGS.get(number as usize).copied());
        let failed = serde_json::from_value(line["failed"].clone()).ok()?;
        let features = values.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Some(Self { width: line["width"].as_u64()? as usize, pooling, failed, features })
    }
}

/// The parts of all processes, by rank.
///
/// # Errors
/// If any process failed: rank 0 has its own error, all others that of the first process that failed.
pub(crate) fn exchange_parts(ranks: &mut dyn Ranks, own: Result<Part, EmbedError>) -> Result<Vec<Part>, EmbedError> {
    if ranks.size() == 1 {
        return own.map(|own| vec![own]);
    }
    let message = match &own {
        Ok(part) => part.to_bytes(),
        Err(error) => failure(error, ranks),
    };
    let messages = exchange(ranks, own, &message)?;
    let broken = |rank| EmbedError::Rank { rank, what: "its message cannot be read".to_owned() };
    let parts = messages.iter().enumerate();
    parts.map(|(rank, (line, values))| Part::from_bytes(line, values).ok_or_else(|| broken(rank))).collect()
}

/// The file of rank 0, and the number of rows that an interrupted run had computed. All processes have the same images and model,
/// or this fails.
pub(crate) fn agree_on_start(
    ranks: &mut dyn Ranks,
    file: Result<Option<PartialFile>, EmbedError>,
    key: u64,
) -> Result<(Option<PartialFile>, usize), EmbedError> {
    let rows = |file: &Option<PartialFile>| file.as_ref().map_or(0, PartialFile::rows);
    if ranks.size() == 1 {
        let file = file?;
        let rows = rows(&file);
        return Ok((file, rows));
    }
    let (message, file) = match file {
        Ok(file) => (
            format!("{}\n", json!({"key": key.to_string(), "rows": rows(&file), "place": place(ranks)})).into_bytes(),
            Ok(file),
        ),
        Err(error) => (failure(&error, ranks), Err(error)),
    };
    let (own, file) = match file {
        Ok(file) => (Ok(()), file),
        Err(error) => (Err(error), None),
    };
    let messages = exchange(ranks, own, &message)?;
    let differs = |rank: &usize| messages[*rank].0["key"] != messages[0].0["key"];
    if let Some(rank) = (1..messages.len()).find(differs) {
        let place = messages[rank].0["place"].as_str().unwrap_or_default();
        let what = format!("it has another model, other images or other options than rank 0{place}");
        return Err(EmbedError::Rank { rank, what });
    }
    let rows = messages[0].0["rows"].as_u64().unwrap_or(0) as usize;
    Ok((file, rows))
}

/// What a process says that failed.
fn failure(error: &EmbedError, ranks: &dyn Ranks) -> Vec<u8> {
    format!("{}\n", json!({"error": format!("{error}{}", place(ranks))})).into_bytes()
}

/// The machine of a process, at the end of what rank 0 says of it.
fn place(ranks: &dyn Ranks) -> String {
    match ranks.node() {
        node if node.is_empty() => node,
        node => format!(" (on {node})"),
    }
}

/// The messages of all processes, as their first line and the rest, if none failed.
fn exchange<T>(
    ranks: &mut dyn Ranks,
    own: Result<T, EmbedError>,
    message: &[u8],
) -> Result<Vec<(Value, Vec<u8>)>, EmbedError> {
    let messages = ranks.exchange(message).map_err(|what| EmbedError::Unreachable { what })?;
    let parse = |message: &Vec<u8>| {
        let end = message.iter().position(|byte| *byte == b'\n').unwrap_or(message.len());
        let line = serde_json::from_slice(&message[..end]).unwrap_or(Value::Null);
        (line, message[message.len().min(end + 1)..].to_vec())
    };
    let messages: Vec<(Value, Vec<u8>)> = messages.iter().map(parse).collect();
    let failed = messages.iter().enumerate().find_map(|(rank, (line, _))| Some((rank, line["error"].as_str()?)));
    match (own, failed) {
        (Err(error), _) if ranks.rank() == 0 => Err(error),
        (_, Some((rank, what))) => Err(EmbedError::Rank { rank, what: what.to_owned() }),
        _ => Ok(messages),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that always hears the same from the others.
    struct Heard {
        rank: usize,
        others: Vec<Vec<u8>>,
    }

    impl Ranks for Heard {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.others.len()
        }

        fn node(&self) -> String {
            format!("node{}", self.rank)
        }

        fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
            let mut all = self.others.clone();
            all[self.rank] = own.to_vec();
            Ok(all)
        }
    }

    fn part(value: f32) -> Part {
        Part {
            width: 2,
            pooling: Some(Pooling::Average),
            failed: vec![(1, "cut off".to_owned())],
            features: vec![value; 4],
        }
    }

    #[test]
    fn parts_travel_bit_for_bit() {
        let mut ranks =
            Heard { rank: 0, others: vec![Vec::new(), part(f32::NAN).to_bytes(), Part::default().to_bytes()] };
        let parts = exchange_parts(&mut ranks, Ok(part(0.1))).expect("none failed");
        let bits = |part: &Part| part.features.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!([bits(&parts[0]), bits(&parts[1])], [0.1f32, f32::NAN].map(|value| vec![value.to_bits(); 4]));
        assert_eq!((parts[1].width, parts[1].pooling), (2, Some(Pooling::Average)));
        assert_eq!(parts[1].failed, [(1, "cut off".to_owned())]);
        assert!(parts[2].features.is_empty() && parts[2].pooling.is_none());
    }

    #[test]
    fn a_failure_of_one_ends_all() {
        let model = || EmbedError::Model { path: "m.onnx".into(), what: "no".to_owned() };
        let second = Heard { rank: 1, others: Vec::new() };
        let mut ranks = Heard { rank: 0, others: vec![Vec::new(), failure(&model(), &second)] };
        let error = exchange_parts(&mut ranks, Ok(part(1.0))).expect_err("rank 1 failed");
        assert_eq!(error.to_string(), "rank 1: m.onnx: no (on node1)");
        let error = exchange_parts(&mut ranks, Err(model())).expect_err("its own");
        assert_eq!(error.to_string(), "m.onnx: no");
        let other = format!("{}\n", json!({"key": "8", "rows": 0, "place": place(&second)})).into_bytes();
        let mut ranks = Heard { rank: 0, others: vec![Vec::new(), other] };
        let error = agree_on_start(&mut ranks, Ok(None), 7).err().expect("other images");
        let said = "rank 1: it has another model, other images or other options than rank 0 (on node1)";
        assert_eq!(error.to_string(), said);
    }
}
