//! A model that turns images into features.

use std::path::{Path, PathBuf};

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{Outlet, TensorElementType, TensorRef, ValueType};

use crate::error::EmbedError;

/// Names of outputs that hold features, best first.
const FEATURE_NAMES: [&str; 7] =
    ["features", "image_embeds", "embeddings", "embedding", "pooler_output", "pooled", "last_hidden_state"];

/// How an output becomes one row of features per image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The output has one row per image.
    Rows,
    /// The mean over the positions of a feature map, images x channels x height x width.
    Average,
    /// The first token of a sequence, images x tokens x features: the class token of vision transformers.
    FirstToken,
}

/// The order of the dimensions of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

/// An ONNX model, ready to run.
pub struct Backbone {
    path: PathBuf,
    session: Session,
    input: Input,
    output: usize,
    /// The session's environment, which must live as long.
    _environment: Environment,
}

/// What a model's input looks like.
#[derive(Clone, Debug, PartialEq)]
struct Input {
    name: String,
    layout: Layout,
    channels: usize,
    side: Option<u32>,
    /// Number of images, if it is fixed.
    batch: Option<usize>,
}

impl Backbone {
    /// Loads onnxruntime and a model. `output` is the name of the output to use; by default the only one, or one whose name
    /// says that it holds features.
    ///
    /// # Errors
    /// If the library or the model cannot be used.
    pub fn open(path: &Path, library: &Path, output: Option<&str>, threads: usize) -> Result<Self, EmbedError> {
        let refuse = |what: String| EmbedError::Model { path: path.to_owned(), what };
        if !path.is_file() {
            return Err(refuse("there is no such file".to_owned()));
        }
        let unusable = |what: String| EmbedError::Library { path: library.to_owned(), what };
        let environment = ort::init_from(library).map_err(|error| unusable(error.to_string()))?;
        let environment = environment.with_telemetry(false).build().map_err(|error| unusable(error.to_string()))?;
        let session = session(path, &environment, threads).map_err(|what| refuse(load_error(&what)))?;
        let input = input(session.inputs()).map_err(refuse)?;
        let names: Vec<&str> = session.outputs().iter().map(Outlet::name).collect();
        let output = choose_output(&names, output).map_err(refuse)?;
        Ok(Self { path: path.to_owned(), session, input, output, _environment: environment })
    }

    /// Number of channels of an image: 1 or 3.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.input.channels
    }

    /// Height and width of an image, if they are fixed.
    #[must_use]
    pub fn side(&self) -> Option<u32> {
        self.input.side
    }

    /// Number of images per call, if it is fixed.
    #[must_use]
    pub fn batch_size(&self) -> Option<usize> {
        self.input.batch
    }

    /// Name of the output that is used.
    #[must_use]
    pub fn output(&self) -> &str {
        self.session.outputs()[self.output].name()
    }

    /// The model's metadata.
    #[must_use]
    pub fn metadata(&self) -> Vec<(String, String)> {
        let Ok(metadata) = self.session.metadata() else { return Vec::new() };
        let keys = metadata.custom_keys().unwrap_or_default();
        keys.into_iter().filter_map(|key| Some((key.clone(), metadata.custom(&key)?))).collect()
    }

    /// Appends the features of images to `features` and returns their number per image, with how they were pooled.
    ///
    /// # Shapes
    /// `images` is n x channels x side x side.
    ///
    /// # Errors
    /// If the model cannot be run on the images, or returns something else than features.
    pub fn features(
        &mut self,
        images: &[f32],
        side: u32,
        features: &mut Vec<f32>,
    ) -> Result<(usize, Pooling), EmbedError> {
        let Input { name, layout, channels, batch, .. } = self.input.clone();
        let (path, side) = (self.path.clone(), side as usize);
        let refuse = |what: String| EmbedError::Model { path: path.clone(), what };
        let stride = channels * side * side;
        let number = images.len() / stride;
        let mut values = images.to_vec();
        if layout == Layout::ChannelsLast {
            values = images.chunks_exact(stride).flat_map(|image| channels_last(image, channels)).collect();
        }
        // a model with a fixed number of images gets black ones at the end
        let rows = batch.unwrap_or(number).max(number);
        values.resize(rows * stride, 0.0);
        let shape = match layout {
            Layout::ChannelsFirst => [rows, channels, side, side],
            Layout::ChannelsLast => [rows, side, side, channels],
        };
        let failed = |error: ort::Error| refuse(first_line(&error.to_string()));
        let tensor = TensorRef::from_array_view((shape, values.as_slice())).map_err(failed)?;
        let outputs = self.session.run(ort::inputs![name.as_str() => tensor]).map_err(failed)?;
        let (shape, data) = outputs[self.output]
            .try_extract_tensor::<f32>()
            .map_err(|_| refuse("its output does not hold float32 values".to_owned()))?;
        let shape: Vec<usize> = shape.iter().map(|side| usize::try_from(*side).unwrap_or(0)).collect();
        pool(&shape, data, rows, number, features).map_err(refuse)
    }
}

