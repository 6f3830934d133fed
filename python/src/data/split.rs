//! The images of a split, prepared once and shared by everything that reads them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use equipoise_data::acquire::catalog::data_root as folder_of_datasets;
use equipoise_data::batch::augmentation::Mixing;
use equipoise_data::batch::image_draw::ImageDraw;
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::pixel::PixelValue;
use equipoise_pool::Pool;
use equipoise_train::prepare::{SplitData, SplitOptions};
use equipoise_train::run::build::prepare_split;
use equipoise_train::run::files::make_paths_absolute;
use equipoise_train::run::{Feedback, RunContext};
use equipoise_train::settings::Settings;
use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use super::stream::{BatchStream, StreamPlan};
use super::tools::toml_table;
use crate::{errors, json, threads};

/// Settings by their names in the TOML of a run.
pub(super) fn settings_of(given: Map<String, Value>) -> PyResult<Settings> {
    let settings = Settings::default().with(&toml_table(given)?).map_err(|error| errors::train(&error))?;
    settings.check().map_err(|error| errors::train(&error))?;
    Ok(settings)
}

/// What a split needs in every thread.
pub(super) struct SplitShared {
    pub(super) data: SplitData,
    pub(super) mixing: Option<Arc<Mixing>>,
    pub(super) settings: Settings,
}

/// The type of the pixels in a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dtype {
    U8,
    F32,
}

impl Dtype {
    pub(super) fn parse(name: &str) -> PyResult<Self> {
        match name {
            "uint8" => Ok(Self::U8),
            "float32" => Ok(Self::F32),
            _ => Err(PyValueError::new_err(format!("dtype is '{name}'; it must be 'uint8' or 'float32'"))),
        }
    }
}

/// One split of a dataset.
#[pyclass(frozen, module = "equipoise._equipoise")]
pub(crate) struct SplitCore {
    pub(super) shared: Arc<SplitShared>,
    warnings: Vec<String>,
}

/// Collects warnings, which become Python's.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Feedback for Warnings {
    fn warn(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
    }
    fn note(&self, _: &str) {}
    fn reading(&self, _: u64, _: u64) {}
    fn reading_done(&self) {}
}

