"""`baton serve` as a process of its own, with models that play scripts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIG = """
[server]
port = 0
log_level = "warning"

[models.story]
engine = "fake"
token_delay_s = 0.004
replies = [{ text = '''
A **cache** keeps what was computed – été 日本.

1. First `x < y`
2. Second

```python
print("a very long line that does not fit a phone, whatever the font may be, so it scrolls by itself and not with the page")
```
''' }, { text = "The second answer." }]

[models.endless]
engine = "fake"
token_delay_s = 0.01
context = 100000
replies = [{ text = '''%s''' }]

[models.hostile]
engine = "fake"
replies = [{ text = '''<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>

- [link](javascript:document.title='owned')
- `<b>` [good](https://example.org/a?b=1&c=2)
''' }]

[models.broken]
engine = "fake"
error = "Failed"
error_after_tokens = 20
replies = [{ text = "Half of this sentence is lost on the way." }]

[models.full]
engine = "fake"
error = "Overloaded"
""" % ("All work and no play makes a dull model.\n\n" * 400)


@contextmanager
def serve(folder: Path, **environment: str) -> Iterator[str]:
    """Run `baton serve` on the scripted models; gives its URL."""
    config = folder / "baton.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config)]
    env = {**os.environ, **environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    try:
        line = next((line for line in process.stdout if line.startswith("Baton is ready: ")), "")
        assert line, "the gateway did not start"
        yield line.split()[3]
    finally:
        process.terminate()
        process.wait(timeout=20)
        process.stdout.close()
