//! How images become the input of a backbone.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::EmbedError;

/// Mean and standard deviation of ImageNet's pixels, with which most backbones are trained.
const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
/// Height and width of images where nothing else is known.
const IMAGE_SIZE: u32 = 224;

/// How images become the input of a backbone: the shorter side is resized (bilinear, antialiased), the center is cropped, and
/// pixels in 0..=1 are normalized.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessing {
    /// Height and width of the crop.
    pub image_size: u32,
    /// Length of the shorter side before the crop.
    pub resize: u32,
    /// Mean of the pixels by channel.
    pub mean: Vec<f32>,
    /// Standard deviation of the pixels by channel.
    pub std: Vec<f32>,
    /// Where this comes from, for people.
    pub source: String,
}

/// What is known of the preprocessing; the rest has defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Height and width of the crop.
    pub image_size: Option<u32>,
    /// Length of the shorter side before the crop.
    pub resize: Option<u32>,
    /// Mean of the pixels by channel.
    pub mean: Option<Vec<f32>>,
    /// Standard deviation of the pixels by channel.
    pub std: Option<Vec<f32>>,
}

impl Overrides {
    /// These values, and the other's where there are none.
    fn or(self, other: Self) -> Self {
        Self {
            image_size: self.image_size.or(other.image_size),
            resize: self.resize.or(other.resize),
            mean: self.mean.or(other.mean),
            std: self.std.or(other.std),
        }
    }
}

impl Preprocessing {
    /// The preprocessing of a model: what is given, then a JSON file beside the model, then its metadata, then ImageNet's
    /// usual one. `input_side` is the height and width of the model's input, if it is fixed, and `channels` the number of its
    /// channels.
    ///
    /// # Errors
    /// If a file cannot be understood, or a value is out of range.
    pub fn new(
        model: &Path,
        given: &Overrides,
        metadata: &[(String, String)],
        input_side: Option<u32>,
        channels: usize,
    ) -> Result<Self, EmbedError> {
        let (beside, beside_name) = match file_beside(model)? {
            Some((name, overrides)) => (overrides, Some(name)),
            None => (Overrides::default(), None),
        };
        let inside = from_metadata(metadata);
        let mut sources = Vec::new();
        let mut known = Overrides::default();
        let beside_name = beside_name.unwrap_or_default();
        for (overrides, name) in
            [(given.clone(), "the options"), (beside, &beside_name), (inside, "the model's metadata")]
        {
            let more = known.clone().or(overrides);
            if more != known {
                sources.push(name.to_owned());
            }
            known = more;
        }
        if known.mean.is_none() || known.std.is_none() {
            sources.push("ImageNet's usual values, because nothing else is known".to_owned());
        }
        let source = sources.join(", then ");
        if let (Some(resize), Some(image_size)) =
            (known.resize, known.image_size.filter(|size| known.resize < Some(*size)))
        {
            let what = format!("images are resized to {resize}, which is less than the image size, {image_size}");
            return Err(EmbedError::Preprocessing { from: source, what });
        }
        let image_size = known.image_size.or(input_side).unwrap_or(IMAGE_SIZE);
        let resize = known.resize.unwrap_or((image_size * 256).div_ceil(224)).max(image_size);
        let mean = known.mean.unwrap_or_else(|| IMAGENET.0.to_vec());
        let std = known.std.unwrap_or_else(|| IMAGENET.1.to_vec());
        let (mean, std) = (by_channel(mean, channels), by_channel(std, channels));
        let preprocessing = Self { image_size, resize, mean, std, source };
        preprocessing.check(input_side, channels)?;
        Ok(preprocessing)
    }