#[pymethods]
impl SplitCore {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "these are the arguments of the Python method")]
    fn new(
        py: Python<'_>,
        settings: &Bound<'_, PyAny>,
        split: &str,
        augmented: bool,
        cache_bytes: Option<u64>,
        normalize: Option<(Vec<f32>, Vec<f32>)>,
        data_root: Option<PathBuf>,
        num_threads: usize,
    ) -> PyResult<Self> {
        let mut settings = settings_of(json::object(settings, "settings")?)?;
        make_paths_absolute(&mut settings);
        let split = split.parse().map_err(|what: String| PyValueError::new_err(format!("split: {what}")))?;
        let options = SplitOptions { split, augmented, cache_bytes };
        let normalize = normalize.map(|(mean, std)| Normalize::new(&mean, &std)).transpose();
        let normalize = normalize.map_err(|error| errors::data(&error))?;
        let (pool, data_root) = (threads::pool(py, num_threads)?, folder_of_datasets(data_root.as_deref()));
        let feedback = Warnings::default();
        let shared = py.detach(|| {
            let context = RunContext { data_root: &data_root, pool: &pool, feedback: &feedback, processes: None };
            let data = prepare_split(&mut settings, normalize.as_ref(), options, &context)?;
            let mixing = match augmented {
                true => settings.augment.mixing(&data.split.labels, data.classes.len())?.map(Arc::new),
                false => None,
            };
            Ok(Arc::new(SplitShared { data, mixing, settings }))
        });
        let shared = shared.map_err(|error| errors::train(&error))?;
        if let Some(normalize) = &normalize
            && normalize.mean().len() != shared.data.split.loader.shape().0
        {
            let (got, want) = (normalize.mean().len(), shared.data.split.loader.shape().0);
            return Err(PyValueError::new_err(format!("normalize has {got} means; the images have {want} channels")));
        }
        Ok(Self { shared, warnings: feedback.0.into_inner().unwrap_or_else(PoisonError::into_inner) })
    }

    /// What is odd about the dataset.
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    #[getter]
    fn name(&self) -> &str {
        &self.shared.data.name
    }

    #[getter]
    fn classes(&self) -> Vec<String> {
        self.shared.data.classes.clone()
    }

    #[getter]
    fn counts(&self) -> Vec<u64> {
        self.shared.data.counts.clone()
    }

    #[getter]
    fn groups(&self) -> Vec<(String, Vec<usize>)> {
        self.shared.data.groups.iter().map(|group| (group.name.clone(), group.classes.clone())).collect()
    }

    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(py, self.shared.data.split.labels.iter().map(|label| i64::from(*label)))
    }

    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        self.shared.data.split.loader.shape()
    }

    #[getter]
    fn mean(&self) -> Vec<f32> {
        self.shared.data.normalize.mean()
    }

    #[getter]
    fn std(&self) -> Vec<f32> {
        self.shared.data.normalize.std()
    }

    /// Factor and summand of the levels of each channel, with all their bits.
    #[getter]
    fn normalization(&self) -> (Vec<f32>, Vec<f32>) {
        let normalize = &self.shared.data.normalize;
        let channels = normalize.mean().len();
        let offsets: Vec<f32> = (0..channels).map(|channel| normalize.value(channel, 0.0)).collect();
        (normalize.scale().to_vec(), offsets)
    }

    /// All settings, as TOML.
    #[getter]
    fn settings(&self) -> PyResult<String> {
        self.shared.settings.to_toml().map_err(|error| errors::train(&error))
    }

    /// The file of an image, or its number.
    fn file(&self, index: usize) -> PyResult<String> {
        Ok(self.shared.data.split.name(self.index(index)?))
    }

    fn __len__(&self) -> usize {
        self.shared.data.split.labels.len()
    }

    /// Images in their turn of an epoch, n x channels x height x width, on the calling thread.
    fn images<'py>(
        &self,
        py: Python<'py>,
        indices: PyReadonlyArray1<'py, i64>,
        seed: u64,
        epoch: u64,
        dtype: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let indices = self.indices(&indices)?;
        let draws: Vec<ImageDraw> = indices.iter().map(|index| ImageDraw::new(*index, seed, epoch)).collect();
        match Dtype::parse(dtype)? {
            Dtype::U8 => self.drawn::<u8>(py, &draws),
            Dtype::F32 => self.drawn::<f32>(py, &draws),
        }
    }

    /// The batches of an epoch, from threads of their own.
    #[expect(clippy::too_many_arguments, reason = "these are the arguments of the Python method")]
    fn stream(
        &self,
        order: PyReadonlyArray1<'_, i64>,
        partners: PyReadonlyArray1<'_, i64>,
        levels: Vec<u8>,
        batch_size: usize,
        seed: u64,
        epoch: u64,
        epochs: u64,
        num_threads: usize,
        prefetch: usize,
        dtype: &str,
    ) -> PyResult<BatchStream> {
        let plan = StreamPlan {
            order: self.indices(&order)?,
            partners: self.indices(&partners)?,
            levels,
            batch_size: batch_size.max(1),
            seed,
            epoch,
            epochs,
            threads: num_threads,
            prefetch,
            dtype: Dtype::parse(dtype)?,
        };
        BatchStream::start(Arc::clone(&self.shared), plan)
    }

    /// Whether images are mixed with others in an epoch.
    fn mixes(&self, epoch: u64, epochs: u64) -> bool {
        self.shared.mixing.as_ref().is_some_and(|mixing| mixing.is_active(epoch, epochs))
    }
}

impl SplitCore {
    fn index(&self, index: usize) -> PyResult<u32> {
        let images = self.shared.data.split.labels.len();
        let valid = u32::try_from(index).ok().filter(|_| index < images);
        valid.ok_or_else(|| PyIndexError::new_err(format!("index {index} is out of range: there are {images} images")))
    }

    fn indices(&self, indices: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<u32>> {
        let images = self.shared.data.split.labels.len();
        let valid = |index: &i64| {
            u32::try_from(*index).ok().filter(|index| (*index as usize) < images).ok_or_else(|| {
                PyIndexError::new_err(format!("index {index} is out of range: there are {images} images"))
            })
        };
        indices.as_array().iter().map(valid).collect()
    }

    fn drawn<'py, P: PixelValue + Element>(&self, py: Python<'py>, draws: &[ImageDraw]) -> PyResult<Bound<'py, PyAny>> {
        let loader = &self.shared.data.split.loader;
        let (channels, height, width) = loader.shape();
        let shape = [draws.len(), channels, height, width];
        let mut out = vec![P::default(); shape.iter().product()];
        py.detach(|| loader.draw(draws, &mut out, &Pool::single())).map_err(|error| errors::data(&error))?;
        array(py, out, shape)
    }

    /// The name of an image and its thumbnail.
    pub(crate) fn describe(&self, index: u32) -> (String, Option<String>) {
        match (index as usize) < self.shared.data.split.labels.len() {
            true => self.shared.data.split.describe(index),
            false => (format!("number {index}"), None),
        }
    }
}

/// An array of a batch's pixels, without a copy.
pub(super) fn array<P: Element>(py: Python<'_>, pixels: Vec<P>, shape: [usize; 4]) -> PyResult<Bound<'_, PyAny>> {
    let array = PyArray1::from_vec(py, pixels).reshape(shape);
    array.map(Bound::into_any).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
