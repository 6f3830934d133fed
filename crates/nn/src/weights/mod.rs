//! Weights in and out of files, with the names and shapes that PyTorch programs use.

mod safetensors;

use std::collections::BTreeSet;

use equipoise_support::nearest;
use serde_json::json;

use self::safetensors::{Tensors, Writer, error, read};
use crate::error::NnError;
use crate::network::{Network, Tensor};

/// The values of a network's tensors, in the order of its [`parameters`](Network::parameters) and
/// [`statistics`](Network::statistics).
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The parameters.
    pub parameters: Vec<Vec<f32>>,
    /// The running means and variances of the batch norms.
    pub statistics: Vec<Vec<f32>>,
}

/// A counter that PyTorch keeps with every batch norm. It is written for PyTorch and ignored when read.
const COUNTER: &str = "num_batches_tracked";
/// What `DataParallel` puts before every name.
const PARALLEL: &str = "module.";

fn all_tensors(network: &Network) -> impl Iterator<Item = Tensor> {
    network.parameters().into_iter().chain(network.statistics())
}

impl Weights {
    /// Checks that these are the values of a network's tensors.
    ///
    /// # Errors
    /// For a wrong number of tensors or a tensor of the wrong length.
    pub fn check(&self, network: &Network) -> Result<(), NnError> {
        let (got, want) = (self.parameters.len() + self.statistics.len(), all_tensors(network).count());
        if got != want {
            return Err(NnError::Length { what: "tensors", got, want });
        }
        let values = self.parameters.iter().chain(&self.statistics);
        match all_tensors(network).zip(values).find(|(tensor, values)| values.len() != tensor.len()) {
            None => Ok(()),
            Some((tensor, values)) => {
                Err(NnError::Shape { name: tensor.name, got: vec![values.len()], want: tensor.shape })
            }
        }
    }

    /// Writes a safetensors file that PyTorch's `load_state_dict` accepts as it is. `batches` is the number of batches
    /// that the running statistics come from. `metadata` come beside the name of the network.
    ///
    /// # Errors
    /// If the values are not those of the network's tensors.
    pub fn to_bytes(&self, network: &Network, batches: u64, metadata: &[(&str, String)]) -> Result<Vec<u8>, NnError> {
        self.check(network)?;
        let mut about = json!({"format": "pt", "network": network.name});
        metadata.iter().for_each(|(name, text)| about[*name] = text.as_str().into());
        let mut writer = Writer::new(about);
        // eight-byte values first, so that everything is aligned
        for tensor in network.statistics() {
            if let Some(norm) = tensor.name.strip_suffix("running_mean") {
                writer.add(format!("{norm}{COUNTER}"), "I64", &[], batches.to_le_bytes());
            }
        }
        for (tensor, values) in all_tensors(network).zip(self.parameters.iter().chain(&self.statistics)) {
            writer.add(tensor.name, "F32", &tensor.shape, values.iter().flat_map(|x| x.to_le_bytes()));
        }
        Ok(writer.finish())
    }

    /// Reads a safetensors file with exactly a network's tensors. F16 and BF16 are widened to F32.
    ///
    /// # Errors
    /// Names the tensor that is missing, unknown, of another shape or not finite, or says what is wrong with the file.
    pub fn from_bytes(bytes: &[u8], network: &Network) -> Result<Self, NnError> {
        let mut tensors = read(bytes)?;
        if !tensors.is_empty() && tensors.keys().all(|name| name.starts_with(PARALLEL)) {
            tensors = tensors.into_iter().map(|(name, values)| (name[PARALLEL.len()..].to_owned(), values)).collect();
        }
        tensors.retain(|name, _| !name.ends_with(COUNTER));
        check_names(&tensors, network)?;
        let mut take = |tensor: Tensor| take(&mut tensors, tensor);
        let parameters = network.parameters().into_iter().map(&mut take).collect::<Result<_, _>>()?;
        let statistics = network.statistics().into_iter().map(take).collect::<Result<_, _>>()?;
        Ok(Self { parameters, statistics })
    }
}

/// Checks that the network has every tensor of a file.
fn check_names(tensors: &Tensors, network: &Network) -> Result<(), NnError> {
    let known: BTreeSet<String> = all_tensors(network).map(|tensor| tensor.name).collect();
    let Some(name) = tensors.keys().find(|name| !known.contains(*name)) else { return Ok(()) };
    let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
    Err(NnError::UnknownTensor { name: name.clone(), nearest })
}

