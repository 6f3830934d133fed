//! Parses the arguments of a program, and words what is wrong with them.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error, Parser};
use equipoise_criterion::Id;
use equipoise_train::settings::setting_of_option;

/// What the standard library says about numbers that it cannot read, and what a user is told.
const NUMBERS: [(&str, &str); 5] = [
    ("invalid digit found in string", WHOLE),
    ("cannot parse integer from empty string", WHOLE),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number"),
];
const WHOLE: &str = "expected a whole number of at least 0";
/// Options that 0 makes no sense for.
const POSITIVE: [&str; 7] = ["--epochs", "--batch-size", "--threads", "--seeds", "--repeats", "--folds", "--steps"];

/// Lets options take negative numbers, so that `--epochs -1` is refused by the range of epochs and not as an unknown option `-1`.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let takes_value = arg.get_action().takes_values() && !arg.is_positional();
            arg.allow_negative_numbers(takes_value)
        })
        .mut_subcommands(with_negative_numbers)
}

/// Parses arguments, the first of which is the name of the program.
///
/// # Errors
/// The exit code of help (0) and of wrong arguments, which are printed if `is_shown` is set.
pub(crate) fn parse<T: Parser>(arguments: impl IntoIterator<Item = OsString>, is_shown: bool) -> Result<T, u8> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let matches = with_negative_numbers(T::command()).try_get_matches_from(&arguments);
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|error| {
        let code = u8::try_from(error.exit_code()).unwrap_or(2);
        if is_shown {
            let error = with_setting(error, &T::command(), &arguments);
            let message = error.render().to_string();
            let plain = in_words(&message);
            // there is nobody to tell if printing fails
            let _ = match plain == message {
                true => error.print(),
                false => io::stderr().write_all(plain.as_bytes()),
            };
        }
        code
    })
}

/// A message without the words of the standard library.
fn in_words(message: &str) -> String {
    let least = if POSITIVE.iter().any(|option| message.contains(&format!("'{option} "))) { '1' } else { '0' };
    let mut plain = message.to_owned();
    for (found, told) in NUMBERS {
        plain =
            plain.replace(found, &if told == WHOLE { told.replace('0', &least.to_string()) } else { told.to_owned() });
    }
    plain.lines().map(|line| range_in_words(line) + "\n").collect()
}

/// `0 is not in 1..=64` in words.
fn range_in_words(line: &str) -> String {
    let words = || {
        let (start, range) = line.rsplit_once(" is not in ")?;
        let (start, _) = start.rsplit_once(' ')?;
        let (low, high) = range.split_once("..")?;
        Some(match high.strip_prefix('=').unwrap_or(high) {
            "" => format!("{start} must be at least {low}"),
            high => format!("{start} must be from {low} to {high}"),
        })
    };
    words().unwrap_or_else(|| line.to_owned())
}

/// Replaces the advice about an unknown option that is a setting: `--patience 3` is `--set patience=3`.
fn with_setting(mut error: Error, command: &Command, arguments: &[OsString]) -> Error {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(name) = option.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument) else {
        return error;
    };
    let called = arguments.get(1).and_then(|name| command.find_subcommand(name)).unwrap_or(command);
    let has_settings = called.get_arguments().any(|arg| arg.get_long() == Some("set"));
    let Some(setting) = setting_of_option(name).filter(|_| has_settings) else { return error };
    let value = value_of(option, arguments).unwrap_or_else(|| "VALUE".to_owned());
    let change = match setting.strip_suffix(".NAME") {
        // `--augment cutout=8`
        Some(section) if value.contains('=') => format!("{section}.{value}"),
        _ => format!("{setting}={value}"),
    };
    let of = setting.strip_prefix("criterion.params.").map_or_else(String::new, |name| {
        let has = |id: &&Id| id.fields().iter().any(|field| field.name == name);
        let criteria: Vec<String> = Id::ALL.iter().filter(has).map(ToString::to_string).collect();
        format!(" of {}", criteria.join(", "))
    });
    let tip = format!("this is a setting{of}: '--set {change}'; `equipoise settings` lists all of them");
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

/// What follows an option.
fn value_of(option: &str, arguments: &[OsString]) -> Option<String> {
    let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    let given = arguments
        .find(|argument| argument.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))?;
    match given.split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None => arguments.next().filter(|next| !next.starts_with("--")).map(Cow::into_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_numbers_are_words() {
        let said = in_words("error: invalid value '0' for '--threads <N>': 0 is not in 1..=1024\n\nFor more\n");
        assert_eq!(said, "error: invalid value '0' for '--threads <N>': must be from 1 to 1024\n\nFor more\n");
        let said = in_words("error: invalid value '0' for '--steps <N>': 0 is not in 1..");
        assert_eq!(said, "error: invalid value '0' for '--steps <N>': must be at least 1\n");
        let said = in_words("error: invalid value '1.5' for '--epochs <N>': invalid digit found in string");
        assert_eq!(said, "error: invalid value '1.5' for '--epochs <N>': expected a whole number of at least 1\n");
        let said = in_words("error: invalid value 'x' for '--seed <N>': invalid digit found in string");
        assert_eq!(said, "error: invalid value 'x' for '--seed <N>': expected a whole number of at least 0\n");
    }
}
