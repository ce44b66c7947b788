//! What can happen to images on their way.

use std::vec::Vec;

use super::ImageError;

/// Of so many bytes, one is damaged.
pub(crate) const STEP: usize = crate::test_size::of(1, 193);

/// Cuts an image off before each of its bytes, turns each of its bits, and has each result read: it must be read as a
/// sketch or refused with a reason, and so no reader may panic. Gives what the cut ones were refused with.
pub(crate) fn survived<S>(image: &[u8], read: impl Fn(&[u8]) -> Result<S, ImageError>) -> Vec<ImageError> {
    assert!(read(image).is_ok(), "the image is broken before anything happened to it");
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
