//! Writes the data that [`Reader`](super::Reader) reads.

use alloc::vec::Vec;

use super::Literal;
use crate::weight::Weight;

/// The bytes of a payload that is being written.
#[derive(Debug, Default)]
pub struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// The bytes written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    fn literal(&mut self, literal: Literal, number: u64) {
        match literal {
            Literal::Byte => self.0.push(number as u8),
            Literal::Short => self.0.extend((number as u16).to_le_bytes()),
            Literal::Word => self.word(number),
            Literal::Varint => self.varint(number),
        }
    }

    /// Writes a word in eight bytes.
    pub fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    /// Writes a number in as few groups of seven bits as needed, the lowest group first (LEB128).
    pub fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Writes numbers so that zeros in a row cost nothing: the number of zeros, the number of literals that follow,
    /// these literals, and so on. (The literals in a row are collected first, because their number precedes them.)
    pub fn numbers(&mut self, literal: Literal, numbers: impl IntoIterator<Item = u64>) {
        /// This many zeros in a row cost no more as literals.
        const SHORT: usize = 2;
        let (mut before, mut literals, mut zeros) = (0, Vec::new(), 0);
        for number in numbers {
            if number == 0 {
                zeros += 1;
                continue;
            }
            if zeros > SHORT || literals.is_empty() {
                self.stretch(literal, before, &literals);
                literals.clear();
                before = zeros;
            } else {
                literals.extend(core::iter::repeat_n(0, zeros));
            }
            zeros = 0;
            literals.push(number);
        }
        self.stretch(literal, before, &literals);
        self.stretch(literal, zeros, &[]);
    }

    /// Writes one weight.
    pub fn weight<W: Weight>(&mut self, weight: W) {
        self.weights(&core::iter::once(weight));
    }

    /// Writes weights: the first number of all of them, then the second number of all, if they have two.
    pub fn weights<W: Weight>(&mut self, weights: &(impl Iterator<Item = W> + Clone)) {
        W::by_number(|number| {
            self.numbers(Literal::Varint, weights.clone().map(number));
            0
        });
    }

    fn stretch(&mut self, literal: Literal, zeros: usize, literals: &[u64]) {
        if zeros + literals.len() > 0 {
            self.varint(zeros as u64);
            self.varint(literals.len() as u64);
            literals.iter().for_each(|number| self.literal(literal, *number));
        }
    }
}
