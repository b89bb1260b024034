"""The vocabulary: messages, contracts, trees, keys, the codec, errors."""
