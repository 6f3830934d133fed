//! Weights of others: read or refused.

#![no_main]

use equipoise_nn::{Architecture, Network, Weights};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let network = Network::new(Architecture::ResNet8, 1, [4, 4], 2).expect("known");
    if let Ok(weights) = Weights::from_bytes(bytes, &network) {
        assert_eq!(weights.parameters.len(), network.parameters().len());
    }
});