    fn check(&self, input_side: Option<u32>, channels: usize) -> Result<(), EmbedError> {
        let refuse = |what: String| Err(EmbedError::Preprocessing { from: self.source.clone(), what });
        let Self { image_size, mean, std, .. } = self;
        if let Some(side) = input_side.filter(|side| side != image_size) {
            return refuse(format!(
                "the image size is {image_size}, but the model takes images of {side} x {side} only"
            ));
        }
        if !(1..=4096).contains(image_size) || self.resize > 8192 {
            return refuse(format!("the image size is {image_size}, resized {}; it must be 1 to 4096", self.resize));
        }
        for (name, values) in [("mean", mean), ("std", std)] {
            if values.len() != channels || !values.iter().all(|value| value.is_finite()) {
                return refuse(format!("{name} is {values:?}; it must have {channels} numbers"));
            }
        }
        if std.iter().any(|value| *value <= 0.0) {
            return refuse(format!("std is {std:?}; its numbers must be more than 0"));
        }
        Ok(())
    }

    /// The values as JSON, for the metadata of features.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self { image_size, resize, mean, std, .. } = self;
        serde_json::json!({"image_size": image_size, "resize": resize, "mean": mean, "std": std})
    }
}

/// Values for one channel from those for three, or for three from one.
fn by_channel(values: Vec<f32>, channels: usize) -> Vec<f32> {
    match (values.len(), channels) {
        (3, 1) => vec![values.iter().sum::<f32>() / 3.0],
        (1, channels) => vec![values[0]; channels],
        _ => values,
    }
}

/// What a file beside the model says: `model.json`, `model.onnx.json`, or `preprocessor_config.json` as Hugging Face has it.
fn file_beside(model: &Path) -> Result<Option<(String, Overrides)>, EmbedError> {
    let full = model.with_file_name(format!("{}.json", model.file_name().unwrap_or_default().display()));
    for path in [model.with_extension("json"), full, model.with_file_name("preprocessor_config.json")] {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let from = path.display().to_string();
        let value: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|cause| EmbedError::Preprocessing { from: from.clone(), what: format!("not valid: {cause}") })?;
        let overrides = from_json(&value);
        if overrides == Overrides::default() {
            let what = "it has none of image_size, input_size, crop_size, resize, mean and std".to_owned();
            return Err(EmbedError::Preprocessing { from, what });
        }
        return Ok(Some((from, overrides)));
    }
    Ok(None)
}

/// What the metadata of a model say. Values that are not texts are JSON.
fn from_metadata(metadata: &[(String, String)]) -> Overrides {
    let entry = |(key, text): &(String, String)| Some((key.clone(), serde_json::from_str::<Value>(text).ok()?));
    let mut values: Map<String, Value> = metadata.iter().filter_map(entry).collect();
    let ours = metadata.iter().any(|(key, text)| key == "writer" && text.starts_with("equipoise"));
    if let Some(height) = values.get("height").cloned().filter(|_| ours) {
        values.insert("image_size".to_owned(), height);
        // the graph of an export normalizes its input
        values.entry("mean").or_insert_with(|| vec![0.0; 3].into());
        values.entry("std").or_insert_with(|| vec![1.0; 3].into());
    }
    from_json(&values)
}

/// Reads our own words (`image_size`, `resize`, `mean`, `std`), timm's (`input_size`, `crop_pct`) and those of Hugging Face
/// (`crop_size`, `size`, `image_mean`, `image_std`).
fn from_json(values: &Map<String, Value>) -> Overrides {
    let number = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
    let side = |value: &Value| match value {
        Value::Object(sides) => ["height", "shortest_edge"].iter().find_map(|name| sides.get(*name).and_then(number)),
        Value::Array(shape) => shape.last().and_then(number),
        other => number(other),
    };
    let first = |names: &[&str]| names.iter().find_map(|name| values.get(*name).and_then(side));
    let list = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| values.get(*name)?.as_array());
        found.and_then(|list| list.iter().map(|x| Some(x.as_f64()? as f32)).collect())
    };
    let is_cropped = values.get("do_center_crop") != Some(&Value::Bool(false));
    let image_size = first(&["image_size", "input_size"]).or(first(&["crop_size"]).filter(|_| is_cropped));
    let crop_share = values.get("crop_pct").and_then(Value::as_f64).filter(|share| *share > 0.0 && *share <= 1.0);
    let by_share = image_size.zip(crop_share).map(|(size, share)| (f64::from(size) / share).floor() as u32);
    let resize = first(&["resize", "size"]).or(by_share);
    Overrides {
        image_size: image_size.or(resize.filter(|_| values.contains_key("size"))),
        resize,
        mean: list(["mean", "image_mean"]),
        std: list(["std", "image_std"]),
    }
}

