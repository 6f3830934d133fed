//! Parses the arguments of a program, and words what is wrong with them.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{Command, Parser};

/// What the standard library says about numbers that it cannot read, and what a user is told.
const NUMBERS: [(&str, &str); 5] = [
    ("invalid digit found in string", "expected a whole number of at least 0"),
    ("cannot parse integer from empty string", "expected a whole number of at least 0"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number"),
];

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
    let matches = with_negative_numbers(T::command()).try_get_matches_from(arguments);
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|error| {
        if is_shown {
            let message = error.render().to_string();
            // there is nobody to tell if printing fails
            let _ = match NUMBERS.iter().find(|(found, _)| message.contains(found)) {
                Some((found, told)) => io::stderr().write_all(message.replace(found, told).as_bytes()),
                None => error.print(),
            };
        }
        u8::try_from(error.exit_code()).unwrap_or(2)
    })
}