fn session(path: &Path, environment: &Environment, threads: usize) -> Result<Session, String> {
    let builder = Session::builder(environment).map_err(|error| error.to_string())?;
    let builder = builder.with_intra_threads(threads).map_err(|error| error.to_string())?;
    let builder = builder.with_optimization_level(GraphOptimizationLevel::All).map_err(|error| error.to_string())?;
    let mut builder = builder.with_deterministic_compute(true).map_err(|error| error.to_string())?;
    builder.commit_from_file(path).map_err(|error| error.to_string())
}

/// Why a model cannot be loaded, from onnxruntime's message, which names its own source files.
fn load_error(text: &str) -> String {
    let number = |after: &str| {
        let rest = text.split_once(after)?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())
    };
    if text.contains("Protobuf parsing failed") || text.contains("ModelProto does not have a graph") {
        return "it is not an ONNX model, or not a complete one".to_owned();
    }
    if let (Some(has), Some(known)) = (number(". Opset "), number("is till opset ")) {
        return format!(
            "it uses operators of opset {has}, and this onnxruntime knows them up to opset {known}; use a newer onnxruntime"
        );
    }
    let reason = text.split_once(" failed:").map_or(text, |(_, reason)| reason);
    format!("onnxruntime cannot load it: {}", first_line(reason))
}

/// onnxruntime's messages may have many lines.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Checks that a model takes images and nothing else.
fn input(inputs: &[Outlet]) -> Result<Input, String> {
    let [input] = inputs else {
        let names: Vec<&str> = inputs.iter().map(Outlet::name).collect();
        let names = names.join(", ");
        return Err(format!("it has {} inputs ({names}); export the image encoder alone", inputs.len()));
    };
    let name = input.name();
    let ValueType::Tensor { ty, shape, .. } = input.dtype() else {
        return Err(format!("its input '{name}' is not a tensor"));
    };
    if *ty != TensorElementType::Float32 {
        return Err(format!("its input '{name}' has type {ty}; it must be float32"));
    }
    let shape: Vec<i64> = shape.iter().copied().collect();
    describe(name, &shape)
}

/// The input from its shape, in which -1 is any size.
fn describe(name: &str, shape: &[i64]) -> Result<Input, String> {
    let &[batch, a, b, c] = shape else {
        return Err(format!("its input '{name}' has shape {shape:?}; it must be images x channels x height x width"));
    };
    let is_channels = |side: i64| side == 1 || side == 3;
    let (layout, channels, [height, width]) = match (a, c) {
        (a, c) if is_channels(c) && !is_channels(a) => (Layout::ChannelsLast, c, [a, b]),
        (a, _) if is_channels(a) => (Layout::ChannelsFirst, a, [b, c]),
        // nothing is known: PyTorch's order
        (-1, -1) => (Layout::ChannelsFirst, 3, [b, c]),
        _ => return Err(format!("its input '{name}' has shape {shape:?}; images have 1 or 3 channels")),
    };
    let side = match (u32::try_from(height), u32::try_from(width)) {
        (Ok(height), Ok(width)) if height != width => {
            return Err(format!("its input '{name}' is {height} x {width}; it must be square"));
        }
        (Ok(side), _) | (_, Ok(side)) => Some(side),
        _ => None,
    };
    let batch = usize::try_from(batch).ok().filter(|batch| *batch > 0);
    Ok(Input { name: name.to_owned(), layout, channels: channels as usize, side, batch })
}

fn choose_output(names: &[&str], wanted: Option<&str>) -> Result<usize, String> {
    let all = || names.join(", ");
    match wanted {
        Some(wanted) => {
            let found = names.iter().position(|name| *name == wanted);
            found.ok_or_else(|| format!("it has no output '{wanted}'; its outputs are {}", all()))
        }
        None if names.len() == 1 => Ok(0),
        None => {
            let found = FEATURE_NAMES.iter().find_map(|known| names.iter().position(|name| name == known));
            found.ok_or_else(|| format!("it has several outputs; choose one with --tensor: {}", all()))
        }
    }
}

/// Pixel after pixel from channel after channel.
fn channels_last(image: &[f32], channels: usize) -> Vec<f32> {
    let plane = image.len() / channels;
    (0..image.len()).map(|i| image[i % channels * plane + i / channels]).collect()
}

