"""The test-suite: contracts per protocol, units by folder, black-box tests over HTTP in `e2e`."""
