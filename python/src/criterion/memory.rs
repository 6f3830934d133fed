//! The numbers of NumPy arrays and PyTorch tensors, where they lie.

use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::json::type_name;

/// The types of PyTorch that a tensor is checked against.
pub(super) struct Torch {
    tensor: Py<PyType>,
    float32: Py<PyAny>,
    int64: Py<PyAny>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// PyTorch, if the program has imported it.
fn torch(py: Python<'_>) -> PyResult<Option<&'static Torch>> {
    if let Some(torch) = TORCH.get(py) {
        return Ok(Some(torch));
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let Ok(module) = modules.get_item(intern!(py, "torch")) else { return Ok(None) };
    let tensor = module.getattr(intern!(py, "Tensor"))?.cast_into::<PyType>()?.unbind();
    let float32 = module.getattr(intern!(py, "float32"))?.unbind();
    let int64 = module.getattr(intern!(py, "int64"))?.unbind();
    TORCH.get_or_try_init(py, || Ok(Torch { tensor, float32, int64 })).map(Some)
}

/// A number that arrays and tensors can hold.
pub(super) trait Number: Element + Copy {
    const NAME: &'static str;
    fn dtype(torch: &Torch) -> &Py<PyAny>;
}

impl Number for f32 {
    const NAME: &'static str = "float32";
    fn dtype(torch: &Torch) -> &Py<PyAny> {
        &torch.float32
    }
}

impl Number for i64 {
    const NAME: &'static str = "int64";
    fn dtype(torch: &Torch) -> &Py<PyAny> {
        &torch.int64
    }
}

/// Where the numbers of an array or tensor lie. It is valid as long as the object that it was made from.
#[derive(Clone, Copy)]
pub(super) struct Memory<T> {
    first: *mut T,
    /// The number of dimensions, 0 to 2.
    dimensions: usize,
    rows: usize,
    /// Numbers per row; 1 unless there are two dimensions.
    columns: usize,
}

impl<T: Number> Memory<T> {
    /// The memory of a contiguous NumPy array, or of a contiguous tensor on the CPU. `name` is the argument, for errors.
    pub(super) fn of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyArrayDyn<T>>() {
            if !array.is_c_contiguous() {
                return Err(PyValueError::new_err(format!("{name} must be contiguous")));
            }
            return Self::new(array.data(), array.shape(), name);
        }
        match torch(object.py())? {
            Some(torch) if object.is_instance(torch.tensor.bind(object.py()))? => Self::of_tensor(object, torch, name),
            _ => {
                Err(PyTypeError::new_err(format!("{name} must be an array of {}, not {}", T::NAME, type_name(object))))
            }
        }
    }

    /// The same for memory that is written to.
    pub(super) fn of_output(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyArrayDyn<T>>()
            && array.try_readwrite().is_err()
        {
            return Err(PyValueError::new_err(format!("{name} must be writable")));
        }
        Self::of(object, name)
    }

    fn of_tensor(tensor: &Bound<'_, PyAny>, torch: &Torch, name: &str) -> PyResult<Self> {
        let py = tensor.py();
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        if !dtype.is(T::dtype(torch)) {
            return Err(PyTypeError::new_err(format!("{name} must be a tensor of {}, not {dtype}", T::NAME)));
        }
        if !tensor.getattr(intern!(py, "is_cpu"))?.extract::<bool>()? {
            return Err(PyValueError::new_err(format!("{name} must be on the CPU")));
        }
        if !tensor.call_method0(intern!(py, "is_contiguous"))?.extract::<bool>()? {
            return Err(PyValueError::new_err(format!("{name} must be contiguous")));
        }
        let shape = tensor.getattr(intern!(py, "shape"))?;
        let shape = shape.cast::<PyTuple>()?;
        let mut sizes = [0; 2];
        for (size, dimension) in sizes.iter_mut().zip(shape.iter()) {
            *size = dimension.extract()?;
        }
        let first: usize = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let sizes = sizes.get(..shape.len()).unwrap_or(&[0; 3]);
        Self::new(std::ptr::with_exposed_provenance_mut(first), sizes, name)
    }

    fn new(first: *mut T, shape: &[usize], name: &str) -> PyResult<Self> {
        let (rows, columns) = match *shape {
            [] => (1, 1),
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => {
                let many = shape.len();
                return Err(PyValueError::new_err(format!("{name} must have at most 2 dimensions, not {many}")));
            }
        };
        if !first.is_aligned() || (first.is_null() && rows * columns > 0) {
            return Err(PyValueError::new_err(format!("{name}: the memory is not aligned or does not exist")));
        }
        Ok(Self { first, dimensions: shape.len(), rows, columns })
    }

    /// Refuses other shapes than B x C.
    pub(super) fn matrix(self, name: &str, classes: usize) -> PyResult<Self> {
        if self.dimensions != 2 {
            return Err(PyValueError::new_err(format!(
                "{name} must have 2 dimensions (batch x classes), not {}",
                self.dimensions
            )));
        }
        if self.columns != classes {
            let columns = self.columns;
            return Err(PyValueError::new_err(format!("{name} has {columns} columns for {classes} classes")));
        }
        Ok(self)
    }

    /// Refuses other shapes than B.
    pub(super) fn vector(self, name: &str, rows: usize) -> PyResult<Self> {
        if self.dimensions != 1 {
            return Err(PyValueError::new_err(format!("{name} must have 1 dimension, not {}", self.dimensions)));
        }
        if self.rows != rows {
            let got = self.rows;
            return Err(PyValueError::new_err(format!("{name} has {got} entries for {rows} rows of logits")));
        }
        Ok(self)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    fn len(&self) -> usize {
        self.rows * self.columns
    }

    fn range(&self) -> std::ops::Range<usize> {
        let start = self.first.addr();
        start..start + self.len() * size_of::<T>()
    }

    /// Whether two pieces of memory have bytes in common.
    pub(super) fn overlaps<U: Number>(&self, other: &Memory<U>) -> bool {
        let (a, b) = (self.range(), other.range());
        !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
    }

    /// The numbers.
    ///
    /// # Safety
    /// The object that this was made from lives as long as the slice, and nothing writes to it meanwhile.
    pub(super) unsafe fn slice<'a>(self) -> &'a [T] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: `of` found this many numbers of this type in contiguous, aligned memory; the rest is the caller's.
        unsafe { std::slice::from_raw_parts(self.first, self.len()) }
    }

    /// The numbers, to write to.
    ///
    /// # Safety
    /// The object that this was made from lives as long as the slice, and nothing else reads or writes it meanwhile.
    pub(super) unsafe fn slice_mut<'a>(self) -> &'a mut [T] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: `of` found this many numbers of this type in contiguous, aligned memory; the rest is the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.len()) }
    }
}
