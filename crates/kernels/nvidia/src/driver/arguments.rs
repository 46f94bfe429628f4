//! Checks of a launch and of ranges, before the driver sees them.

use gpu::{Arguments, DriverError, DriverErrorKind};

/// An error of the caller.
pub(super) fn invalid(call: &'static str, text: String) -> DriverError {
    DriverError { call, kind: DriverErrorKind::InvalidArgument, text }
}

/// Compares arguments with the sizes of a kernel's parameters.
pub(super) fn check_sizes(sizes: &[usize], arguments: &Arguments) -> Result<(), DriverError> {
    let values = arguments.values();
    if values.len() != sizes.len() {
        let text = format!("{} arguments for a kernel of {} parameters", values.len(), sizes.len());
        return Err(invalid("cuLaunchKernel", text));
    }
    let wrong = values.iter().zip(sizes).position(|(value, size)| value.len() != *size);
    wrong.map_or(Ok(()), |index| {
        let (got, expected) = (values[index].len(), sizes[index]);
        Err(invalid("cuLaunchKernel", format!("argument {index} has {got} bytes; its parameter has {expected}")))
    })
}

/// Checks that `bytes` from `offset` on are within `size`.
pub(super) fn check_range(call: &'static str, offset: usize, bytes: usize, size: usize) -> Result<(), DriverError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        Some(_) | None => Err(invalid(call, format!("{bytes} bytes from {offset} on are not within {size} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_must_have_the_sizes_of_parameters() {
        let arguments = Arguments::new().with(&[0; 8]).with(&[0; 4]);
        assert_eq!(check_sizes(&[8, 4], &arguments), Ok(()));
        let text = |sizes: &[usize]| check_sizes(sizes, &arguments).map_err(|error| error.text);
        assert_eq!(text(&[8]), Err("2 arguments for a kernel of 1 parameters".into()));
        assert_eq!(text(&[8, 8]), Err("argument 1 has 4 bytes; its parameter has 8".into()));
    }

    #[test]
    fn ranges_end_within_memory() {
        assert_eq!(check_range("cuMemcpyHtoDAsync", 4, 4, 8), Ok(()));
        let text =
            |offset, bytes| check_range("cuMemcpyHtoDAsync", offset, bytes, 8).map_err(|error| error.to_string());
        let expected = "cuMemcpyHtoDAsync: an invalid argument: 5 bytes from 4 on are not within 8 bytes";
        assert_eq!(text(4, 5), Err(expected.into()));
        assert!(text(usize::MAX, 2).is_err());
    }
}
