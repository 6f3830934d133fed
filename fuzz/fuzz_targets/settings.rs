//! Settings: what is accepted comes back from its own text.

#![no_main]

use equipoise_train::settings::Settings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(settings) = Settings::from_toml(text, &Settings::default()) {
        if settings.check().is_ok() {
            let written = settings.to_toml().expect("it can be written");
            assert_eq!(Settings::from_toml(&written, &Settings::default()).expect("its own text"), settings);
        }
    }
});