#[cfg(test)]
mod tests {
    use equipoise_testing::TempFolder;

    use super::*;

    fn beside(json: &str) -> Result<Preprocessing, EmbedError> {
        let place = TempFolder::new("preprocessing");
        std::fs::write(place.path().join("model.json"), json).expect("written");
        Preprocessing::new(&place.path().join("model.onnx"), &Overrides::default(), &[], None, 3)
    }

    fn sizes(preprocessing: &Preprocessing) -> [u32; 2] {
        [preprocessing.image_size, preprocessing.resize]
    }

    #[test]
    fn words_of_timm_and_hugging_face() {
        let timm = r#"{"input_size": [3, 240, 240], "crop_pct": 0.9, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.5, 1]}"#;
        let timm = beside(timm).expect("valid");
        assert_eq!((sizes(&timm), timm.std.as_slice()), ([240, 266], &[0.25, 0.5, 1.0][..]));
        let clip = r#"{"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 224}, "image_mean": [0.1, 0.2, 0.3],
                       "image_std": [1, 1, 1], "do_center_crop": true, "resample": 3}"#;
        let clip = beside(clip).expect("valid");
        assert_eq!((sizes(&clip), clip.mean.as_slice()), ([224, 224], &[0.1, 0.2, 0.3][..]));
        let whole = beside(r#"{"size": {"height": 384, "width": 384}}"#).expect("valid");
        assert_eq!((sizes(&whole), whole.mean.as_slice()), ([384, 384], &IMAGENET.0[..]));
    }

    #[test]
    fn options_win_and_defaults_fill_the_rest() {
        let nowhere = Path::new("nowhere/model.onnx");
        let plain = Preprocessing::new(nowhere, &Overrides::default(), &[], None, 3).expect("valid");
        assert_eq!((sizes(&plain), plain.source.starts_with("ImageNet")), ([224, 256], true));
        let given = Overrides { image_size: Some(96), mean: Some(vec![0.5]), ..Overrides::default() };
        let given = Preprocessing::new(nowhere, &given, &[], None, 3).expect("valid");
        assert_eq!((sizes(&given), given.mean), ([96, 110], vec![0.5; 3]));
        assert_eq!(given.source, "the options, then ImageNet's usual values, because nothing else is known");
        let small = Overrides { image_size: Some(96), resize: Some(32), ..Overrides::default() };
        let refused = Preprocessing::new(nowhere, &small, &[], None, 3).expect_err("refused").to_string();
        assert!(refused.contains("resized to 32, which is less than the image size, 96"), "{refused}");
        let export: Vec<(String, String)> = [("writer", "equipoise 1"), ("height", "32"), ("resize", "40")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let export = Preprocessing::new(nowhere, &Overrides::default(), &export, Some(32), 1).expect("valid");
        assert_eq!((sizes(&export), export.mean, export.std), ([32, 40], vec![0.0], vec![1.0]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |json: &str| beside(json).expect_err("refused").to_string();
        assert!(refused("{").contains("not valid"));
        assert!(refused("{\"a\": 1}").contains("it has none of image_size"));
        assert!(refused(r#"{"image_size": 0}"#).contains("must be 1 to 4096"));
        assert!(refused(r#"{"mean": [1, 2]}"#).contains("must have 3 numbers"));
        assert!(refused(r#"{"std": [1, 0, 1]}"#).contains("more than 0"));
        let given = Overrides { image_size: Some(96), ..Overrides::default() };
        let clash = Preprocessing::new(Path::new("x.onnx"), &given, &[], Some(224), 3).expect_err("refused");
        assert!(clash.to_string().contains("the model takes images of 224 x 224 only"), "{clash}");
    }
}
