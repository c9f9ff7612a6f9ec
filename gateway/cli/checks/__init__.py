"""What `baton doctor` looks at: one module per subject, each a function that returns findings."""
