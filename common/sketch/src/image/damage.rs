//! Damages images, as can happen in transit.

use std::vec::Vec;

use super::ImageError;

/// One byte in this many is damaged.
pub(crate) const STEP: usize = crate::test_size::of(1, 193);

/// Truncates an image before each of its bytes, flips each of its bits, and reads each result. The reader must return a
/// sketch or an error, and must not panic. Returns the errors of the truncated images.
pub(crate) fn survived<S>(image: &[u8], read: impl Fn(&[u8]) -> Result<S, ImageError>) -> Vec<ImageError> {
    assert!(read(image).is_ok(), "the image is already broken without damage");
    let refused = (0..image.len()).step_by(STEP).filter_map(|length| read(&image[..length]).err()).collect();
    let mut turned = image.to_vec();
    for bit in (0..8 * image.len()).step_by(8 * STEP - 7) {
        turned[bit / 8] ^= 1 << (bit % 8);
        if let Err(error) = read(&turned) {
            assert!(!std::format!("{error}").is_empty());
        }
        turned[bit / 8] ^= 1 << (bit % 8);
    }
    refused
}
