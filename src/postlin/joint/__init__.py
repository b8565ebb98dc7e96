"""All classes at a time: softmax posterior linearisation, the binary formulas in matrices."""