/// Takes the values of a tensor out of a file's.
fn take(tensors: &mut Tensors, tensor: Tensor) -> Result<Vec<f32>, NnError> {
    let Some((shape, values)) = tensors.remove(&tensor.name) else {
        return Err(NnError::MissingTensor { name: tensor.name });
    };
    if shape != tensor.shape {
        return Err(NnError::Shape { name: tensor.name, got: shape, want: tensor.shape });
    }
    if let Some(value) = values.iter().copied().find(|x| !x.is_finite()) {
        return Err(NnError::TensorNotFinite { name: tensor.name, value });
    }
    let variance = tensor.name.ends_with("running_var");
    if let Some(value) = values.iter().find(|x| variance && **x < 0.0) {
        return Err(error(format!("tensor '{}' has a negative variance of {value}", tensor.name)));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::safetensors::tests::file;
    use super::*;
    use crate::network::Architecture;

    fn network() -> Network {
        Network::new(Architecture::ResNet8, 3, [8, 8], 4).expect("valid")
    }

    fn weights(network: &Network) -> Weights {
        let statistics = network.statistics().iter().map(|t| (0..t.len()).map(|i| i as f32 * 0.5).collect()).collect();
        Weights { parameters: network.initial_parameters(3), statistics }
    }

    /// The length of a header may begin as a pickle does.
    #[test]
    fn lengths_that_look_like_pickles_are_read() {
        let mut alike = 0;
        for extra in 0..800 {
            let mut network = Network::new(Architecture::ResNet8, 1, [4, 4], 2).expect("valid");
            network.name += &"x".repeat(8 * extra);
            let weights = Weights {
                parameters: network.initial_parameters(0),
                statistics: network.statistics().iter().map(|tensor| vec![1.0; tensor.len()]).collect(),
            };
            let bytes = weights.to_bytes(&network, 0, &[]).expect("its own shapes");
            alike += usize::from(bytes[0] == 0x80 || bytes.starts_with(b"PK"));
            assert_eq!(Weights::from_bytes(&bytes, &network).expect("a good file"), weights);
        }
        assert!(alike > 10, "{alike} files began like a pickle");
    }

    #[test]
    fn weights_are_read_as_they_were_written() {
        let network = network();
        let weights = weights(&network);
        let bytes = weights.to_bytes(&network, 7, &[("classes", "[]".to_owned())]).expect("its own shapes");
        assert_eq!(Weights::from_bytes(&bytes, &network).expect("a good file"), weights);
        assert_eq!(u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes")) % 8, 0);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |bytes: &[u8]| Weights::from_bytes(bytes, &network()).expect_err("refused").to_string();
        assert_eq!(error(&file(&[])), "tensor 'conv1.weight' is missing");
        assert_eq!(
            error(&file(&[("layer1.0.conv1.weigth", "F32", &[1])])),
            "tensor 'layer1.0.conv1.weigth': the network has no tensor of this name; did you mean 'layer1.0.conv1.weight'?"
        );
        assert_eq!(error(&file(&[("fc.w", "F32", &[1])])), "tensor 'fc.w': the network has no tensor of this name");
        assert_eq!(
            error(&file(&[("conv1.weight", "F32", &[16, 3, 3, 2])])),
            "tensor 'conv1.weight' has shape [16, 3, 3, 2], but the network needs [16, 3, 3, 3]"
        );
        assert!(error(&file(&[("conv1.weight", "I8", &[3])])).contains("dtype I8"));
        assert!(error(b"\x80\x02}q").contains("pickle"));
        assert!(error(b"abc").contains("3 bytes"));
        assert!(error(&[0xff; 40]).contains("header of"));
        let network = network();
        let mut spoilt = weights(&network);
        spoilt.parameters[2][5] = f32::NAN;
        assert_eq!(error(&spoilt.to_bytes(&network, 0, &[]).expect("shapes")), "tensor 'bn1.bias': NaN is not finite");
        spoilt.parameters.pop();
        assert!(matches!(spoilt.to_bytes(&network, 0, &[]), Err(NnError::Length { .. })));
    }
}
