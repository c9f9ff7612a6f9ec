"""What can answer a request: the vocabulary, the protocol, and the code that several engines share."""
