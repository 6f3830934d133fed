//! Plain Python values as JSON values and back. Numbers keep all their bits, as no text is involved.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// The deepest nesting that is read.
const DEEPEST: usize = 32;

/// The JSON value of a Python value. `name` is the argument, for errors.
pub(crate) fn from_python(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Value> {
    read(value, name, 0)
}

/// The JSON object of a mapping with strings as keys.
pub(crate) fn object(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Map<String, Value>> {
    match from_python(value, name)? {
        Value::Object(map) => Ok(map),
        _ => Err(PyTypeError::new_err(format!("{name} must be a mapping, not {}", type_name(value)))),
    }
}

/// The name of a value's type.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an unknown type".to_owned(), |name| name.to_string())
}

fn read(value: &Bound<'_, PyAny>, name: &str, depth: usize) -> PyResult<Value> {
    if depth > DEEPEST {
        return Err(PyValueError::new_err(format!("{name}: nested too deeply")));
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Bool(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return whole(value, name);
    }
    if value.is_instance_of::<PyFloat>() {
        let number = Number::from_f64(value.extract()?);
        return number.map(Value::Number).ok_or_else(|| PyValueError::new_err(format!("{name} must be finite")));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text.to_cow()?.into_owned()));
    }
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let mut object = Map::new();
        for item in mapping.items()?.iter() {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let Ok(key) = key.cast::<PyString>() else {
                return Err(PyTypeError::new_err(format!("{name}: keys must be strings, not {}", type_name(&key))));
            };
            let key = key.to_cow()?.into_owned();
            let value = read(&value, &format!("{name}.{key}"), depth + 1)?;
            object.insert(key, value);
        }
        return Ok(Value::Object(object));
    }
    if let Some(array) = numbers(value) {
        return array;
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let mut array = Vec::new();
        for (i, item) in value.try_iter()?.enumerate() {
            array.push(read(&item?, &format!("{name}[{i}]"), depth + 1)?);
        }
        return Ok(Value::Array(array));
    }
    // scalars of NumPy and PyTorch
    if let Ok(item) = value.call_method0(pyo3::intern!(value.py(), "item"))
        && (item.is_instance_of::<PyBool>() || item.is_instance_of::<PyInt>() || item.is_instance_of::<PyFloat>())
    {
        return read(&item, name, depth + 1);
    }
    Err(PyTypeError::new_err(format!("{name}: a value of type {} cannot be used here", type_name(value))))
}

fn whole(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Value> {
    if let Ok(number) = value.extract::<u64>() {
        return Ok(number.into());
    }
    match value.extract::<i64>() {
        Ok(number) => Ok(number.into()),
        Err(_) => Err(PyValueError::new_err(format!("{name} is too large"))),
    }
}

/// The numbers of a one-dimensional array of 64-bit integers or floats. `None` for everything else.
fn numbers(value: &Bound<'_, PyAny>) -> Option<PyResult<Value>> {
    if let Ok(array) = value.cast::<PyArray1<i64>>() {
        let values = array.readonly();
        return Some(Ok(values.as_array().iter().map(|n| Value::from(*n)).collect()));
    }
    let values = value.cast::<PyArray1<f64>>().ok()?.readonly();
    let finite = |n: &f64| Number::from_f64(*n).map(Value::Number);
    let values: Option<Vec<Value>> = values.as_array().iter().map(finite).collect();
    Some(values.map(Value::Array).ok_or_else(|| PyValueError::new_err("an array holds a number that is not finite")))
}

/// The Python value of a JSON value. A list of numbers becomes a NumPy array of 64-bit integers or floats.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(n), _) => n.into_pyobject(py)?.into_any(),
            (_, Some(n)) => n.into_pyobject(py)?.into_any(),
            _ => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => array(py, values)?,
        Value::Object(map) => {
            let dict = PyDict::new(py);
            for (key, value) in map {
                dict.set_item(key, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

fn array<'py>(py: Python<'py>, values: &[Value]) -> PyResult<Bound<'py, PyAny>> {
    if values.is_empty() || !values.iter().all(Value::is_number) {
        let list = PyList::empty(py);
        for value in values {
            list.append(to_python(py, value)?)?;
        }
        return Ok(list.into_any());
    }
    let whole: Option<Vec<i64>> = values.iter().map(Value::as_i64).collect();
    if let Some(whole) = whole {
        return Ok(PyArray1::from_vec(py, whole).into_any());
    }
    let floats: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
    Ok(PyArray1::from_vec(py, floats).into_any())
}
