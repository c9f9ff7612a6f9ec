"""Where settings come from: TOML, the environment, key files, the embedded model. `gateway.config` puts them together."""