/// Appends the features of the first `number` of `rows` images.
fn pool(
    shape: &[usize],
    data: &[f32],
    rows: usize,
    number: usize,
    features: &mut Vec<f32>,
) -> Result<(usize, Pooling), String> {
    let bad = || Err(format!("its output has shape {shape:?} for {rows} images; features have a row per image"));
    if shape.first() != Some(&rows) || data.is_empty() {
        return bad();
    }
    let stride = data.len() / rows;
    let images = data.chunks_exact(stride).take(number);
    let (width, pooling) = match *shape {
        [_, width] => (width, Pooling::Rows),
        [_, width, 1, 1] | [_, 1, 1, width] => (width, Pooling::Rows),
        [_, _, width] => (width, Pooling::FirstToken),
        [_, channels, _, _] => (channels, Pooling::Average),
        _ => return bad(),
    };
    match pooling {
        Pooling::Rows => images.for_each(|image| features.extend(image)),
        Pooling::FirstToken => images.for_each(|image| features.extend(&image[..width])),
        Pooling::Average => {
            let positions = stride / width;
            let mean = |plane: &[f32]| (plane.iter().map(|x| f64::from(*x)).sum::<f64>() / positions as f64) as f32;
            images.for_each(|image| features.extend(image.chunks_exact(positions).map(mean)));
        }
    }
    Ok((width, pooling))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_cannot_be_loaded() {
        let damaged = load_error("Load model from x.onnx failed:Protobuf parsing failed.");
        assert_eq!(damaged, "it is not an ONNX model, or not a complete one");
        let new = "Load model from x.onnx failed:/a/b.h:46 void f(int) ONNX Runtime only *guarantees* support for official opset versions. \
                   Opset 99 is under development. Current official support for domain ai.onnx is till opset 26.";
        assert!(
            load_error(new)
                .starts_with("it uses operators of opset 99, and this onnxruntime knows them up to opset 26")
        );
        let other =
            load_error("Load model from x.onnx failed:Fatal error: my:Op(-1) is not a registered function/op\nmore");
        assert_eq!(other, "onnxruntime cannot load it: Fatal error: my:Op(-1) is not a registered function/op");
    }

    #[test]
    fn shapes_of_inputs() {
        let torch = describe("x", &[-1, 3, 224, 224]).expect("valid");
        assert_eq!((torch.layout, torch.side, torch.batch), (Layout::ChannelsFirst, Some(224), None));
        let tensorflow = describe("x", &[1, 96, 96, 3]).expect("valid");
        assert_eq!((tensorflow.layout, tensorflow.side, tensorflow.batch), (Layout::ChannelsLast, Some(96), Some(1)));
        let open = describe("x", &[-1, -1, -1, -1]).expect("valid");
        assert_eq!((open.layout, open.side, open.channels), (Layout::ChannelsFirst, None, 3));
        let refused = |shape: &[i64]| describe("x", shape).expect_err("refused");
        assert!(refused(&[-1, 77]).contains("images x channels x height x width"));
        assert!(refused(&[1, 4, 32, 32]).contains("1 or 3 channels"));
        assert!(refused(&[1, 3, 32, 48]).contains("it must be square"));
    }

    #[test]
    fn outputs_by_name() {
        assert_eq!(choose_output(&["y"], None), Ok(0));
        assert_eq!(choose_output(&["last_hidden_state", "pooler_output"], None), Ok(1));
        assert_eq!(choose_output(&["logits", "probabilities", "features"], None), Ok(2));
        assert_eq!(choose_output(&["a", "b"], Some("b")), Ok(1));
        assert!(choose_output(&["a", "b"], None).expect_err("refused").contains("choose one with --tensor: a, b"));
        assert!(choose_output(&["a"], Some("c")).expect_err("refused").contains("no output 'c'; its outputs are a"));
    }

    #[test]
    fn outputs_become_rows() {
        let pooled = |shape: &[usize], data: &[f32], number| {
            let mut features = Vec::new();
            pool(shape, data, 2, number, &mut features).map(|(width, pooling)| (width, pooling, features))
        };
        let data: Vec<f32> = (0..8).map(|x| x as f32).collect();
        assert_eq!(pooled(&[2, 4], &data, 1), Ok((4, Pooling::Rows, vec![0.0, 1.0, 2.0, 3.0])));
        assert_eq!(pooled(&[2, 2, 2], &data, 2), Ok((2, Pooling::FirstToken, vec![0.0, 1.0, 4.0, 5.0])));
        assert_eq!(pooled(&[2, 2, 1, 2], &data, 2), Ok((2, Pooling::Average, vec![0.5, 2.5, 4.5, 6.5])));
        assert!(pooled(&[1, 8], &data, 1).expect_err("refused").contains("a row per image"));
        assert!(pooled(&[2], &data[..2], 1).is_err());
    }

    #[test]
    fn channels_become_last() {
        assert_eq!(channels_last(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    }
}
